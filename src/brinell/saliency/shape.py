"""What the findings about saliency look like as JSON."""

from __future__ import annotations

from brinell.saliency.findings import ShiftRate

SHAPE = {
    "options": {str: object},
    "layers": {str: str},
    "without": {str: str},
    "verdicts": {str: str},
    "shifts": [ShiftRate],
}
