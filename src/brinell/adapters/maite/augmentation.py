"""Operators as MAITE's augmentations, for classification and detection."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from brinell.adapters.maite.datasets import Target
from brinell.boxes import areas
from brinell.perturb.perturbation import Perturbation, apply

Batch = tuple[Sequence[Any], Sequence[Any], Sequence[Mapping[str, Any]]]


class Augmentation:
    """An operator at one severity as an augmentation: `maite.tasks.evaluate(…, augmentation=Augmentation("fog", 0.4))`.

    Images (C, H, W) are uint8 or floats in [0, 1]. Geometric operators move the boxes of detection targets, and drop those
    that leave the image. Each datum's metadata says what was done, under the key `brinell`.
    """

    def __init__(self, operator: str, severity: float, *, seed: int = 0) -> None:
        self.perturbation = Perturbation(operator, severity, seed)
        self.perturbation.parameters(1, 32, 32)  # a wrong name or severity is reported here
        change = self.perturbation.change
        self.facts = {"operator": change.id, "severity": severity, "seed": seed}
        self.metadata = {"id": f"brinell/{change.id}/{severity:g}"}

    def __call__(self, batch: Batch, /) -> Batch:
        """Return a batch under the operator."""
        inputs, targets, metadata = batch
        given = [one if isinstance(one, (Tensor, np.ndarray)) else np.asarray(one) for one in inputs]
        perturbation = self.perturbation
        images = apply(given, perturbation.operator, perturbation.severity, seed=perturbation.seed, layout="CHW")
        sizes = [tuple(one.shape[1:]) for one in given]
        moved = [self._target(target, *size) for target, size in zip(targets, sizes, strict=True)]
        return images, moved, [{**datum, "brinell": self.facts} for datum in metadata]

    def _target(self, target: Any, height: int, width: int) -> Any:
        if not hasattr(target, "boxes") or self.perturbation.matrices(1, height, width) is None:
            return target
        boxes = torch.as_tensor(np.asarray(target.boxes), dtype=torch.float32).reshape(-1, 4)
        placed = self.perturbation.boxes(boxes, height, width)
        kept = (areas(placed) > 0).numpy()
        return Target(placed.numpy()[kept], np.asarray(target.labels)[kept], np.asarray(target.scores)[kept])
