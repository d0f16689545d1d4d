"""Maps of answers as small files: 8 bits a window for the confidence, 8 for the rank, one for right or wrong."""

from __future__ import annotations

import io
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from brinell.lenses.fragility.fragile import Answers
from brinell.lenses.fragility.windows import Grid

LEVELS = 255  # of confidence, and the largest rank that is told from others
NOTHING = 65_535  # the label of a window in which a detector finds nothing


@dataclass(frozen=True)
class Maps:
    """What is kept of one image at one size of windows: the answers to them and to the shrunken ones, if any."""

    large: Answers
    small: Answers | None
    stride: int


def packed(maps: Maps) -> bytes:
    """Maps as a compressed NumPy file (.npz)."""
    arrays: dict[str, np.ndarray] = {"stride": np.array(maps.stride)}
    for name, answers in (("large", maps.large), ("small", maps.small)):
        if answers is not None:
            arrays |= {
                f"{name}_side": np.array(answers.grid.side, np.int32),
                f"{name}_tops": answers.grid.tops.numpy().astype(np.int32),
                f"{name}_lefts": answers.grid.lefts.numpy().astype(np.int32),
                f"{name}_correct": np.packbits(answers.correct.numpy(), axis=1),
                f"{name}_confidence": quantised(answers.confidence).numpy(),
                f"{name}_rank": answers.rank.numpy().astype(np.uint8),
                f"{name}_label": np.where(answers.label.numpy() < 0, NOTHING, answers.label.numpy()).astype(np.uint16),
            }
    sink = io.BytesIO()
    np.savez_compressed(sink, **arrays)  # type: ignore[arg-type]
    return sink.getvalue()


def unpacked(data: bytes) -> Maps:
    """Maps from such a file."""
    with np.load(io.BytesIO(data)) as arrays:
        small = _answers(arrays, "small") if "small_side" in arrays else None
        return Maps(_answers(arrays, "large"), small, int(arrays["stride"]))


def quantised(confidence: Tensor) -> Tensor:
    """Probabilities as bytes."""
    return (confidence * LEVELS).round().to(torch.uint8)


def _answers(arrays: np.lib.npyio.NpzFile, name: str) -> Answers:
    tops, lefts = (torch.from_numpy(arrays[f"{name}_{side}"].astype(np.int64)) for side in ("tops", "lefts"))
    label = arrays[f"{name}_label"].astype(np.int64)
    return Answers(
        Grid(int(arrays[f"{name}_side"]), tops, lefts),
        torch.from_numpy(np.unpackbits(arrays[f"{name}_correct"], axis=1, count=len(lefts)).astype(bool)),
        torch.from_numpy(np.where(label == NOTHING, -1, label)),
        torch.from_numpy(arrays[f"{name}_confidence"].astype(np.float32) / LEVELS),
        torch.from_numpy(arrays[f"{name}_rank"]),
    )
