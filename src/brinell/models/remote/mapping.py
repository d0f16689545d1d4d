"""The mapping file of a service: how an image is sent, and where the result is in the response."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, PositiveFloat, PositiveInt, model_validator

from brinell.classes import Classes
from brinell.errors import ConfigError
from brinell.validation import Location, read_yaml, validate

#: likelihoods of Google's Vision API
LIKELIHOODS = {"VERY_UNLIKELY": 0.0, "UNLIKELY": 0.25, "POSSIBLE": 0.5, "LIKELY": 0.75, "VERY_LIKELY": 1.0}
IMAGE = "{image}"
_STEP = re.compile(r"\.?([^.\[\]]+)|\[(\d*)\]")

Steps = tuple[str | int | None, ...]


def parse_path(path: str) -> Steps:
    """Split a path such as `answers[0].labels[].name` into keys, indices, and None for every element of a list."""
    text = path.removeprefix("$").removeprefix(".")
    found, end = [], 0
    for match in _STEP.finditer(text):
        if match.start() != end:
            break
        found.append(match[1] if match[1] is not None else int(match[2]) if match[2] else None)
        end = match.end()
    if end != len(text):
        raise ValueError(f"expected a path such as answers[0].labels[].name, got {path!r}")
    return tuple(found)


def _check_path(text: str) -> str:
    parse_path(text)
    return text


JsonPath = Annotated[str, AfterValidator(_check_path)]


class _Options(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class RequestOptions(_Options):
    """How an image is sent. Texts may contain ${NAME}, an environment variable that is read for each request."""

    body: Literal["multipart", "base64", "raw"] = Field(
        "multipart", description="Body: multipart (a form with a file), base64 (in JSON) or raw (the file itself)."
    )
    format: Literal["png", "jpeg"] = Field("png", description="Image format: png or jpeg.")
    quality: int = Field(95, ge=1, le=100, description="JPEG quality.")
    field: str = Field("file", description="Form field of the file in a multipart body.")
    fields: dict[str, str] = Field({}, description="Further form fields of a multipart body.")
    template: Any = Field({"image": IMAGE}, description="JSON of a base64 body, with {image} in the place of the image.")
    headers: dict[str, str] = Field({}, description="HTTP headers.")

    @model_validator(mode="after")
    def _require_image(self) -> RequestOptions:
        if self.body == "base64" and IMAGE not in json.dumps(self.template):
            raise ValueError(f"the template of a base64 request needs {IMAGE} in the place of the image")
        return self


class ResponseOptions(_Options):
    """Where labels, scores, boxes and masks are in the JSON response.

    `labels` and `scores` may be two paths to lists of the same length (`found[].name`, `found[].score`). `scores` alone is
    a path to an object (name: score), a path to a list in the order of the classes, or a mapping from classes to paths.
    `labels` alone means that the service returns no scores.
    """

    labels: JsonPath | None = Field(None, description="Path to the labels.")
    scores: JsonPath | dict[str, JsonPath] | None = Field(None, description="Path to the scores, or one path per class.")
    words: dict[str, float] = Field(LIKELIHOODS, description="Scores that are given as words, and the numbers they mean.")
    scale: float = Field(1.0, description="Factor that scores are multiplied by (0.01 for percentages).")
    rest: str | None = Field(None, description="Class of everything that none of the other classes stands for.")
    logits: bool = Field(False, description="Scores are logits, which need a softmax.")
    boxes: JsonPath | tuple[JsonPath, JsonPath, JsonPath, JsonPath] | None = Field(
        None,
        description="For a detector, the path to boxes of four numbers (found[].box), or four paths, one per number.",
    )
    box_format: Literal["xyxy", "xywh", "cxcywh"] = Field(
        "xyxy", description="Box format: xyxy (corners), xywh (corner and size) or cxcywh (centre and size)."
    )
    box_units: Literal["pixels", "relative"] = Field(
        "pixels", description="Box units: pixels of the image that was sent, or relative to it (0 to 1)."
    )

    mask: JsonPath | None = Field(
        None,
        description="For a segmenter, the path to the mask: a PNG file in base64, or rows of class numbers; with labels, "
        "the path to a mask for each of them (found[].mask).",
    )

    @model_validator(mode="after")
    def _require_paths(self) -> ResponseOptions:
        if self.mask is not None:
            if self.scores is not None or self.boxes is not None:
                raise ValueError("a mask needs no scores and no boxes; leave them out")
            return self
        if self.boxes is not None and (self.labels is None or self.logits):
            raise ValueError("boxes need a path to their labels, and scores that are not logits")
        if self.labels is None and self.scores is None:
            raise ValueError("a response needs a path to labels, to scores, or to both")
        if self.labels is not None and isinstance(self.scores, dict):
            raise ValueError("scores by class need no path to labels")
        return self


class CallOptions(_Options):
    """How the service is called. None of this changes its responses."""

    concurrency: PositiveInt = Field(8, description="Number of parallel requests.")
    rate: PositiveFloat | None = Field(None, description="Maximum number of images per second (default: no limit).")
    timeout: PositiveFloat = Field(30.0, description="Seconds to wait for a response.")
    retries: int = Field(4, ge=0, description="Retries of a request that fails for a reason that may pass.")
    backoff: float = Field(0.5, ge=0, description="Seconds before the first retry; each further retry waits twice as long.")
    price: float | None = Field(None, ge=0, description="Price of a query, for the plan and the manifest.")
    currency: str = Field("", description="Currency of the price, such as USD.")
    batch: PositiveInt = Field(8, description="Images per request (Open Inference Protocol only).")
    failures: int = Field(0, ge=0, description="Images per run that may remain without an answer before the run stops.")

    @model_validator(mode="after")
    def _priced(self) -> CallOptions:
        if self.price is not None and not self.currency:
            raise ConfigError(f"calls.price needs its currency; add one, as in price: {self.price:g}, currency: USD")
        return self


class ServiceMapping(_Options):
    """A mapping file."""

    protocol: Literal["mapping", "v2", "chat"] = Field(
        "mapping",
        description="Protocol: mapping (described in this file), v2 (Open Inference Protocol) or chat (chat completions).",
    )
    version: str | None = Field(
        None, description="Name of what is behind the URL; if it changes, cached responses are not reused."
    )
    classes: tuple[str, ...] | None = Field(None, description="Class names.")
    request: RequestOptions = Field(RequestOptions(), description="How an image is sent.")
    response: ResponseOptions | None = Field(None, description="Where the result is in the response.")
    calls: CallOptions = Field(CallOptions(), description="How the service is called.")

    @model_validator(mode="after")
    def _require_response(self) -> ServiceMapping:
        if (self.response is None) == (self.protocol == "mapping"):
            raise ValueError(
                "a mapping needs a response, which says where labels and scores are; protocols v2 and chat have none"
            )
        return self

    def class_names(self, given: Classes | None) -> Classes:
        """Return the service's classes: the user's list, the mapping's, or those that have their own path."""
        assert self.response is not None
        own = self.classes
        if own is None and isinstance(self.response.scores, dict):
            own = tuple(self.response.scores)
        if own is not None and self.response.rest is not None and self.response.rest not in own:
            own = (*own, self.response.rest)
        if given is None and own is None:
            raise ConfigError(
                "the mapping should list the service's classes (classes: [safe, unsafe]), or use #classes=FILE"
            )
        classes = given if given is not None else Classes(own or ())
        if self.response.rest is not None and not classes.find(self.response.rest):
            raise ConfigError(f"the mapping's rest is {self.response.rest!r}, which is not one of the classes")
        return classes


def read_mapping(text: str) -> ServiceMapping:
    """Read a mapping from a YAML file."""
    content = read_yaml(Path(text).expanduser(), "mapping", "request and response")
    try:
        return validate(ServiceMapping, content, _known_keys)
    except ConfigError as error:
        raise ConfigError(f"{text}: {error}") from None


def _known_keys(location: Location) -> list[str]:
    parts: dict[str, type[BaseModel]] = {"request": RequestOptions, "response": ResponseOptions, "calls": CallOptions}
    return list((parts.get(str(location[0]), ServiceMapping) if len(location) > 1 else ServiceMapping).model_fields)
