"""Squeeze-and-excitation blocks (Hu, Shen and Sun, CVPR 2018), added to an existing network.

A block learns a weight for each channel of a feature map from the means of all channels. Its gates are 2σ(…) instead of
σ(…), and its last layer is initialised to zero, so all gates start at 1 and the network's output doesn't change at first.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Any

import torch
from torch import Tensor, nn

from brinell.draws import Draws, key
from brinell.errors import ConfigError

REDUCTION = 16  # of the paper


class SqueezeExcitation(nn.Module):
    """Gates for the channels of a feature map (N, C, H, W)."""

    def __init__(self, channels: int, reduction: int = REDUCTION) -> None:
        super().__init__()
        hidden = max(4, channels // reduction)
        self.squeeze = nn.Linear(channels, hidden)
        self.excite = nn.Linear(hidden, channels)
        numbers = torch.special.ndtri(Draws.of(key("excitation", channels), torch.arange(hidden)).uniform(0, channels))
        with torch.no_grad():
            self.squeeze.weight.copy_(numbers * (2 / channels) ** 0.5)  # He initialisation
            self.squeeze.bias.zero_()
            self.excite.weight.zero_()
            self.excite.bias.zero_()

    def forward(self, images: Tensor) -> Tensor:
        """Return the map with its channels weighted."""
        gates = 2 * torch.sigmoid(self.excite(torch.relu(self.squeeze(images.mean((2, 3))))))
        return images * gates[:, :, None, None]


def feature_maps(module: nn.Module, images: Tensor) -> dict[str, int]:
    """Return the names of a network's submodules that output feature maps, and the number of their channels."""
    channels: dict[str, int] = {}
    names = {one: name for name, one in module.named_modules()}

    def record(one: nn.Module, _: Any, output: Any) -> None:
        if isinstance(output, Tensor) and output.ndim == 4:
            channels[names[one]] = output.shape[1]

    hooks = [one.register_forward_hook(record) for one in module.modules()]
    try:
        with torch.inference_mode():
            module(images)
    finally:
        for hook in hooks:
            hook.remove()
    return channels


def choose_blocks(module: nn.Module, images: Tensor, patterns: Sequence[str] = ()) -> dict[str, int]:
    """Return the submodules whose names match a pattern, with their channels.

    Without patterns, the network's blocks: submodules of nn.Sequential that have layers themselves, or, if there are none,
    its convolutions.
    """
    channels = feature_maps(module, images)
    inside = {
        f"{name}.{child}" if name else child
        for name, one in module.named_modules()
        if isinstance(one, nn.Sequential)
        for child, own in one.named_children()
        if any(True for _ in own.children())
    }
    blocks = [name for name in channels if name in inside and not any(name.startswith(f"{one}.") for one in inside)]
    blocks = blocks or [name for name, one in module.named_modules() if isinstance(one, nn.Conv2d) and name in channels]
    chosen = [name for name in channels if any(fnmatchcase(name, one) for one in patterns)] if patterns else blocks
    if not chosen:
        raise ConfigError(
            f"no part of the network that outputs feature maps is called {' or '.join(patterns) or 'anything'}; its blocks "
            f"are {', '.join(blocks) or 'none'}"
        )
    return {name: channels[name] for name in chosen}


def add_excitation(module: nn.Module, blocks: dict[str, int], reduction: int = REDUCTION) -> None:
    """Add a squeeze-and-excitation block after each of some submodules, given by name with their channels."""
    for name, channels in blocks.items():
        parent_name, _, child = name.rpartition(".")
        try:
            parent, block = module.get_submodule(parent_name), module.get_submodule(name)
        except AttributeError:
            raise ConfigError(f"the network has no block {name!r} to add squeeze-and-excitation after") from None
        device = next((value.device for value in block.parameters()), torch.device("cpu"))
        parts = OrderedDict(block=block, excitation=SqueezeExcitation(channels, reduction).to(device))
        setattr(parent, child, nn.Sequential(parts))
