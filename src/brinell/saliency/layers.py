"""Which layer of a network to look at, and how its output lies in the image.

Of a convolutional network it is the last convolution, with what follows it at the same size: norms, activations, the
block's sum or concatenation. Of a transformer it is the last norm whose image tokens still speak for the answer: behind
the last attention only the class token does. Both are found by asking the network about plain images once.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from brinell.registry import nearest

PREFIX = 8  # tokens that stand for no place: of the class, of a distillation, registers
_NORMS = (nn.LayerNorm, nn.RMSNorm)
Spread = Callable[[Tensor], Tensor]


class NoAttention(Exception):
    """Why a model has no heat maps, for people."""


@dataclass(frozen=True)
class Layer:
    """A layer by its name in the network, and how its output becomes maps (N, C, h, w)."""

    name: str
    module: nn.Module
    spread: Spread


def as_maps(output: Tensor) -> Tensor:
    """Maps as they are."""
    return output


def as_last_channels(output: Tensor) -> Tensor:
    """Maps (N, h, w, C) with their channels last."""
    return output.permute(0, 3, 1, 2)


def token_spread(tokens: int, height: int, width: int) -> Spread | None:
    """How (N, tokens, C) lies in an image of that shape: row by row, behind a few tokens that stand for no place."""
    for prefix in range(min(PREFIX, tokens - 4) + 1):
        rows = round(math.sqrt((tokens - prefix) * height / width))
        if rows > 1 and (tokens - prefix) % rows == 0 and rows * width == (tokens - prefix) // rows * height:
            return _Tokens(prefix, rows)
    return None


@dataclass(frozen=True)
class _Tokens:
    prefix: int
    rows: int

    def __call__(self, output: Tensor) -> Tensor:
        places = output[:, self.prefix :]
        return places.reshape(len(output), self.rows, -1, output.shape[2]).permute(0, 3, 1, 2)


@dataclass(frozen=True)
class _Seen:
    """What a module gave, in the order in which they were done."""

    name: str
    module: nn.Module
    output: Tensor


def find_layer(module: nn.Module, score: Callable[[Tensor], Tensor], images: Tensor, named: str | None = None) -> Layer:
    """The layer of that name, or the one that its kind of network is looked at by. `score` gives (N, K) for images."""
    seen, scores = _watched(module, score, images)
    height, width = images.shape[2:]
    if named is not None:
        own = [one for one in seen if one.name == named]
        if not own:
            known = list(dict.fromkeys(one.name for one in seen if one.name))
            raise NoAttention(f"it has no layer {named!r} that gives a tensor; {nearest(named, known)}")
        spread = _spread_of(own[-1], height, width)
        if spread is None:
            raise NoAttention(f"its layer {named!r} gives {tuple(own[-1].output.shape)}, which has no places in the image")
        return Layer(named, own[-1].module, spread)
    found = _last_convolution(seen)
    tokens = [one for one in seen if isinstance(one.module, _NORMS) and _spread_of(one, height, width) is not None]
    if tokens and (found is None or seen.index(tokens[-1]) > seen.index(found)):
        found = _last_that_speaks(tokens, scores, height, width) or found
    if found is None:
        raise NoAttention("it has no convolution, and no tokens that lie in the image; name a layer with attention.layer")
    spread = _spread_of(found, height, width)
    assert spread is not None
    return Layer(found.name, found.module, spread)


def _last_convolution(seen: list[_Seen]) -> _Seen | None:
    """The last convolution that has places, and then the last module that gives maps of its size."""
    convolutions = [one for one in seen if isinstance(one.module, nn.Conv2d) and _places(one.output) > 1]
    if not convolutions:
        return None
    last = convolutions[-1]
    after = seen[seen.index(last) :]
    return [one for one in after if one.output.ndim == 4 and one.output.shape[2:] == last.output.shape[2:]][-1]


def _last_that_speaks(tokens: list[_Seen], scores: Tensor, height: int, width: int) -> _Seen | None:
    gradients = torch.autograd.grad(scores.amax(1).sum(), [one.output for one in tokens], allow_unused=True)
    for one, gradient in reversed(list(zip(tokens, gradients, strict=True))):
        spread = _spread_of(one, height, width)
        if gradient is not None and spread is not None and bool((spread(gradient) != 0).any()):
            return one
    return None


def _spread_of(one: _Seen, height: int, width: int) -> Spread | None:
    output = one.output
    if output.ndim == 3:
        return token_spread(output.shape[1], height, width)
    if output.ndim != 4 or _places(output) == 1:
        return None
    last = isinstance(one.module, _NORMS) and output.shape[3] == one.module.normalized_shape[-1]
    return as_last_channels if last else as_maps


def _places(output: Tensor) -> int:
    return math.prod(output.shape[2:]) if output.ndim == 4 else 0


def _watched(module: nn.Module, score: Callable[[Tensor], Tensor], images: Tensor) -> tuple[list[_Seen], Tensor]:
    """What each part of a network gives for images, and its scores."""
    seen: list[_Seen] = []
    names = {part: name for name, part in module.named_modules()}

    def note(part: nn.Module, _: Any, output: Any) -> None:
        if isinstance(output, Tensor) and output.is_floating_point() and output.ndim in (3, 4):
            seen.append(_Seen(names[part], part, output))

    hooks = [part.register_forward_hook(note) for part in names]
    try:
        with torch.enable_grad():
            scores = score(images.detach().requires_grad_())
    finally:
        for hook in hooks:
            hook.remove()
    return seen, scores
