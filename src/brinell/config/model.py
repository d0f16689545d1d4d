"""A model named by one string, with its options: `SOURCE[?key=value&…]`, or `URL[#key=value&…]`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import parse_qsl, urlsplit

from pydantic import BeforeValidator, PositiveInt, SerializerFunctionWrapHandler, model_serializer, model_validator

from brinell.classes import Classes
from brinell.errors import ConfigError
from brinell.models.detection import Decoding
from brinell.models.imagenet import imagenet_classes
from brinell.models.preprocess import Preprocess
from brinell.resizing.resample import Interpolation


def _listed(value: Any) -> Any:
    """Comma-separated text as a list, so that options can be written in a model string."""
    return value.split(",") if isinstance(value, str) else [value] if isinstance(value, (int, float)) else value


def _whole(value: Any) -> Any:
    return int(value) if isinstance(value, str) and value.isdigit() else value


Numbers = Annotated[tuple[float, ...], BeforeValidator(_listed)]
Sides = Annotated[tuple[PositiveInt, ...], BeforeValidator(_listed)]


#: endings of files that hold weights
WEIGHTS = frozenset({".onnx", ".safetensors", ".pt", ".pth", ".bin"})
#: how a service's strings begin
URLS = ("http://", "https://")


class ModelOptions(Decoding):
    """Which model, and what can't be read from it.

    `size` is one side or height,width; `resize` "stretch" or "crop" (shorter side to `short_side`, then the middle);
    `classes` a file with one name a line, or "imagenet"; `factory` (package.module:function) builds the module that a
    weights file is for; `output` picks one of several outputs; `mapping` is a YAML file that tells how a service is asked.
    A URL keeps its own query: options follow # there (`http://host/predict#mapping=FILE&size=224`). A detector is told by
    `task` "detection", and how its outputs are read by the options of `Decoding`.
    """

    source: str
    name: str | None = None
    size: Sides | None = None
    channels: Annotated[Literal[1, 3] | None, BeforeValidator(_whole)] = None
    mean: Numbers | None = None
    std: Numbers | None = None
    resize: Literal["stretch", "crop"] | None = None
    short_side: int | None = None
    interpolation: Interpolation | None = None
    classes: str | None = None
    factory: str | None = None
    output: str | None = None
    mapping: str | None = None
    pretrained: bool = True
    task: Literal["classification", "detection"] | None = None

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
    def _told(self, plain: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """The options as data; what only detectors have is told where it was set."""
        told: dict[str, Any] = plain(self)
        return {key: value for key, value in told.items() if key not in Decoding.model_fields or key in self.changed()}

    @property
    def label(self) -> str:
        """The model's name in rows and reports."""
        if self.name is not None:
            return self.name
        if self.source.startswith(URLS):
            parts = urlsplit(self.source)
            return parts.path.removesuffix("/infer").rstrip("/").rpartition("/")[2] or parts.netloc
        kind, _, rest = self.source.partition(":")
        last = (rest or kind).rstrip("/").rpartition("/")[2]
        if kind == "torch" and ":" in last:
            last = last.rpartition(":")[2]  # the factory
        return last.removesuffix(Path(last).suffix) if Path(last).suffix in WEIGHTS else last

    def detects(self, known: bool = False) -> bool:
        """Whether the model is a detector: as the user says, or as it is `known` to be."""
        detects = known if self.task is None else self.task == "detection"
        if not detects and self.changed():
            raise ConfigError(f"{next(iter(self.changed()))} is an option of detectors; say so with task=detection")
        return detects

    def preprocess(self, known: Preprocess) -> Preprocess:
        """What is known of the model, with the user's options over it."""
        sides = self.size or (known.height, known.width)
        height, width = (sides[0], sides[-1]) if len(sides) <= 2 else _bad_size(sides)
        channels = self.channels or known.channels
        short_side = known.short_side
        if self.short_side is not None:
            short_side = self.short_side
        elif self.resize == "stretch":
            short_side = None
        elif self.resize == "crop" and (short_side is None or self.size is not None):
            short_side = round(max(height, width) / 0.875)  # the usual ImageNet crop
        if short_side is not None and short_side < max(height, width):
            raise ConfigError(f"short_side is {short_side}, but a crop of {height}x{width} needs at least its longer side")
        return Preprocess(
            height=height,
            width=width,
            channels=channels,
            short_side=short_side,
            interpolation=self.interpolation or known.interpolation,
            mean=_for_channels("mean", self.mean or known.mean, channels),
            std=_for_channels("std", self.std or known.std, channels),
        )

    def class_list(self, known: Classes | None) -> Classes | None:
        """The user's class list, or the one the model came with."""
        if self.classes is None:
            return known
        if self.classes == "imagenet":
            return imagenet_classes()
        path = Path(self.classes).expanduser()
        if not path.is_file():
            raise ConfigError(f"the class list {self.classes!r} is not a file; give a text file with one class name a line")
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"the class list {self.classes!r} can't be read as UTF-8 text: {error}") from error
        return Classes(tuple(line for line in lines if line.strip()))


def _bad_size(sides: tuple[int, ...]) -> tuple[int, int]:
    raise ConfigError(f"size should be one side or height,width, but is {','.join(map(str, sides))}")


def _for_channels(name: str, values: tuple[float, ...], channels: int) -> tuple[float, ...]:
    if len(values) not in (1, channels):
        raise ConfigError(f"{name} should be one number or one for each of the {channels} channels, but is {values}")
    return values
