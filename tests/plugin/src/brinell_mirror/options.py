"""Options of the mirror lens."""

from __future__ import annotations

from typing import Literal

from brinell.config.lens import LensOptions
from pydantic import Field

AXES = ("horizontal", "vertical")


class MirrorOptions(LensOptions):
    """Options of the mirror lens."""

    name: Literal["mirror"] = "mirror"
    axes: tuple[Literal["horizontal", "vertical"], ...] = Field(AXES, description="Axes to mirror images along.")


OPTIONS = MirrorOptions
