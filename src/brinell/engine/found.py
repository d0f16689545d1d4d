"""What is known about a shard's images before models are queried, and what is found by a query."""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

from torch import Tensor

from brinell.boxes import Detections
from brinell.criteria.criterion import Answer


@dataclasses.dataclass(frozen=True)
class Known:
    """What is known about a shard's objects: `regions` (N, 4) where the labelled object lies on the model input, NaN where
    the detector has to find it; `boxes` (N, 4) in the pixels of the originals; `masks` (N, H, W) of a segmenter's inputs,
    without which its answers to the clean images count as true.
    """

    regions: Tensor | None = None
    boxes: Tensor | None = None
    masks: Tensor | None = None


class Found(NamedTuple):
    """What a model says about images, and a detector's detections, a segmenter's masks or an embedder's vectors."""

    answer: Answer
    detections: Detections | None = None
    masks: Tensor | None = None
    vectors: Tensor | None = None
