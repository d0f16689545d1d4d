"""Options of the mirror lens."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from brinell.config.lens import LensOptions

Axis = Literal["horizontal", "vertical"]
AXES: tuple[Axis, ...] = ("horizontal", "vertical")


class MirrorOptions(LensOptions):
    """Options of the mirror lens."""

    name: Literal["mirror"] = "mirror"
    axes: tuple[Axis, ...] = Field(AXES, description="Axes to mirror images along.")


OPTIONS = MirrorOptions
