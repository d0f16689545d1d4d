"""The lens's stored pictures: photographs under their maps, and pairs of windows with the model's answers."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from brinell.marks import Mark, read_marks
from brinell.runs.store import Store

FILE = ("fragility", "exhibits.json")


@dataclass(frozen=True)
class Photo:
    """A photograph that maps are laid over; height and width are the original's. `marks` are a detector's boxes."""

    image: str
    name: str
    file: str
    height: int
    width: int
    marks: tuple[Mark, ...] = ()


@dataclass(frozen=True)
class WindowPicture:
    """A window as the model saw it, and the answer: prediction, its confidence and the true class's probability.

    Confidence and probability are None for a model that returns labels alone. `marks` are a detector's boxes.
    """

    file: str
    prediction: int
    confidence: float | None
    probability: float | None
    marks: tuple[Mark, ...] = ()


@dataclass(frozen=True)
class PairPicture:
    """Two windows one move apart, and why the second is wrong, if the predictions don't say it.

    `tag` is "median" for the typical pair, next to those with the largest drops. `layers` are pictures of activations:
    (layer, first, second).
    """

    model: str
    operator: str
    move: str  # shift or shrink
    image: str
    label: int
    caption: str
    first: WindowPicture
    second: WindowPicture
    layers: tuple[tuple[str, str, str], ...] = ()
    reason: str = ""
    tag: str = ""


@dataclass(frozen=True)
class WindowExhibits:
    """All pictures of the lens: photographs by model, and pairs."""

    photos: dict[str, list[Photo]] = field(default_factory=dict)
    pairs: Sequence[PairPicture] = ()


def write_window_exhibits(store: Store, exhibits: WindowExhibits) -> None:
    """Store the list of pictures, which are stored already."""
    store.write(json.dumps(asdict(exhibits)).encode(), *FILE)


def read_window_exhibits(store: Store) -> WindowExhibits:
    """Return the stored pictures; none if the run has no pictures."""
    if not store.exists(*FILE):
        return WindowExhibits()
    content = store.read_json(*FILE)
    photos = {model: [_read_photo(photo) for photo in own] for model, own in content["photos"].items()}
    pairs = []
    for record in content["pairs"]:
        first, second = (_read_window(record.pop(name)) for name in ("first", "second"))
        pairs.append(PairPicture(**record | {"layers": tuple(map(tuple, record["layers"]))}, first=first, second=second))
    return WindowExhibits(photos, pairs)


def _read_window(record: dict[str, Any]) -> WindowPicture:
    return WindowPicture(**record | {"marks": read_marks(record.get("marks", ()))})


def _read_photo(record: dict[str, Any]) -> Photo:
    return Photo(**record | {"marks": read_marks(record.get("marks", ()))})
