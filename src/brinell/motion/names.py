"""Names of the groups of image motions and of their coordinates, and motions in words. No torch: reports import this."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from brinell.registry import Registry


@dataclass(frozen=True)
class GroupFacts:
    """What reports know about a group of motions; `parts` names its coordinates."""

    name: str
    title: str
    short: str
    parts: tuple[str, ...]

    @property
    def dimension(self) -> int:
        """The number of coordinates."""
        return len(self.parts)


GROUP_FACTS: Registry[GroupFacts] = Registry("group")

for _facts in (
    GroupFacts("rotation", "rotation", "R", ("rotation",)),
    GroupFacts("translation", "translation", "T", ("x", "y")),
    GroupFacts("rotation_scale", "rotation and scale", "R+S", ("rotation", "scale")),
    GroupFacts("rotation_translation", "rotation and translation", "R+T", ("rotation", "x", "y")),
    GroupFacts("scale_translation", "scale and translation", "S+T", ("x", "y", "scale")),
    GroupFacts("similarity", "similarity", "T+R+S", ("rotation", "x", "y", "scale")),
    GroupFacts("affine", "affine", "affine", ("rotation", "x", "y", "scale", "stretch", "shear")),
    GroupFacts("projective", "projective", "projective", ("b11", "b12", "x", "b21", "b22", "y", "b31", "b32")),
):
    GROUP_FACTS.add(_facts.name, _facts)


def describe(group: GroupFacts, motion: Sequence[float]) -> str:
    """Describe a motion by its coordinates, as the image moves: "12° clockwise, 3.1 px right, 0.5 px up, × 1.08".

    Motions are inverse maps (see `brinell.motion.groups`), so the image moves opposite to its coordinates.
    """
    named = dict(zip(group.parts, motion, strict=True))
    if group.name == "projective":
        return ", ".join(f"{part} {value:.2g}" for part, value in named.items())
    words = []
    if "rotation" in named:
        degrees = -named["rotation"] * 180 / math.pi
        words.append(f"{round(abs(degrees), 1):g}° {'clockwise' if degrees > 0 else 'anticlockwise'}")
    for part, ways in (("x", ("left", "right")), ("y", ("up", "down"))):
        if part in named:
            words.append(f"{round(abs(named[part]), 2):g} px {ways[0] if named[part] > 0 else ways[1]}")
    if "scale" in named:
        words.append(f"× {math.exp(-named['scale']):.3g}")
    for part in ("stretch", "shear"):
        if part in named:
            words.append(f"{part} {-named[part]:.2g}")
    return ", ".join(words)
