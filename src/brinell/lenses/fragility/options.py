"""Options of the fragility lens."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Literal

from pydantic import Field, field_validator, model_validator

from brinell.config.lens import LensOptions, Preset
from brinell.errors import ConfigError
from brinell.lenses.fragility.names import MINIMAL, SMALLEST, WINDOWS
from brinell.lenses.fragility.presets import PRESETS


class FragilityOptions(LensOptions):
    """Options of the fragility lens."""

    presets: ClassVar[Mapping[str, Preset]] = PRESETS

    name: Literal["fragility"] = "fragility"
    variant: str = Field("published", description="Always published: windows have no variants.")
    operators: tuple[str, ...] = Field((WINDOWS,), description="What to test: windows, location, minimal or all.")
    sizes: tuple[float, ...] = Field(
        (0.2, 0.4, 0.6, 0.8),
        min_length=1,
        description="Window sizes: shares of the shorter side in (0, 1], or pixels.",
    )
    stride: int | float = Field(
        1,
        description="Evaluate one window in stride² (each against its one-pixel neighbours): pixels, or a share of the "
        "shorter side below 1.",
    )
    fit: Literal["bilinear", "bicubic", "lanczos", "nearest", "pad", "own"] = Field(
        "bilinear",
        description="How windows become model inputs: bilinear, bicubic, lanczos or nearest resize, pad (on black), or own "
        "(the model's resize).",
    )
    neighbours: Literal[8, 4] = Field(8, description="Number of neighbours of a one-pixel shift: 8 or 4.")
    step: float = Field(
        0.8,
        gt=0,
        le=64,
        description="Step of the minimal search: shrink a side to this share or, above 1, by this many pixels.",
    )
    beam: int = Field(500, ge=1, description="Number of most confident windows per image that the minimal search keeps.")
    layers: tuple[str, ...] = Field(
        (), description="Layers whose activations to draw for pairs of windows (default: first and last convolution)."
    )

    @field_validator("sizes", mode="before")
    @classmethod
    def _listed(cls, value: object) -> object:
        return [value] if isinstance(value, (int, float, str)) else value

    @field_validator("sizes")
    @classmethod
    def _possible(cls, sizes: tuple[float, ...]) -> tuple[float, ...]:
        for size in sizes:
            if not (0 < size <= 1 or (size > 1 and size.is_integer())):
                raise ConfigError(
                    f"expected a size as a share of the shorter side in (0, 1], or a whole number of pixels; got {size:g}"
                )
            if 1 < size < SMALLEST:
                raise ConfigError(f"windows of {size:g} pixels can't be shrunk by two; use {SMALLEST} or more")
        return tuple(dict.fromkeys(sizes))

    @field_validator("stride")
    @classmethod
    def _whole(cls, stride: float) -> float:
        if not (0 < stride < 1 or float(stride).is_integer()) or stride <= 0:
            raise ConfigError(
                f"expected a stride as a share of the shorter side in (0, 1), or a whole number of pixels; got {stride:g}"
            )
        return stride if stride < 1 else int(stride)

    @model_validator(mode="after")
    def _searchable(self) -> FragilityOptions:
        if self.step > 1 and not self.step.is_integer():
            raise ConfigError(
                f"expected a step as a share of a window's side, or a whole number of pixels; got {self.step:g}"
            )
        if self.fit == "pad" and {MINIMAL, "all"} & set(self.operators):
            raise ConfigError("the minimal search starts at the whole image, which can't be padded; use another fit")
        return self


OPTIONS = FragilityOptions
