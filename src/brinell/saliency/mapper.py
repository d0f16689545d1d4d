"""A model that can be looked into: images to heat maps, batched, on its device.

The layer's output is cut off from what made it, so gradients are computed from the answer back to the layer and no further:
a map costs a forward pass and little more.
"""

from __future__ import annotations

import threading
from types import TracebackType
from typing import Any

import torch
from torch import Tensor, nn

from brinell.config.saliency import Method
from brinell.errors import ModelError
from brinell.models.model import Internals, Model
from brinell.models.probe import probe_images
from brinell.saliency.cam import WEIGHTS, class_activation
from brinell.saliency.layers import Layer, NoAttention, find_layer


class Eyes:
    """A model's layer, watched while the eyes are open (`with eyes:`). Several threads may ask at once."""

    def __init__(self, model: Model, internals: Internals, layer: Layer, method: Method) -> None:
        self.model, self.internals, self.layer, self.method = model, internals, layer, method
        self._seeing = threading.local()
        self._hook: Any = None

    def __enter__(self) -> Eyes:
        self._hook = self.layer.module.register_forward_hook(self._catch)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._hook.remove()

    def maps(self, inputs: Tensor, classes: Tensor) -> Tensor:
        """Where the model looks for these classes, float32 (N, H, W) in 0..1; uint8 inputs on its device."""
        self._seeing.asked, self._seeing.caught = True, None
        try:
            with torch.inference_mode(False), torch.enable_grad():
                scores = self.internals.scores(self.model.preprocess.normalise(inputs)).to(torch.float32)
                output: Tensor = self._seeing.caught
                chosen = scores.gather(1, classes[:, None]).sum()
                slope = torch.autograd.grad(chosen, output, allow_unused=True)[0]  # None: it has no part in the answer
        finally:
            self._seeing.asked, self._seeing.caught = False, None
        gradients = torch.zeros_like(output) if slope is None else slope
        activations, slopes = (self.layer.spread(each.detach().to(torch.float32)) for each in (output, gradients))
        return class_activation(activations, WEIGHTS[self.method](activations, slopes), *inputs.shape[2:])

    def _catch(self, _: nn.Module, __: Any, output: Tensor) -> Tensor | None:
        """Keep what the layer gives in this thread, and go on with a copy that begins a graph of its own."""
        if not getattr(self._seeing, "asked", False):
            return None
        self._seeing.caught = output.detach().requires_grad_()
        copied: Tensor = self._seeing.caught.clone()  # what follows may overwrite it
        return copied


def open_eyes(model: Model, method: Method = "gradcam++", layer: str | None = None) -> Eyes:
    """A model's eyes, or `NoAttention` with the reason why it has none."""
    if model.internals is None:
        raise NoAttention("it is no torch model, so nobody can look inside")
    images = model.preprocess.normalise(probe_images(model.preprocess).to(model.device))
    try:
        found = find_layer(model.internals.module, model.internals.scores, images, layer)
    except ModelError as error:
        raise NoAttention(str(error)) from None
    return Eyes(model, model.internals, found, method)
