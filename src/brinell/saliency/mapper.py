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

from brinell.config.saliency import CamMethod
from brinell.errors import ModelError
from brinell.models.model import Internals, Model
from brinell.models.probe import probe_images
from brinell.saliency.cam import WEIGHTS, class_activation
from brinell.saliency.layers import Layer, NoSaliency, find_layer


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
        self._local.active, self._local.output = True, None
        try:
            with torch.inference_mode(False), torch.enable_grad():
                scores = self.internals.scores(self.model.preprocess.normalise(inputs)).to(torch.float32)
                output: Tensor = self._local.output
                total = scores.gather(1, classes[:, None]).sum()
                # None where the layer doesn't influence the scores
                gradient: Tensor | None = torch.autograd.grad(total, output, allow_unused=True)[0]
        finally:
            self._local.active, self._local.output = False, None
        if gradient is None:
            gradient = torch.zeros_like(output)
        activations, gradients = (self.layer.to_maps(each.detach().to(torch.float32)) for each in (output, gradient))
        return class_activation(activations, WEIGHTS[self.method](activations, gradients), *inputs.shape[2:])

    def _capture(self, _: nn.Module, __: Any, output: Tensor) -> Tensor | None:
        """Keep the layer's output in this thread, and continue with a copy that starts a new graph."""
        if not getattr(self._local, "active", False):
            return None
        self._local.output = output.detach().requires_grad_()
        copied: Tensor = self._local.output.clone()  # later modules may overwrite it
        return copied


def open_mapper(model: Model, method: CamMethod = "gradcam++", layer: str | None = None) -> SaliencyMapper:
    """Return a model's saliency mapper, or raise `NoSaliency` with the reason why it has none."""
    if model.internals is None:
        raise NoSaliency("it is not a torch model")
    images = model.preprocess.normalise(probe_images(model.preprocess).to(model.device))
    try:
        found = find_layer(model.internals.module, model.internals.scores, images, layer)
    except ModelError as error:
        raise NoSaliency(str(error)) from None
    return SaliencyMapper(model, model.internals, found, method)
