"""What is said of a service in a small YAML file: how it is sent an image, and where its answer is."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, PositiveFloat, PositiveInt, model_validator

from brinell.classes import Classes
from brinell.errors import ConfigError
from brinell.validation import Place, read_yaml, validated

#: likelihoods as Google's Vision API has them
WORDS = {"VERY_UNLIKELY": 0.0, "UNLIKELY": 0.25, "POSSIBLE": 0.5, "LIKELY": 0.75, "VERY_LIKELY": 1.0}
IMAGE = "{image}"
_STEP = re.compile(r"\.?([^.\[\]]+)|\[(\d*)\]")

Steps = tuple[str | int | None, ...]


def steps(path: str) -> Steps:
    """A path such as `answers[0].labels[].name` as keys, places and None for "each"."""
    text = path.removeprefix("$").removeprefix(".")
    found, end = [], 0
    for match in _STEP.finditer(text):
        if match.start() != end:
            break
        found.append(match[1] if match[1] is not None else int(match[2]) if match[2] else None)
        end = match.end()
    if end != len(text):
        raise ValueError(f"a path should look like answers[0].labels[].name, but is {path!r}")
    return tuple(found)


def _path(text: str) -> str:
    steps(text)
    return text


JsonPath = Annotated[str, AfterValidator(_path)]


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class RequestOptions(_Part):
    """How an image is sent.

    `body`: "multipart" (a file in `field`, beside `fields`), "base64" (in the JSON `template`, where it says {image}) or
    "raw". Headers, fields and template may hold ${NAME}, an environment variable that is read when a question is asked.
    """

    body: Literal["multipart", "base64", "raw"] = "multipart"
    format: Literal["png", "jpeg"] = "png"
    quality: int = Field(95, ge=1, le=100)
    field: str = "file"
    fields: dict[str, str] = {}
    template: Any = {"image": IMAGE}
    headers: dict[str, str] = {}

    @model_validator(mode="after")
    def _has_a_place(self) -> RequestOptions:
        if self.body == "base64" and IMAGE not in json.dumps(self.template):
            raise ValueError(f"the template of a base64 request should say {IMAGE} where the image goes")
        return self


class ResponseOptions(_Part):
    """Where the answer is, as paths into the JSON.

    `labels` and `scores` are two paths to lists of the same length (`found[].name`, `found[].score`), or `scores` alone is
    a path to an object (name: score), a list in the order of the classes, or one path a class. `labels` alone: the service
    names a class and gives no scores. `words` are numbers for words, `scale` multiplies scores (0.01 for percent), `rest`
    is the class of what no other class has, and `logits` says that scores need a softmax.

    `boxes` makes it a detector: a path to boxes of four numbers (`found[].box`), or four paths, one a number
    (`found[].box.left`, …), beside `labels` and `scores`; in pixels of the image that was sent, or `relative` to it.
    """

    labels: JsonPath | None = None
    scores: JsonPath | dict[str, JsonPath] | None = None
    words: dict[str, float] = WORDS
    scale: float = 1.0
    rest: str | None = None
    logits: bool = False
    boxes: JsonPath | tuple[JsonPath, JsonPath, JsonPath, JsonPath] | None = None
    box_format: Literal["xyxy", "xywh", "cxcywh"] = "xyxy"
    box_units: Literal["pixels", "relative"] = "pixels"

    @model_validator(mode="after")
    def _says_something(self) -> ResponseOptions:
        if self.boxes is not None and (self.labels is None or self.logits):
            raise ValueError("boxes need a path to their labels, and scores that are no logits")
        if self.labels is None and self.scores is None:
            raise ValueError("a response needs a path to labels, to scores, or to both")
        if self.labels is not None and isinstance(self.scores, dict):
            raise ValueError("scores by class need no path to labels")
        return self


class CallOptions(_Part):
    """How a service is asked; nothing of it changes what it answers.

    `rate` is queries a second at most, `price` what one costs; `batch` is for the Open Inference Protocol, which takes
    several images a request. `failures` is how many images of a run may go without an answer before it stops.
    """

    concurrency: PositiveInt = 8
    rate: PositiveFloat | None = None
    timeout: PositiveFloat = 30.0
    retries: int = Field(4, ge=0)
    backoff: float = Field(0.5, ge=0)
    price: float | None = Field(None, ge=0)
    batch: PositiveInt = 8
    failures: int = Field(0, ge=0)


class Mapping(_Part):
    """A service. `version` names what lies behind the URL: with another one it is asked anew, and no answer is reused."""

    protocol: Literal["mapping", "v2"] = "mapping"
    version: str | None = None
    classes: tuple[str, ...] | None = None
    request: RequestOptions = RequestOptions()
    response: ResponseOptions | None = None
    calls: CallOptions = CallOptions()

    @model_validator(mode="after")
    def _whole(self) -> Mapping:
        if (self.response is None) == (self.protocol == "mapping"):
            raise ValueError("a mapping needs a response, which says where labels and scores are; protocol v2 takes none")
        return self

    def class_names(self, given: Classes | None) -> Classes:
        """The service's classes: the user's list, the mapping's, or those that have a path of their own."""
        assert self.response is not None
        own = self.classes
        if own is None and isinstance(self.response.scores, dict):
            own = tuple(self.response.scores)
        if own is not None and self.response.rest is not None and self.response.rest not in own:
            own = (*own, self.response.rest)
        if given is None and own is None:
            raise ConfigError(
                "the mapping should list the service's classes (classes: [safe, unsafe]), or give #classes=FILE"
            )
        classes = given if given is not None else Classes(own or ())
        if self.response.rest is not None and not classes.find(self.response.rest):
            raise ConfigError(f"the mapping's rest is {self.response.rest!r}, which is none of the classes")
        return classes


def read_mapping(text: str) -> Mapping:
    """The mapping in a YAML file."""
    content = read_yaml(Path(text).expanduser(), "mapping", "request and response")
    try:
        return validated(Mapping, content, _known_keys)
    except ConfigError as error:
        raise ConfigError(f"{text}: {error}") from None


def _known_keys(place: Place) -> list[str]:
    parts: dict[str, type[BaseModel]] = {"request": RequestOptions, "response": ResponseOptions, "calls": CallOptions}
    return list((parts.get(str(place[0]), Mapping) if len(place) > 1 else Mapping).model_fields)
