"""Options of the profile lens."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from brinell.config.lens import LensOptions


class ProfileOptions(LensOptions):
    """Options of the profile lens."""

    name: Literal["profile"] = "profile"
    levels: int = Field(30, ge=1, le=30, description="Number of levels of degradation, 1 to 30.")


OPTIONS = ProfileOptions
