"""Options of the photographs lens."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from brinell.config.lens import LensOptions


class PhotographOptions(LensOptions):
    """Options of the photographs lens, which changes nothing: only the criterion can be chosen."""

    name: Literal["photographs"] = "photographs"
    variant: str = Field("given", description="Always given: photographs are used as they are.")


OPTIONS = PhotographOptions
