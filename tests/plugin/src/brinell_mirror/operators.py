"""An operator: dark scan lines."""

from __future__ import annotations

from torch import Tensor

from brinell.perturb.operator import Facts, level_operator

_FACTS = Facts(
    "scan lines", "% darker", lambda level, height, width: 2 * level, "global", "pixel", source="brinell's tests"
)


@level_operator("scan_lines", _FACTS, variant="every_other")
def scan_lines(images: Tensor, levels: Tensor) -> Tensor:
    """Darken every other row by two percent per level."""
    made = images.clone()
    rows = made[:, :, ::2].to(images.dtype)
    kept = (100 - 2 * levels)[:, None, None, None]
    made[:, :, ::2] = (rows.int() * kept // 100).to(images.dtype)
    return made
