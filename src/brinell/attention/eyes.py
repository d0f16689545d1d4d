"""A model that can be looked into: images to heat maps, batched, on its device.

The layer's output is cut off from what made it, so gradients are computed from the answer back to the layer and no further:
a map costs a forward pass and little more.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from brinell.attention.cam import WEIGHTS, Method, class_activation
from brinell.attention.layers import Layer, NoAttention, find_layer
from brinell.errors import ModelError
from brinell.models import Insides, Model
from brinell.models.model import probe_images


@dataclass(frozen=True)
class Eyes:
    """A model's layer, watched. Several threads may ask at once."""

    model: Model
    insides: Insides
    layer: Layer
    method: Method

    def maps(self, canvases: Tensor, classes: Tensor) -> Tensor:
        """Where the model looks for these classes, float32 (N, H, W) in 0..1; uint8 canvases on its device."""
        with torch.enable_grad(), _cut(self.layer.module) as caught:
            scores = self.insides.scores(self.model.preprocess.normalise(canvases)).to(torch.float32)
            chosen = scores.gather(1, classes[:, None]).sum()
            found = torch.autograd.grad(chosen, caught.output, allow_unused=True)[0]  # None: it has no part in the answer
        gradients = torch.zeros_like(caught.output) if found is None else found
        activations, slopes = (self.layer.spread(each.detach().to(torch.float32)) for each in (caught.output, gradients))
        return class_activation(activations, WEIGHTS[self.method](activations, slopes), *canvases.shape[2:])


def open_eyes(model: Model, method: Method = "gradcam++", layer: str | None = None) -> Eyes:
    """A model's eyes, or `NoAttention` with the reason why it has none."""
    if model.insides is None:
        raise NoAttention("it is no torch model, so nobody can look inside")
    images = model.preprocess.normalise(probe_images(model.preprocess).to(model.device))
    try:
        found = find_layer(model.insides.module, model.insides.scores, images, layer)
    except ModelError as error:
        raise NoAttention(str(error)) from None
    return Eyes(model, model.insides, found, method)


@dataclass
class _Caught:
    """The last output of a layer, as the leaf that gradients are computed for."""

    output: Any = None


_watching = threading.local()


@contextlib.contextmanager
def _cut(layer: nn.Module) -> Iterator[_Caught]:
    """Catch what a layer gives in this thread, and go on with a copy that begins a graph of its own."""
    caught = _Caught()
    _watching.caught = caught

    def catch(_: nn.Module, __: Any, output: Tensor) -> Tensor | None:
        if getattr(_watching, "caught", None) is not caught:  # another thread's
            return None
        caught.output = output.detach().requires_grad_()
        return caught.output.clone()  # what follows may overwrite it

    hook = layer.register_forward_hook(catch)
    try:
        yield caught
    finally:
        hook.remove()
        _watching.caught = None
