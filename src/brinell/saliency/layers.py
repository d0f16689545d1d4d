"""Which layer of a network saliency maps come from, and how its output maps to image positions.

For a convolutional network it is the last convolution together with what follows at the same size: norms, activations, the
block's sum or concatenation. A convolution that is the classifier, as in SqueezeNet, doesn't count: its channels are the
classes, so every method would return a class's own channel as its map. For a transformer it is the last norm whose image
tokens still influence the output: after the last attention only the class token does. Both are found by running the network
once on plain images. `box_layers` finds a detector's.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from brinell.registry import nearest

MAX_PREFIX = 8  # tokens without an image position: class, distillation and register tokens
_NORMS = (nn.LayerNorm, nn.RMSNorm)
_PASSES_ON = (nn.Identity, nn.Dropout, nn.Dropout2d)  # when a network doesn't train
ToMaps = Callable[[Tensor], Tensor]
A = TypeVar("A")


class NoSaliency(Exception):
    """Why a model has no saliency maps, for people."""


@dataclass(frozen=True)
class Layer:
    """A layer by its name in the network, and the function from its output to maps (N, C, h, w).

    `title` is its name for people: that of the block or convolution that its maps come from, and what follows.
    """

    name: str
    module: nn.Module
    to_maps: ToMaps
    title: str


def keep_maps(output: Tensor) -> Tensor:
    """Return maps as they are."""
    return output


def channels_first(output: Tensor) -> Tensor:
    """Return maps (N, h, w, C) with their channels first."""
    return output.permute(0, 3, 1, 2)


def arrange_tokens(tokens: int, height: int, width: int) -> ToMaps | None:
    """Return how (N, tokens, C) map to an image of that shape: row by row, after a few tokens without a position."""
    for prefix in range(min(MAX_PREFIX, tokens - 4) + 1):
        rows = round(math.sqrt((tokens - prefix) * height / width))
        if rows > 1 and (tokens - prefix) % rows == 0 and rows * width == (tokens - prefix) // rows * height:
            return _Tokens(prefix, rows)
    return None


@dataclass(frozen=True)
class _Tokens:
    prefix: int
    rows: int

    def __call__(self, output: Tensor) -> Tensor:
        image_tokens = output[:, self.prefix :]
        return image_tokens.reshape(len(output), self.rows, -1, output.shape[2]).permute(0, 3, 1, 2)


@dataclass(frozen=True, eq=False)
class Output:
    """What a module returned; lists of them are in the order of execution."""

    name: str
    module: nn.Module
    output: Tensor


def find_layer(module: nn.Module, score: Callable[[Tensor], Tensor], images: Tensor, name: str | None = None) -> Layer:
    """Return the layer of that name, or the default one. `score` returns (N, K) for images."""
    outputs, scores = record_outputs(module, score, images)
    height, width = images.shape[2:]
    if name is not None:
        return named_layer(outputs, name, height, width)
    found = _last_features(outputs, scores)
    norms = [one for one in outputs if isinstance(one.module, _NORMS) and to_maps_of(one, height, width) is not None]
    if norms and (found is None or outputs.index(norms[-1]) > outputs.index(found)):
        found = _last_influential(norms, scores, height, width) or found
    if found is None:
        raise NoSaliency("it has no convolution and no image tokens; choose a layer with saliency.layer")
    to_maps = to_maps_of(found, height, width)
    assert to_maps is not None
    return Layer(found.name, found.module, to_maps, title_of(outputs, found))


def named_layer(outputs: list[Output], name: str, height: int, width: int) -> Layer:
    """Return the layer of a name, or raise `NoSaliency`."""
    own = [one for one in outputs if one.name == name]
    if not own:
        known = list(dict.fromkeys(one.name for one in outputs if one.name))
        raise NoSaliency(f"it has no layer {name!r} that returns a tensor; {nearest(name, known)}")
    to_maps = to_maps_of(own[-1], height, width)
    if to_maps is None:
        raise NoSaliency(f"its layer {name!r} returns {tuple(own[-1].output.shape)}, which has no image positions")
    return Layer(name, own[-1].module, to_maps, title_of(outputs, own[-1]))


def title_of(outputs: list[Output], found: Output) -> str:
    """Return a layer's name for people: activations are often named after nothing, or shared by the whole network."""
    shape, earlier = found.output.shape, outputs[: outputs.index(found) + 1]
    blocks = [one for one in earlier if one.output.shape == shape and any(map(_is_convolution, one.module.modules()))]
    if not blocks or blocks[-1] is found or isinstance(found.module, _NORMS):
        return found.name
    source = blocks[-1].name
    return source if isinstance(found.module, _PASSES_ON) else f"{source}, after {found.name}"


