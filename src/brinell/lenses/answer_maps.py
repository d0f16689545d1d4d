"""Answers at a grid of positions over an original, for lenses that ask about places; the viewer draws them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

BINS = 10  # of a confidence
RIGHT_OR_WRONG = ("wrong", "right")


@dataclass(frozen=True)
class Layer:
    """One map: for each position, row by row, an index into `words`; None where nothing is known."""

    name: str
    words: tuple[str, ...]
    values: list[list[int | None]]


@dataclass(frozen=True)
class AnswerMap:
    """A model's answers at positions `xs` × `ys` (pixels of the original) under changes of one size.

    `size` is what a slider selects, and `extent` how wide a change is in pixels. `parameters` replay a position: numbers,
    or "x", "y", "left" and "top", which stand for its own.
    """

    operator: str
    title: str
    size: float
    xs: list[float]
    ys: list[float]
    extent: float
    parameters: tuple[float | str, ...]
    predictions: list[list[int | None]]
    confidences: list[list[float | None]]
    layers: tuple[Layer, ...]


def confidence_layer(confidence: Any, bins: int = BINS) -> Layer:
    """Return confidences, (ys, xs) with NaN where unknown, in steps."""
    steps = np.floor(np.asarray(confidence, np.float64) * bins).clip(0, bins - 1)
    words = tuple(f"{100 * step // bins}–{100 * (step + 1) // bins} %" for step in range(bins))
    values = [[None if np.isnan(step) else int(step) for step in row] for row in steps]
    return Layer("confidence", words, values)
