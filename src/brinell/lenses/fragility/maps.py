"""Maps of answers as small files: one byte per window for the confidence, one for the rank, one bit for right or wrong.

Under a budget the confidences are stored as they are: a larger one counts from them what the full run would have counted.
"""

from __future__ import annotations

import io
from dataclasses import dataclass, replace
from urllib.parse import quote

import numpy as np
from numpy.typing import NDArray

from brinell.lenses.fragility.fragile import WindowAnswers
from brinell.lenses.fragility.windows import Array, Mask, Neighbourhood, WindowGrid
from brinell.runs.run import Run

LEVELS = 255  # of confidence; also the largest rank that is stored
NOTHING = 65_535  # stored label of a window in which a detector finds nothing


@dataclass(frozen=True)
class Maps:
    """What is stored for one image and size of windows: the answers on the windows and, if any, on the shrunken ones.

    `chosen` are the windows that a budget chose to judge, as a map; None: all.
    """

    large: WindowAnswers
    small: WindowAnswers | None
    stride: int
    chosen: Mask | None = None

    def windows(self, height: int, width: int) -> Neighbourhood:
        """Return the windows that were judged, in an image of a height and width."""
        return replace(Neighbourhood.of(self.large.grid.side, height, width, self.stride), chosen=self.chosen)


def pack(maps: Maps) -> bytes:
    """Return maps as a compressed NumPy file (.npz)."""
    arrays: dict[str, Array] = {"stride": np.array(maps.stride)}
    if maps.chosen is not None:
        arrays |= {"chosen": np.packbits(maps.chosen, axis=1), "chosen_lefts": np.array(maps.chosen.shape[1], np.int32)}
    for name, answers in (("large", maps.large), ("small", maps.small)):
        if answers is not None:
            arrays |= {
                f"{name}_side": np.array(answers.grid.side, np.int32),
                f"{name}_tops": answers.grid.tops.astype(np.int32),
                f"{name}_lefts": answers.grid.lefts.astype(np.int32),
                f"{name}_correct": np.packbits(answers.correct, axis=1),
                f"{name}_confidence": quantise(answers.confidence) if answers.known is None else answers.confidence,
                f"{name}_rank": answers.rank.astype(np.uint8),
                f"{name}_label": np.where(answers.label < 0, NOTHING, answers.label).astype(np.uint16),
            }
            if answers.known is not None:
                arrays[f"{name}_known"] = np.packbits(answers.known, axis=1)
    sink = io.BytesIO()
    np.savez_compressed(sink, **arrays)  # type: ignore[arg-type]
    return sink.getvalue()


def unpack(data: bytes) -> Maps:
    """Return the maps in such a file."""
    with np.load(io.BytesIO(data)) as arrays:
        small = _read_answers(arrays, "small") if "small_side" in arrays else None
        chosen = _read_mask(arrays["chosen"], int(arrays["chosen_lefts"])) if "chosen" in arrays else None
        return Maps(_read_answers(arrays, "large"), small, int(arrays["stride"]), chosen)


def read_maps(run: Run, model: str, operator: str, image: str) -> Maps:
    """Return a model's answers on all windows of a size ("windows:0.2") of an image (its id in the rows)."""
    return unpack(run.store.read(*map_file(model, operator, image)))


def map_file(model: str, operator: str, image: str) -> tuple[str, ...]:
    """Return the path of these maps in the run's folder."""
    return "fragility", quote(model, safe=""), quote(operator, safe=""), f"{image}.npz"


def quantise(confidence: Array) -> NDArray[np.uint8]:
    """Return probabilities as bytes; unknown ones (NaN) are 0."""
    levels: NDArray[np.uint8] = np.nan_to_num((confidence * LEVELS).round()).astype(np.uint8)
    return levels


def _read_answers(arrays: np.lib.npyio.NpzFile, name: str) -> WindowAnswers:
    tops, lefts = (arrays[f"{name}_{side}"].astype(np.int64) for side in ("tops", "lefts"))
    label = arrays[f"{name}_label"].astype(np.int64)
    known = _read_mask(arrays[f"{name}_known"], len(lefts)) if f"{name}_known" in arrays else None
    confidence = arrays[f"{name}_confidence"]
    return WindowAnswers(
        WindowGrid(int(arrays[f"{name}_side"]), tops, lefts),
        _read_mask(arrays[f"{name}_correct"], len(lefts)),
        np.where(label == NOTHING, -1, label),
        confidence.astype(np.float32) / LEVELS if known is None else confidence,
        arrays[f"{name}_rank"],
        known,
    )


def _read_mask(packed: Array, lefts: int) -> Mask:
    return np.unpackbits(packed, axis=1, count=lefts).astype(bool)
