"""Options of the highlights lens."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Literal

from pydantic import Field, model_validator

from brinell.config.lens import LensOptions, Preset
from brinell.errors import ConfigError
from brinell.lenses.highlights.presets import PRESETS
from brinell.lenses.highlights.sizes import SHORT_SIDE, SIGMAS, SMALL, is_scaled
from brinell.registry import nearest

GRIDS = ("exact", "authors")
VARIANTS = (*GRIDS, "least")
MAX_VARIANTS = 30_000  # spots per image: a level is a 16-bit number


class HighlightOptions(LensOptions):
    """Options of the highlights lens."""

    presets: ClassVar[Mapping[str, Preset]] = PRESETS

    name: Literal["highlights"] = "highlights"
    variant: str = Field(
        "exact",
        description="Positions of spots: exact (the centre of each cell) or authors (as in the paper).",
    )
    cells: int = Field(5, ge=1, le=50, description="Grid cells per side; each cell gets one spot of each size.")
    sigmas: tuple[float, ...] = Field(
        SIGMAS,
        min_length=1,
        description="Spot sizes (sigma) in pixels of the original or, with relative, as shares of its shorter side.",
    )
    relative: bool | None = Field(
        None,
        description="Sigmas are shares of the original's shorter side (default: no, except that on images below "
        f"{SMALL:.0f} pixels the default sigmas are scaled down in proportion to a 500×{SHORT_SIDE} photograph).",
    )
    strength: float = Field(1.0, gt=0, le=10, description="Peak brightness, as a multiple of the colour.")
    colour: tuple[float, float, float] = Field(
        (255.0, 255.0, 255.0), description="Colour of the light: red, green and blue, 0 to 255."
    )
    search_queries: int = Field(150, ge=1, description="Queries per image in the search for the faintest spot.")
    vary_strength: bool = Field(False, description="Let the search make spots fainter as well as smaller.")

    @model_validator(mode="after")
    def _check(self) -> HighlightOptions:
        if min(self.sigmas) <= 0:
            raise ConfigError(f"expected sigmas above 0, got {min(self.sigmas):g}")
        if self.relative and max(self.sigmas) > 1:
            raise ConfigError(
                f"expected relative sigmas as shares of the shorter side, such as 0.05; got {max(self.sigmas):g}"
            )
        if self.variants > MAX_VARIANTS:
            raise ConfigError(f"{self.variants:,} spots per image exceed {MAX_VARIANTS:,}; use fewer cells or sigmas")
        if not all(0 <= part <= 255 for part in self.colour) or max(self.colour) == 0:
            raise ConfigError(f"expected a colour of three numbers from 0 to 255, not all 0; got {self.colour}")
        if self.variant not in GRIDS:
            raise ConfigError(f"unknown grid {self.variant!r}; {nearest(self.variant, list(GRIDS))}")
        return self

    def scales_with(self, side: int) -> bool:
        """Whether the default sigmas are scaled on an image with this shorter side, because it is small."""
        return is_scaled(self.sigmas, self.relative, side)

    def sigmas_on(self, side: int) -> tuple[float, ...]:
        """Return the sizes of spots in pixels of an image with this shorter side."""
        scale = side if self.relative else side / SHORT_SIDE if self.scales_with(side) else 1
        return tuple(sigma * scale for sigma in self.sigmas)

    @property
    def variants(self) -> int:
        """Number of spots in the grid."""
        return self.cells**2 * len(self.sigmas)


OPTIONS = HighlightOptions
