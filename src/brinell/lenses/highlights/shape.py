"""What the findings of the highlights lens look like as JSON."""

from __future__ import annotations

from brinell.lenses.highlights.glare import AnyModel, Glare
from brinell.lenses.highlights.light import LeastLight

SHAPE = {"verdicts": {str: str}, "grids": [Glare], "least": [LeastLight], "any_model": {str: AnyModel}}
