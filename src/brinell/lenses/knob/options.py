"""Options of the knob lens."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from brinell.config.lens import LensOptions

Distance = Literal["mse", "mae", "l1", "l2", "linf", "l0", "changed"]


class KnobOptions(LensOptions):
    """Options of the knob lens."""

    name: Literal["knob"] = "knob"
    variant: str = Field(
        "dsn2020", description="Variant of properties: dsn2020 (the paper's figures) or equations (the paper's text)."
    )
    search: Literal["exact", "bracket", "bands"] = Field(
        "exact",
        description="exact: the first point of the grid that breaks; bracket: doubling, then bisection, with few queries "
        "(assumes that a broken model stays broken); bands: the whole grid and every interval that breaks.",
    )
    points: int | None = Field(
        None, ge=1, le=30_000, description="Grid points per direction (default: as many as in the paper)."
    )
    resample: bool = Field(
        False, description="Draw random properties afresh at every point, as the paper does, instead of scaling one field."
    )
    distance: Distance = Field("mse", description="Distance that decides which of two directions is the smaller change.")
    frost: str | None = Field(None, description="Photograph of frost to use instead of generated frost.")


OPTIONS = KnobOptions
