"""Computes saliency maps: images to maps, in batches on the model's device.

The layer's output is detached from what produced it, so gradients flow from the scores back to the layer and no further: a
map costs little more than a forward pass.
"""

from __future__ import annotations

import threading
from types import TracebackType
from typing import Any

import torch
from torch import Tensor, nn

from brinell.config.saliency import CamMethod, SaliencyOptions
from brinell.errors import ModelError
from brinell.models.model import Internals, Model
from brinell.models.probe import probe_images
from brinell.saliency.box_layers import find_box_layer
from brinell.saliency.cam import WEIGHTS, class_activation
from brinell.saliency.layers import Layer, NoSaliency, find_layer
from brinell.saliency.targets import select_boxes


class SaliencyMapper:
    """Maps of one layer of a model, within a `with` block. Threads may share it."""

    def __init__(self, model: Model, insides: Internals, layer: Layer, method: CamMethod) -> None:
        self.model, self.internals, self.layer, self.method = model, insides, layer, method
        self._local = threading.local()
        self._hook: Any = None

    def __enter__(self) -> SaliencyMapper:
        self._hook = self.layer.module.register_forward_hook(self._capture)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._hook.remove()

    def maps(self, inputs: Tensor, classes: Tensor) -> Tensor:
        """Return maps for these classes, float32 (N, H, W) in 0..1; model inputs on the model's device, uint8 or floats."""
        return self.box_maps(inputs, classes)[0]

    def box_maps(self, inputs: Tensor, classes: Tensor, near: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Return the same, and the boxes (N, 4) that a detector's maps are of: `select_boxes` says which; else NaN."""
        self._local.active, self._local.output = True, None
        try:
            with torch.inference_mode(False), torch.enable_grad(), self.model.own_precision():
                scores, boxes = self._scores(self.model.preprocess.normalise(inputs), classes, near)
                output: Tensor = self._local.output
                gradient: Tensor | None = None  # the layer doesn't influence the scores
                if scores.requires_grad:
                    gradient = torch.autograd.grad(scores.sum(), output, allow_unused=True)[0]
        finally:
            self._local.active, self._local.output = False, None
        if gradient is None:
            gradient = torch.zeros_like(output)
        activations, gradients = (self.layer.to_maps(each.detach().to(torch.float32)) for each in (output, gradient))
        return class_activation(activations, WEIGHTS[self.method](activations, gradients), *inputs.shape[2:]), boxes

    def _scores(self, images: Tensor, classes: Tensor, near: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return the score that each image's map is of, (N,), and a detector's box."""
        internals = self.internals
        if internals.boxes is not None:
            return select_boxes(internals.boxes(images), classes, near, *images.shape[2:])
        assert internals.scores is not None
        scores = internals.scores(images).to(torch.float32)
        return scores.gather(1, classes[:, None])[:, 0], images.new_full((len(images), 4), torch.nan)

    def _capture(self, _: nn.Module, __: Any, output: Tensor) -> Tensor | None:
        """Keep the layer's output in this thread, and continue with a copy that starts a new graph."""
        if not getattr(self._local, "active", False):
            return None
        self._local.output = output.detach().requires_grad_()
        copied: Tensor = self._local.output.clone()  # later modules may overwrite it
        return copied


def open_mapper(model: Model, method: CamMethod | None = None, layer: str | None = None) -> SaliencyMapper:
    """Return a model's saliency mapper, or raise `NoSaliency` with the reason why it has none.

    Without a method, the default one for its task.
    """
    internals = model.internals
    if internals is None:
        raise NoSaliency("it is not a torch model, so it has no gradients")
    images = model.preprocess.normalise(probe_images(model.preprocess).to(model.device))
    try:
        if internals.boxes is not None:
            found = find_box_layer(internals.module, internals.boxes, images, layer)
        else:
            assert internals.scores is not None
            found = find_layer(internals.module, internals.scores, images, layer)
    except ModelError as error:
        raise NoSaliency(str(error)) from None
    return SaliencyMapper(model, internals, found, method or SaliencyOptions().method_of(model.task))