def _last_features(outputs: list[Output], scores: Tensor) -> Output | None:
    """Return the last module with the size of the last convolution; the one before it if that is the classifier."""
    last = _last_convolution(outputs)
    found = _last_of_size(outputs, last)
    if last is None or found is None or not _is_class_map(found.output, scores):
        return found
    before = outputs[: outputs.index(last)]
    return _last_of_size(before, _last_convolution(before)) or found


def _last_convolution(outputs: list[Output]) -> Output | None:
    """Return the last convolution that has positions."""
    return next((one for one in reversed(outputs) if _is_convolution(one.module) and positions(one.output) > 1), None)


def _last_of_size(outputs: list[Output], last: Output | None) -> Output | None:
    """Return the last module with maps of the same size as a convolution."""
    if last is None:
        return None
    after = outputs[outputs.index(last) :]
    return [one for one in after if one.output.ndim == 4 and one.output.shape[2:] == last.output.shape[2:]][-1]


def _is_convolution(module: nn.Module) -> bool:
    return isinstance(module, nn.Conv2d)


def _is_class_map(maps: Tensor, scores: Tensor) -> bool:
    """Whether the channels of maps (N, C, h, w) are classes: two classes' scores differ by their own channels alone."""
    if maps.shape[1] != scores.shape[1] or scores.shape[1] < 2:
        return False
    best, classes = scores.topk(2, 1)
    lead = (best[:, 0] - best[:, 1]).sum()
    gradient = torch.autograd.grad(lead, maps, retain_graph=True, allow_unused=True, materialize_grads=True)[0]
    weights = gradient.abs().sum((2, 3))
    own, total = float(weights.gather(1, classes).sum()), float(weights.sum())
    return total > 0 and own > 0.999 * total  # a softmax leaves rounding errors in the others


def _last_influential(norms: list[Output], scores: Tensor, height: int, width: int) -> Output | None:
    """Return the last norm whose image tokens influence the scores."""
    gradients = torch.autograd.grad(scores.amax(1).sum(), [one.output for one in norms], allow_unused=True)
    for one, gradient in reversed(list(zip(norms, gradients, strict=True))):
        to_maps = to_maps_of(one, height, width)
        if gradient is not None and to_maps is not None and bool((to_maps(gradient) != 0).any()):
            return one
    return None


def to_maps_of(one: Output, height: int, width: int) -> ToMaps | None:
    """Return how an output becomes maps; None if it has no image positions."""
    output = one.output
    if output.ndim == 3:
        return arrange_tokens(output.shape[1], height, width)
    if output.ndim != 4 or positions(output) == 1:
        return None
    last = isinstance(one.module, _NORMS) and output.shape[3] == one.module.normalized_shape[-1]
    return channels_first if last else keep_maps


def positions(output: Tensor) -> int:
    """Return the number of image positions of maps (N, C, h, w)."""
    return math.prod(output.shape[2:]) if output.ndim == 4 else 0


def record_outputs(module: nn.Module, run: Callable[[Tensor], A], images: Tensor) -> tuple[list[Output], A]:
    """Return what each part of a network returns for images, and what `run` makes of the whole."""
    outputs: list[Output] = []
    names = {part: name for name, part in module.named_modules()}

    def record(part: nn.Module, _: Any, output: Any) -> None:
        if isinstance(output, Tensor) and output.is_floating_point() and output.ndim in (3, 4):
            outputs.append(Output(names[part], part, output))

    hooks = [part.register_forward_hook(record) for part in names]
    try:
        with torch.enable_grad():
            result = run(images.detach().requires_grad_())
    finally:
        for hook in hooks:
            hook.remove()
    return outputs, result
