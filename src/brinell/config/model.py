"""A model as one string with options: `SOURCE[?key=value&…]`, or `URL[#key=value&…]`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import parse_qsl, urlsplit

from pydantic import (
    BeforeValidator,
    Field,
    PositiveInt,
    SerializerFunctionWrapHandler,
    model_serializer,
    model_validator,
)

from brinell.config.criterion import Task
from brinell.config.detection import Decoding
from brinell.errors import ConfigError
from brinell.types import Interpolation


def _split(value: Any) -> Any:
    """Turn comma-separated text or a single number into a list, so that options can be written in a model string."""
    return value.split(",") if isinstance(value, str) else [value] if isinstance(value, (int, float)) else value


def _to_int(value: Any) -> Any:
    return int(value) if isinstance(value, str) and value.isdigit() else value


def _to_text(value: Any) -> Any:
    return str(value) if isinstance(value, int) else value


Numbers = Annotated[tuple[float, ...], BeforeValidator(_split)]
Sides = Annotated[tuple[PositiveInt, ...], BeforeValidator(_split)]


#: endings of weights files
WEIGHTS = frozenset({".onnx", ".safetensors", ".pt", ".pth", ".bin"})
#: how the URL of a model behind HTTP begins
URLS = ("http://", "https://")


#: prompts of zero-shot models by name: one plain prompt, and CLIP's 80 for ImageNet and the 7 best of them
PROMPT_SETS = ("photo", "clip-80", "clip-7")
#: options that are written only if they are set, so that runs from before them resume
_LATER = frozenset({"checkpoint", "weights", "prompts", "scoring", "fill", "bgr", "layout"}) | frozenset(
    {"model", "question", "key", "quantise", "calibration", "gallery", "match"}
)


class ModelOptions(Decoding):
    """Which model is tested, and what can't be read from the model itself.

    A URL may have a query of its own, so its options follow # (`http://host/predict#mapping=FILE&size=224`).
    """

    source: str = Field(description="Model: KIND:NAME, a file, or a URL (see `brinell ls models`).")
    name: str | None = Field(None, description="Name of the model in rows and reports (default: the end of its source).")
    size: Sides | None = Field(
        None, description="Size of the model input in pixels: one side, or HEIGHT,WIDTH (default: the model's own)."
    )
    channels: Annotated[Literal[1, 3] | None, BeforeValidator(_to_int)] = Field(
        None, description="Channels of the model input: 1 (grey) or 3 (RGB) (default: the model's own)."
    )
    mean: Numbers | None = Field(
        None,
        description="Mean that is subtracted from pixel values in [0, 1]: one number, or one per channel (default: the "
        "model's own).",
    )
    std: Numbers | None = Field(
        None,
        description="Standard deviation that pixel values are divided by: one number, or one per channel (default: the "
        "model's own).",
    )
    resize: Literal["stretch", "crop", "letterbox"] | None = Field(
        None,
        description="How images are resized to the model input: stretch, crop (resize the shorter side to "
        "short_side, then crop the centre) or letterbox (resize to fit, then add grey bars) (default: the model's own).",
    )
    fill: int | None = Field(None, ge=0, le=255, description="Grey level of the letterbox bars (default: 114).")
    bgr: bool | None = Field(
        None,
        description="Whether the model expects channels in the order blue, green, red (default: the model's own).",
    )
    short_side: int | None = Field(
        None, description="Length in pixels that the shorter side is resized to before the centre crop."
    )
    interpolation: Interpolation | None = Field(
        None,
        description="Interpolation of the resize: nearest, bilinear, bicubic or lanczos (default: the model's own).",
    )
    layout: Literal["nchw", "nhwc"] | None = Field(
        None, description="Axis order of an ONNX file's input: nchw or nhwc (default: inferred from its shape)."
    )
    classes: Annotated[str | None, BeforeValidator(_to_text)] = Field(
        None,
        description='File with one class name per line, "imagenet", or the number of classes (default: the model\'s own).',
    )
    checkpoint: str | None = Field(
        None,
        description="Checkpoint with fine-tuned weights for a timm or torchvision network: safetensors, or torch's "
        "formats.",
    )
    factory: str | None = Field(
        None, description="Function that builds the module for a weights file: package.module:function."
    )
    output: str | None = Field(None, description="Name of the output with the scores (default: the first output).")
    mapping: str | None = Field(
        None, description="YAML file that describes the requests and responses of a service behind HTTP."
    )
    pretrained: bool = Field(True, description="Load pretrained weights; false: random weights.")
    task: Literal["classification", "detection", "segmentation", "embedding", "zero-shot", "answer"] | None = Field(
        None,
        description="Task: classification, detection, segmentation, embedding, zero-shot, or answer (a chat model's free "
        "answer) (default: the model's known task, otherwise classification).",
    )
    gallery: str | None = Field(
        None,
        description="Folder of class folders whose images define the classes of an embedder (default: no classes; "
        "embeddings are compared with that of the clean image).",
    )
    match: Literal["nearest", "linear"] | None = Field(
        None,
        description="How a gallery classifies embeddings: nearest (nearest neighbour by cosine) or linear (linear probe) "
        "(default: nearest).",
    )
    weights: str | None = Field(None, description="Name of the pretrained weights, for networks with several (open_clip).")
    prompts: str | None = Field(
        None,
        description="Prompts of a zero-shot model: photo, clip-80, clip-7, or a file with one prompt per line and {} for "
        "the class name (default: photo).",
    )
    scoring: Literal["softmax", "sigmoid"] | None = Field(
        None, description="Scores of a zero-shot model: softmax or sigmoid (default: as in training)."
    )

    quantise: Literal["int8", "fp8"] | None = Field(
        None, description="Test a quantised copy: int8 (weights and activations) or fp8 (weights)."
    )
    calibration: str | None = Field(
        None,
        description="Folder of images to calibrate int8 activations on (default: ranges are measured per image).",
    )
    model: str | None = Field(None, description="Name of a chat model on its server.")
    question: str | None = Field(
        None,
        description="File with the question for a chat model, with {choices} for the classes (default: which of them the "
        "image shows).",
    )
    votes: int = Field(
        1,
        ge=1,
        le=128,
        description="Number of answers of a chat model per image; the shares of the answers are the scores.",
    )
    key: str | None = Field(
        None, pattern=r"^\w+$", description="Environment variable with the API key for a chat model's server."
    )

    @model_validator(mode="before")
    @classmethod
    def _from_text(cls, value: Any) -> Any:
        options = {"source": value} if isinstance(value, str) else value
        if not isinstance(options, Mapping) or not isinstance(options.get("source"), str):
            return value
        source, _, query = options["source"].partition("#" if options["source"].startswith(URLS) else "?")
        pairs = dict(parse_qsl(query, keep_blank_values=True, strict_parsing=bool(query)))
        return {**pairs, **options, "source": source}

    @model_serializer(mode="wrap")
    def _serialise(self, plain: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Return the options as data; some are included only if they differ from their defaults."""
        content: dict[str, Any] = plain(self)
        changed = self.changed()
        unset = {key for key in _LATER if content.get(key) is None} | ({"votes"} if self.votes == 1 else set())
        return {
            key: value
            for key, value in content.items()
            if key not in unset and (key not in Decoding.model_fields or key in changed)
        }

    def chosen(self) -> set[str]:
        """Return the options that differ from their defaults."""
        fields = type(self).model_fields
        return {key for key in self.model_fields_set - {"source"} if getattr(self, key) != fields[key].default}

    @property
    def class_count(self) -> int | None:
        """The number of classes, if `classes` is a number."""
        return int(self.classes) if self.classes is not None and self.classes.isdecimal() else None

    @property
    def label(self) -> str:
        """The model's name in rows and reports."""
        if self.name is not None:
            return self.name
        return self._short_source() + ("" if self.quantise is None else f"-{self.quantise}")

    def _short_source(self) -> str:
        """Return the end of the source."""
        if self.source.startswith(URLS):
            parts = urlsplit(self.source)
            return parts.path.removesuffix("/infer").rstrip("/").rpartition("/")[2] or parts.netloc
        kind, _, rest = self.source.partition(":")
        if kind == "chat" and self.model is not None:
            rest = self.model
        last = (rest or kind).rstrip("/").rpartition("/")[2]
        if kind == "torch" and ":" in last:
            last = last.rpartition(":")[2]  # the factory
        return last.removesuffix(Path(last).suffix) if Path(last).suffix in WEIGHTS else last

    def task_or(self, known: Task) -> Task:
        """Return the task, by what is `known` about the model if it is not set; raise for options of another task."""
        chosen = self.task
        task = known if chosen is None or chosen == "zero-shot" or chosen == "answer" else chosen
        self.is_detector(task == "detection")
        return task

    def is_segmenter(self, known: bool = False) -> bool:
        """Whether the model is a segmenter: by `task` if it is set, otherwise by what is `known` about the model."""
        return known if self.task is None else self.task == "segmentation"

    def is_detector(self, known: bool = False) -> bool:
        """Whether the model is a detector: by `task` if it is set, otherwise by what is `known` about the model."""
        detector = known if self.task is None else self.task == "detection"
        if self.task != "embedding" and (self.gallery is not None or self.match is not None):
            raise ConfigError("gallery and match are options of embedders; set task=embedding to use them")
        if not detector and self.changed():
            raise ConfigError(f"{next(iter(self.changed()))} is an option of detectors; set task=detection to use it")
        return detector
