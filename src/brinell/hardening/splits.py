"""Split originals into training, validation and test: pure functions of ids and classes.

All images made from an original are in its part. The order is a draw named by the seed and the original's id; it depends on
neither file names nor other originals.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Literal

import torch

from brinell.draws import Draws, key
from brinell.errors import DataError
from brinell.types import id_number

Part = Literal["train", "validation", "test"]
PARTS: tuple[Part, ...] = ("train", "validation", "test")


def split_originals(
    classes: Mapping[str, int], shares: tuple[float, float, float], seed: int, *, pool: bool = False
) -> dict[str, Part]:
    """Return the part of each original, by shares of each class; `classes` maps ids of originals to classes.

    A class has at least one original in every part with a share. Classes that are too small for that are refused, or
    with `pool` split together.
    """
    members: dict[int, list[str]] = defaultdict(list)
    for original, number in classes.items():
        members[number].append(original)
    needed = sum(share > 0 for share in shares)
    small = sorted((number for number, own in members.items() if len(own) < needed), key=lambda n: (len(members[n]), n))
    pooled: list[str] = []
    if small and not pool:
        count = len(members[small[0]])
        raise DataError(
            f"{len(small)} of {len(members)} classes have too few originals for {needed} parts, such as class {small[0]} "
            f"with {count}; add images, or split small classes together with parts.small_classes=pool"
        )
    for number in small:
        pooled += members.pop(number)
    if pooled and len(pooled) < needed:
        pooled += members.pop(max(members, key=lambda n: (len(members[n]), n))) if members else []
    if 0 < len(pooled) < needed:
        raise DataError(f"{len(pooled)} originals are too few for {needed} parts; add images")
    found: dict[str, Part] = {}
    for own in [*members.values(), pooled] if pooled else members.values():
        order = _shuffle(own, seed)
        counts = part_sizes(len(order), shares)
        names = [part for part, count in zip(PARTS, counts, strict=True) for _ in range(count)]
        found |= dict(zip(order, names, strict=True))
    return {original: found[original] for original in classes}


def part_sizes(count: int, shares: tuple[float, float, float]) -> tuple[int, int, int]:
    """Return how many of `count` originals each part gets: rounded shares, at least one; training gets the rest."""
    validation, test = (max(1, round(share * count)) if share > 0 else 0 for share in shares[1:])
    while validation + test >= count > 1:
        validation, test = (validation - 1, test) if validation > test else (validation, test - 1)
    return count - validation - test, validation, test


def _shuffle(originals: list[str], seed: int) -> list[str]:
    """Return originals in a random order."""
    ids = torch.tensor([id_number(original) for original in originals], dtype=torch.int64)
    bits = Draws.of(key("parts", seed), ids).bits(0, 1)[:, 0].tolist()
    return [original for _, original in sorted(zip(bits, originals, strict=True))]
