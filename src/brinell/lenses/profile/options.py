"""Options of the profile lens."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Literal

from pydantic import Field

from brinell.config.lens import LensOptions, Preset
from brinell.lenses.profile.presets import PRESETS


class ProfileOptions(LensOptions):
    """Options of the profile lens."""

    presets: ClassVar[Mapping[str, Preset]] = PRESETS

    name: Literal["profile"] = "profile"
    levels: int = Field(30, ge=1, le=30, description="Number of levels of degradation, 1 to 30.")


OPTIONS = ProfileOptions
