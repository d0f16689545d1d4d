"""Makes images: a shard of samples under any change. It knows no model; changes that follow gradients get a function."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property

import torch
from torch import Tensor

from brinell.engine.moving import MovingImages
from brinell.models.preprocess import Preprocess
from brinell.perturb.change import Change, Gradient, Layout
from brinell.perturb.steps import StepCache
from brinell.resizing.repaint import Repainter

Differentiate = Callable[[Tensor, Tensor], Tensor]  # images and labels to the gradient of the loss


class Renderer:
    """Renders samples: model inputs (uint8 (N, C, H, W)) and, for changes of originals, the originals themselves.

    `ids` (int64 (N,)) and `seed` name the random draws. `labels` and `differentiate` are for white-box operators.
    """

    def __init__(
        self,
        preprocess: Preprocess,
        inputs: Tensor,
        ids: Tensor,
        *,
        seed: int,
        originals: Sequence[Tensor] = (),
        device: torch.device | None = None,
    ) -> None:
        self.device = device or inputs.device
        self.preprocess = preprocess
        self.inputs = inputs.to(self.device)
        self.originals = [original.to(self.device) for original in originals]
        self.ids = ids.to(self.device)
        self.seed = seed
        self.steps = StepCache(self.inputs)
        self._labels: Tensor | None = None
        self._differentiate: Differentiate | None = None
        self._repaintings: dict[int, Repainter] = {}

    def follow(self, labels: Tensor, differentiate: Differentiate | None) -> None:
        """Let white-box operators follow the gradient of a model's loss at these labels."""
        self._labels, self._differentiate = labels.to(self.device), differentiate

    def images(self, change: Change, samples: Tensor, parameters: Tensor, fields: Tensor | None = None) -> Tensor:
        """Return samples under a change as model inputs (T, C, H, W), uint8 or, if the change is not `whole`, floats."""
        change.prepare(self, samples)
        return change.images(self, samples, parameters, fields)

    def layout(self, samples: Tensor) -> Layout:
        """Return where the originals of samples lie on the model input."""
        sizes = [tuple(self.originals[sample].shape[1:]) for sample in samples.tolist()] if self.originals else []
        return Layout(self.preprocess, sizes)

    @cached_property
    def moving(self) -> MovingImages:
        """The originals, ready to be moved; whole where the model crops."""
        wholes = [self.preprocess.resize(original[None])[0] for original in self.originals]
        return MovingImages(self.preprocess, wholes or list(self.inputs), self.device)

    def repainting(self, sample: int) -> Repainter:
        """Return an original that is ready to be changed locally."""
        if sample not in self._repaintings:
            self._repaintings[sample] = self.preprocess.repainter(self.originals[sample])
        return self._repaintings[sample]

    def gradient(self, rows: Tensor | slice) -> Gradient | None:
        """Return the loss gradient at the samples of some rows, where a model provides it."""
        labels, differentiate = self._labels, self._differentiate
        if labels is None or differentiate is None:
            return None
        return lambda images, which: differentiate(images, labels[rows][which])
