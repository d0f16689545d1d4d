"""The level that each sample of a shard has reached under one step operator."""

from __future__ import annotations

from threading import Lock
from typing import Any

import torch
from torch import Tensor


class StepCache:
    """Changed images by sample, so that the next level adds one step instead of starting from the clean image.

    On a CPU the images of consecutive samples stay where the operator made them, as long as the same samples are asked for
    again: a copy would push other images out of a core's cache.
    """

    def __init__(self, inputs: Tensor) -> None:
        self.inputs = inputs
        self.operator: Any = None
        self.levels = torch.zeros(len(inputs), dtype=torch.int64)
        self._images = inputs  # a copy, once anything is written to it
        # newer ones, by their first sample and the one after the last; none overlap
        self._made: dict[tuple[int, int], Tensor] = {}
        self._lock = Lock()

    def begin(self, operator: Any) -> None:
        """Start from the clean images, unless they are under this operator already."""
        if self.operator is not operator:
            self.operator = operator
            self.levels.zero_()
            # on an accelerator at once, as batches are computed in streams that don't wait for each other
            self._images = self.inputs if self.inputs.device.type == "cpu" else self.inputs.clone()
            self._made.clear()

    def at(self, samples: Tensor, rows: Tensor | slice, wanted: Tensor) -> tuple[Tensor, Tensor]:
        """Return each sample's level and its image there; samples beyond the wanted level start again."""
        start = self.levels[samples]
        if bool((start > wanted).any()):
            self._write(rows, self.inputs[rows])
            start = torch.zeros_like(start)
        made = self._made.get((rows.start, rows.stop)) if isinstance(rows, slice) else None
        if made is None:
            self._gather()
            made = self._images[rows]
        return start, made

    def keep(self, samples: Tensor, rows: Tensor | slice, levels: Tensor, images: Tensor) -> None:
        """Store the level and the image that samples have reached. The images must not change any more."""
        if isinstance(rows, slice) and images.device.type == "cpu":
            with self._lock:
                self._made[rows.start, rows.stop] = images
        else:
            self._write(rows, images)
        self.levels[samples] = levels  # not if there was no memory for the images

    def _write(self, rows: Tensor | slice, images: Tensor) -> None:
        self._gather()
        with self._lock:
            if self._images is self.inputs:
                self._images = self.inputs.clone()
            self._images[rows] = images

    def _gather(self) -> None:
        """Copy all images to their places."""
        with self._lock:
            if self._made and self._images is self.inputs:
                self._images = self.inputs.clone()
            for (first, end), images in self._made.items():
                self._images[first:end] = images
            self._made.clear()
