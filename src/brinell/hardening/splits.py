"""Who is trained on, who is looked at meanwhile and who is measured in the end: pure functions of ids and classes.

What is divided are originals, so all versions of one are in one part. Their order is a draw named by the seed and the
original's id: it depends neither on files nor on who else is there.
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


def divided(
    classes: Mapping[str, int], shares: tuple[float, float, float], seed: int, *, pool: bool = False
) -> dict[str, Part]:
    """The part of each original, whose class is given by its id: as the shares say, in each class.

    A class has at least one original in every part that has a share. Classes that are too small for it are refused, or
    `pool`ed and divided as if they were one.
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
            f"with {count}; give more images, or divide small classes together with parts.small_classes=pool"
        )
    for number in small:
        pooled += members.pop(number)
    if pooled and len(pooled) < needed:
        pooled += members.pop(max(members, key=lambda n: (len(members[n]), n))) if members else []
    if 0 < len(pooled) < needed:
        raise DataError(f"{len(pooled)} originals are too few for {needed} parts; give more images")
    found: dict[str, Part] = {}
    for own in [*members.values(), pooled] if pooled else members.values():
        order = _drawn(own, seed)
        counts = part_sizes(len(order), shares)
        names = [part for part, count in zip(PARTS, counts, strict=True) for _ in range(count)]
        found |= dict(zip(order, names, strict=True))
    return {original: found[original] for original in classes}


def part_sizes(count: int, shares: tuple[float, float, float]) -> tuple[int, int, int]:
    """How many of so many originals each part gets: rounded shares, one at least; training has the rest."""
    validation, test = (max(1, round(share * count)) if share > 0 else 0 for share in shares[1:])
    while validation + test >= count > 1:
        validation, test = (validation - 1, test) if validation > test else (validation, test - 1)
    return count - validation - test, validation, test


def _drawn(originals: list[str], seed: int) -> list[str]:
    """Originals in an order that is drawn."""
    ids = torch.tensor([id_number(original) for original in originals], dtype=torch.int64)
    bits = Draws.of(key("parts", seed), ids).bits(0, 1)[:, 0].tolist()
    return [original for _, original in sorted(zip(bits, originals, strict=True))]
