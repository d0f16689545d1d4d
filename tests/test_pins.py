"""What CI installs by hashes are the versions that are pinned."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_hashed_constraints_are_the_pinned_versions() -> None:
    pinned = re.findall(r"^[^#\s].*$", (ROOT / "constraints.txt").read_text(encoding="utf-8"), re.M)
    hashed = (ROOT / "constraints-hashed.txt").read_text(encoding="utf-8")
    assert re.findall(r"^([^#\s]+==[^\s\\]+)", hashed, re.M) == pinned, "give python .ci/hashes.py again"
    for block in re.split(r"\n(?=\S)", hashed)[1:]:
        assert re.findall(r"--hash=sha256:[0-9a-f]{64}\b", block), block
