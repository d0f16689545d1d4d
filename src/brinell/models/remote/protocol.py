"""Requests and responses of services, without the network.

Axes: a model input is uint8 (C, H, W); scores are float32 (K,), one per class.
"""

from __future__ import annotations

import base64
import io
import json
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import urllib3
from PIL import Image

from brinell.classes import Classes
from brinell.errors import ServiceError
from brinell.models.remote.mapping import IMAGE, RequestOptions, ResponseOptions, Steps, parse_path
from brinell.models.remote.secrets import expand

LARGEST = 1e30  # score


@dataclass(frozen=True)
class Request:
    """The body of a request, and its content type."""

    body: bytes
    content_type: str


class Codec(Protocol):
    """How a service's requests are written and its responses read."""

    @property
    def most(self) -> int:
        """The maximum number of images per request."""
        ...

    def request(self, inputs: list[np.ndarray]) -> Request:
        """Write a request for some model inputs."""
        ...

    def split(self, response: Any, count: int) -> list[Any]:
        """Split a response into JSON values, one per model input, that can be cached."""
        ...

    def scores(self, answer: Any) -> np.ndarray:
        """Read the scores from such a value, and raise if it is invalid."""
        ...


@dataclass(frozen=True)
class MappingCodec:
    """The codec of a service that is described by a mapping, with one image per request."""

    options: RequestOptions
    response: ResponseOptions
    classes: Classes
    most: int = 1

    def request(self, inputs: list[np.ndarray]) -> Request:
        """Write the image as a file in a form, in base64, or as it is."""
        (model_input,) = inputs
        options, image, kind = self.options, encode_image(model_input, self.options), f"image/{self.options.format}"
        if options.body == "raw":
            return Request(image, kind)
        if options.body == "base64":
            return Request(json.dumps(fill_template(options.template, image)).encode(), "application/json")
        fields: dict[str, Any] = {name: expand(value) for name, value in options.fields.items()}
        fields[options.field] = (f"image.{options.format}", image, kind)
        return Request(*urllib3.encode_multipart_formdata(fields))

    def split(self, response: Any, count: int) -> list[Any]:
        """Return the whole response, so that a wrong mapping can be corrected without sending the image again."""
        return [response]

    def scores(self, answer: Any) -> np.ndarray:
        """Read the scores at the mapping's paths."""
        return read_scores(answer, self.response, self.classes)


def encode_image(model_input: np.ndarray, options: RequestOptions) -> bytes:
    """Encode a model input as an image file."""
    picture = Image.fromarray(
        np.ascontiguousarray(model_input[0] if len(model_input) == 1 else model_input.transpose(1, 2, 0))
    )
    sink = io.BytesIO()
    if options.format == "png":
        picture.save(sink, "png")
    else:
        picture.save(sink, "jpeg", quality=options.quality)
    return sink.getvalue()


def fill_template(template: Any, image: bytes) -> Any:
    """Fill a JSON template with an image in base64 and with environment variables."""
    if isinstance(template, str):
        return expand(template).replace(IMAGE, base64.b64encode(image).decode())
    if isinstance(template, dict):
        return {key: fill_template(value, image) for key, value in template.items()}
    return [fill_template(value, image) for value in template] if isinstance(template, list) else template


# ---- responses ----


def value_at(answer: Any, path: str) -> Any:
    """Return the value at a path, or a list of values if the path contains []."""
    return _walk(answer, parse_path(path), path)


def _walk(value: Any, steps: Steps, path: str) -> Any:
    for number, step in enumerate(steps):
        if step is None and isinstance(value, list):
            return [_walk(each, steps[number + 1 :], path) for each in value]
        keys: Any = value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
        if step not in keys:
            found = ", ".join(value) if isinstance(value, dict) else type(value).__name__
            raise ServiceError(f"its response has nothing at {path!r} (found: {found})")
        value = value[step]
    return value


def read_scores(answer: Any, options: ResponseOptions, classes: Classes) -> np.ndarray:
    """Return a response's scores, float32 (K,), in the order of the classes."""
    if isinstance(options.scores, dict):
        found = {name: value_at(answer, path) for name, path in options.scores.items()}
    elif options.labels is not None:
        scores = None if options.scores is None else value_at(answer, options.scores)
        found = _pair_labels(value_at(answer, options.labels), scores)
    else:
        assert options.scores is not None
        value = value_at(answer, options.scores)
        if isinstance(value, list):
            if len(value) != len(classes):
                raise ServiceError(f"its response has {len(value)} scores at {options.scores!r} for {len(classes)} classes")
            return np.array([read_number(score, options) for score in value], np.float32)
        if not isinstance(value, dict):
            raise ServiceError(f"its response should have a list or an object at {options.scores!r}, not {value!r:.60}")
        found = value
    return _scores_by_class(found, options, classes)


def _scores_by_class(found: dict[str, Any], options: ResponseOptions, classes: Classes) -> np.ndarray:
    scores = np.full(len(classes), np.nan, np.float32)
    for name, score in found.items():
        indices = classes.find(str(name))
        if not indices and options.rest is None:
            raise ServiceError(unknown_class(name))
        for index in indices[:1]:
            scores[index] = read_number(score, options)
    if options.rest is not None:
        index = classes.find(options.rest)[0]
        if np.isnan(scores[index]):
            scores[index] = max(0.0, 1.0 - float(np.nanmax(np.append(np.delete(scores, index), 0.0))))
    return np.nan_to_num(scores, nan=-np.inf if options.logits else 0.0)


def unknown_class(name: Any) -> str:
    """Return the error for a response with a class that the mapping doesn't list."""
    return (
        f"its response names {name!r}, which is not one of the mapping's classes; add it to them, or set `rest` to the "
        "class of everything else"
    )


def _pair_labels(labels: Any, scores: Any) -> dict[str, Any]:
    """Return labels with their scores; without scores, the first label with a score of 1."""
    names = labels if isinstance(labels, list) else [labels]
    if scores is None:
        return {str(name): 1.0 for name in names[:1]}
    values = scores if isinstance(scores, list) else [scores]
    if len(names) != len(values):
        raise ServiceError(f"its response has {len(names)} labels, but {len(values)} scores")
    return dict(zip(map(str, reversed(names)), reversed(values), strict=True))  # of equal names the first one stays


def read_number(score: Any, options: ResponseOptions) -> float:
    """Return a score as a number, translated from a word or scaled from a percentage."""
    if isinstance(score, str) and score in options.words:
        return options.words[score]
    if not isinstance(score, (int, float)) or not abs(score) <= LARGEST:  # NaN isn't, either
        known = f"; words: {', '.join(options.words)}" if isinstance(score, str) else ""
        raise ServiceError(f"its response has {score!r:.60} instead of a score{known}")
    return score * options.scale
