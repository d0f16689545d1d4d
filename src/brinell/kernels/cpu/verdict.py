"""A kernel that reads predictions and ranks off probabilities, in one pass over each image's."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from brinell.kernels.cpu.compiled import kernel


@kernel
def _read(probabilities, labels, found, values):  # type: ignore[no-untyped-def]  # Numba infers types
    """Write predictions and ranks to `found` (2, N), and the probabilities of predictions and labels to `values` (2, N)."""
    for image in range(len(probabilities)):
        row, label = probabilities[image], labels[image]
        if not 0 <= label < len(row):
            raise IndexError("a label is none of the outputs")
        own, best, prediction, rank = row[label], row[0], 0, 0
        for place in range(len(row)):
            value = row[place]
            if value > best or (math.isnan(value) and not math.isnan(best)):
                best, prediction = value, place
            rank += value > own or (value == own and place < label)
        found[0, image], found[1, image] = prediction, rank
        values[0, image], values[1, image] = best, own


def verdict(probabilities: Tensor, labels: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return predictions, their confidence, and the ranks and probabilities of labels (N,), for float32 (N, K)."""
    assert len(labels) == len(probabilities)
    found, values = np.empty((2, len(labels)), np.int64), np.empty((2, len(labels)), np.float32)
    _read(probabilities.contiguous().numpy(), labels.contiguous().numpy(), found, values)
    (prediction, rank), (confidence, own) = torch.from_numpy(found), torch.from_numpy(values)
    return prediction, confidence, rank, own
