"""What the findings of the photographs lens look like as JSON."""

from __future__ import annotations

from brinell.lenses.photographs.findings import Scenes

SHAPE = {"verdicts": {str: str}, "scenes": [Scenes], "unpaired": int}
