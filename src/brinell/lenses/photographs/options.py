"""Options of the photographs lens."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Literal

from pydantic import Field

from brinell.config.lens import LensOptions, Preset
from brinell.lenses.photographs.presets import PRESETS


class PhotographOptions(LensOptions):
    """Options of the photographs lens, which changes nothing: only the criterion can be chosen."""

    presets: ClassVar[Mapping[str, Preset]] = PRESETS

    name: Literal["photographs"] = "photographs"
    variant: str = Field("given", description="Always given: photographs are used as they are.")


OPTIONS = PhotographOptions
