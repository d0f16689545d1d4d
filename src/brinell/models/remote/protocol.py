"""What is sent to a service and read from what it answers, without the network.

Axes: a model input is uint8 (C, H, W); scores are float32 (K,), one a class.
"""

from __future__ import annotations

import base64
import io
import json
import math
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import urllib3
from PIL import Image

from brinell.classes import Classes
from brinell.errors import ServiceError
from brinell.models.remote.mapping import IMAGE, RequestOptions, ResponseOptions, Steps, steps
from brinell.models.remote.secrets import expanded


@dataclass(frozen=True)
class Request:
    """What goes over the wire."""

    body: bytes
    content_type: str


class Asking(Protocol):
    """A way of asking: how many images a request takes, and how to write it and to read what comes back."""

    @property
    def most(self) -> int:
        """Images a request."""
        ...

    def request(self, inputs: list[np.ndarray]) -> Request:
        """A request about inputs."""
        ...

    def split(self, answer: Any, count: int) -> list[Any]:
        """A request's answer as JSON values that can be kept, one a model input."""
        ...

    def scores(self, part: Any) -> np.ndarray:
        """The scores in such a part; an error says what is wrong with it."""
        ...


@dataclass(frozen=True)
class Mapped:
    """A service that is told by a mapping: an image a request."""

    options: RequestOptions
    response: ResponseOptions
    classes: Classes
    most: int = 1

    def request(self, inputs: list[np.ndarray]) -> Request:
        """The image as a file, in base64 or as it is."""
        (model_input,) = inputs
        options, image, kind = self.options, encoded(model_input, self.options), f"image/{self.options.format}"
        if options.body == "raw":
            return Request(image, kind)
        if options.body == "base64":
            return Request(json.dumps(filled(options.template, image)).encode(), "application/json")
        fields: dict[str, Any] = {name: expanded(value) for name, value in options.fields.items()}
        fields[options.field] = (f"image.{options.format}", image, kind)
        return Request(*urllib3.encode_multipart_formdata(fields))

    def split(self, answer: Any, count: int) -> list[Any]:
        """The whole answer: a mapping that was wrong can be mended, and nothing has to be asked again."""
        return [answer]

    def scores(self, part: Any) -> np.ndarray:
        """The scores at the mapping's paths."""
        return scores_of(part, self.response, self.classes)


def encoded(model_input: np.ndarray, options: RequestOptions) -> bytes:
    """A model input as the bytes of an image file."""
    picture = Image.fromarray(
        np.ascontiguousarray(model_input[0] if len(model_input) == 1 else model_input.transpose(1, 2, 0))
    )
    sink = io.BytesIO()
    if options.format == "png":
        picture.save(sink, "png")
    else:
        picture.save(sink, "jpeg", quality=options.quality)
    return sink.getvalue()


def filled(template: Any, image: bytes) -> Any:
    """A JSON template with an image in base64 where it says so, and environment variables."""
    if isinstance(template, str):
        return expanded(template).replace(IMAGE, base64.b64encode(image).decode())
    if isinstance(template, dict):
        return {key: filled(value, image) for key, value in template.items()}
    return [filled(value, image) for value in template] if isinstance(template, list) else template


# ---- responses ----


def at(answer: Any, path: str) -> Any:
    """What lies at a path; a list of it where the path says "each"."""
    return _walk(answer, steps(path), path)


def _walk(value: Any, left: Steps, path: str) -> Any:
    for place, step in enumerate(left):
        if step is None and isinstance(value, list):
            return [_walk(each, left[place + 1 :], path) for each in value]
        keys: Any = value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
        if step not in keys:
            there = ", ".join(value) if isinstance(value, dict) else type(value).__name__
            raise ServiceError(f"its answer has nothing at {path!r} (there: {there})")
        value = value[step]
    return value


def scores_of(answer: Any, options: ResponseOptions, classes: Classes) -> np.ndarray:
    """An answer's scores (K,) as float32, in the order of the classes."""
    scores = np.full(len(classes), np.nan, np.float32)
    if isinstance(options.scores, dict):
        found = {name: at(answer, path) for name, path in options.scores.items()}
    elif options.labels is not None:
        found = _labelled(at(answer, options.labels), None if options.scores is None else at(answer, options.scores))
    else:
        assert options.scores is not None
        there = at(answer, options.scores)
        if isinstance(there, list):
            if len(there) != len(classes):
                raise ServiceError(f"its answer has {len(there)} scores at {options.scores!r} for {len(classes)} classes")
            return np.array([number(score, options) for score in there], np.float32)
        if not isinstance(there, dict):
            raise ServiceError(f"its answer should have a list or an object at {options.scores!r}, not {there!r:.60}")
        found = there
    for name, score in found.items():
        places = classes.find(str(name))
        if not places and options.rest is None:
            raise ServiceError(
                f"its answer names {name!r}, which is none of the mapping's classes; add it there, or let `rest` name the "
                "class of all others"
            )
        for place in places[:1]:
            scores[place] = number(score, options)
    if options.rest is not None:
        place = classes.find(options.rest)[0]
        if np.isnan(scores[place]):
            scores[place] = max(0.0, 1.0 - float(np.nanmax(np.append(np.delete(scores, place), 0.0))))
    return np.nan_to_num(scores, nan=-np.inf if options.logits else 0.0)


def _labelled(labels: Any, scores: Any) -> dict[str, Any]:
    """Labels with their scores; the first label alone, and 1 for it, where there are none."""
    names = labels if isinstance(labels, list) else [labels]
    if scores is None:
        return {str(name): 1.0 for name in names[:1]}
    values = scores if isinstance(scores, list) else [scores]
    if len(names) != len(values):
        raise ServiceError(f"its answer has {len(names)} labels, but {len(values)} scores")
    return dict(zip(map(str, reversed(names)), reversed(values), strict=True))  # of equal names the first one stays


def number(score: Any, options: ResponseOptions) -> float:
    """A score as a number: a word stands for one, and percents are scaled."""
    if isinstance(score, str) and score in options.words:
        return options.words[score]
    if not isinstance(score, (int, float)) or not math.isfinite(score):
        known = f"; words: {', '.join(options.words)}" if isinstance(score, str) else ""
        raise ServiceError(f"its answer has {score!r:.60} where a score should be{known}")
    return score * options.scale
