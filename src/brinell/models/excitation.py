"""Squeeze-and-excitation blocks (Hu, Shen and Sun, CVPR 2018), put into a network that is there already.

A block learns how much each channel of a feature map counts, from the means of all channels. Its gates are 2σ(…) instead of
σ(…), and its last layer begins at zero: so all gates begin at 1, and a network with new blocks answers as it did before.
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
            self.squeeze.weight.copy_(numbers * (2 / channels) ** 0.5)  # He's
            self.squeeze.bias.zero_()
            self.excite.weight.zero_()
            self.excite.bias.zero_()

    def forward(self, images: Tensor) -> Tensor:
        """The map with its channels weighted."""
        gates = 2 * torch.sigmoid(self.excite(torch.relu(self.squeeze(images.mean((2, 3))))))
        return images * gates[:, :, None, None]


def maps_of(module: nn.Module, images: Tensor) -> dict[str, int]:
    """The parts of a network that give feature maps, by name, and how many channels those have."""
    channels: dict[str, int] = {}
    names = {one: name for name, one in module.named_modules()}

    def look(one: nn.Module, _: Any, given: Any) -> None:
        if isinstance(given, Tensor) and given.ndim == 4:
            channels[names[one]] = given.shape[1]

    hooks = [one.register_forward_hook(look) for one in module.modules()]
    try:
        with torch.inference_mode():
            module(images)
    finally:
        for hook in hooks:
            hook.remove()
    return channels


def chosen_blocks(module: nn.Module, images: Tensor, patterns: Sequence[str] = ()) -> dict[str, int]:
    """The parts of a network that patterns of names choose, with their channels.

    Without a pattern its blocks: what lies in sequences and has layers of its own; or, where there is none, its
    convolutions.
    """
    channels = maps_of(module, images)
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
            f"no part of the network that gives feature maps is called {' or '.join(patterns) or 'anything'}; its blocks "
            f"are {', '.join(blocks) or 'none'}"
        )
    return {name: channels[name] for name in chosen}


def excite(module: nn.Module, blocks: dict[str, int], reduction: int = REDUCTION) -> None:
    """Put a squeeze-and-excitation block behind each of some blocks, whose channels are given by name."""
    for name, channels in blocks.items():
        parent_name, _, child = name.rpartition(".")
        try:
            parent, block = module.get_submodule(parent_name), module.get_submodule(name)
        except AttributeError:
            raise ConfigError(f"the network has no block {name!r} to put squeeze-and-excitation behind") from None
        device = next((value.device for value in block.parameters()), torch.device("cpu"))
        parts = OrderedDict(block=block, excitation=SqueezeExcitation(channels, reduction).to(device))
        setattr(parent, child, nn.Sequential(parts))
