"""Options of the knob lens."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Literal

from pydantic import Field

from brinell.config.lens import LensOptions, Preset
from brinell.errors import ConfigError
from brinell.lenses.knob.presets import PRESETS
from brinell.registry import DEFAULT_VARIANT

Distance = Literal["mse", "mae", "l1", "l2", "linf", "l0", "changed"]


class KnobOptions(LensOptions):
    """Options of the knob lens."""

    presets: ClassVar[Mapping[str, Preset]] = PRESETS
    costly: ClassVar[Mapping[str, Any]] = {"search": "bracket"}

    name: Literal["knob"] = "knob"
    variant: str = Field(
        DEFAULT_VARIANT,
        description="Variant of properties given without one: standard, dsn2020 (the paper's figures) or "
        "equations (the paper's text).",
    )
    search: Literal["exact", "bracket", "bands"] = Field(
        "exact",
        description="Search for the breaking point: exact (the first one on the grid), bracket (doubling, bisection and a "
        "few probes; fewer queries, but may miss the smallest if the model recovers) or bands (all breaking intervals of "
        "the whole grid).",
    )
    points: int | None = Field(
        None, ge=1, le=30_000, description="Grid points per direction (default: each property's own)."
    )
    resample: bool = Field(
        False, description="Draw new noise and weather at every grid point, as in the paper, instead of scaling one field."
    )
    rounding: Literal["whole", "none"] = Field(
        "whole",
        description="whole (query images in whole grey levels, as cameras and files store them) or none (query float "
        "images, as in the paper; not for services).",
    )
    distance: Distance = Field(
        "mse",
        description="Distance that decides which of two directions is the smaller change: mse, mae, l1, l2, linf, l0 or "
        "changed (share of pixels).",
    )
    frost: str | None = Field(None, description="Photograph of frost to use instead of generated frost.")

    def identity(self) -> dict[str, Any]:
        """Return what rows depend on: the photograph of frost by its content."""
        own = super().identity()
        if self.frost is not None:
            try:
                content = Path(self.frost).read_bytes()
            except OSError as error:
                raise ConfigError(f"can't read the photograph of frost {self.frost}: {error.strerror}") from None
            own["frost"] = hashlib.blake2b(content, digest_size=8).hexdigest()
        return own


OPTIONS = KnobOptions
