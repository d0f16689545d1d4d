"""The 1000 ImageNet classes (imagenet.txt: WordNet id and lemmas, in index order; WordNet 3.0, Princeton University)."""

from __future__ import annotations

from functools import cache
from importlib.resources import files

from brinell.classes import Classes


@cache
def imagenet_classes() -> Classes:
    """Return the class list of ImageNet, with WordNet ids."""
    text = files("brinell.models").joinpath("imagenet.txt").read_text(encoding="utf-8")
    pairs = [line.split("\t") for line in text.splitlines()]
    return Classes(tuple(name for _, name in pairs), tuple(identity for identity, _ in pairs))
