"""EfficientNet-Lite4 for ImageNet (13 million weights) from published arrays.

The arrays, .npy files in half precision with batch norms folded into the convolutions, are those of
models/efficientnet_fp16_nchw_optimized in the GitHub repository webmachinelearning/test-data (Apache-2.0).
"""

from __future__ import annotations

from itertools import accumulate
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import pad

SIZE = 224  # the input of the published arrays
STAGES = (1, 4, 4, 6, 6, 8, 1)  # blocks in each stage
STRIDES = (1, 2, 2, 2, 1, 2, 1)  # of the first block of each stage
MEAN, STD = (127 / 255,) * 3, (128 / 255,) * 3


class Convolution(nn.Module):
    """A convolution that pads as TensorFlow does, with ReLU6 unless it is `linear`."""

    def __init__(self, weight: Tensor, bias: Tensor, stride: int = 1, *, linear: bool = False) -> None:
        super().__init__()
        outputs, inputs, side, _ = weight.shape
        depthwise = inputs == 1
        self.conv = nn.Conv2d(outputs if depthwise else inputs, outputs, side, stride, groups=outputs if depthwise else 1)
        self.conv.weight, self.conv.bias = nn.Parameter(weight), nn.Parameter(bias)
        extra = side - stride  # sides are multiples of the stride
        self.extra = (extra // 2, extra - extra // 2) * 2
        self.linear = linear

    def forward(self, x: Tensor) -> Tensor:
        """Return the features."""
        y = self.conv(pad(x, self.extra))
        return y if self.linear else y.clamp(0, 6)


class Block(nn.Module):
    """Convolutions whose input is added to their output where shapes allow."""

    def __init__(self, *layers: Convolution, add: bool) -> None:
        super().__init__()
        self.layers, self.add = nn.Sequential(*layers), add

    def forward(self, x: Tensor) -> Tensor:
        """Return the features."""
        return x + self.layers(x) if self.add else self.layers(x)


class Lite4(nn.Module):
    """The network; takes normalised images of 224 by 224 pixels."""

    def __init__(self, folder: Path) -> None:
        super().__init__()

        def read(name: str) -> Tensor:
            return torch.from_numpy(np.load(folder / f"{name}.npy").astype(np.float32))

        def layer(name: str, stride: int = 1, *, linear: bool = False) -> Convolution:
            return Convolution(read(f"{name}_w"), read(f"{name}_b").flatten(), stride, linear=linear)

        stem = layer("block0_conv0", 2)
        blocks = [Block(layer("block0_conv1"), layer("block0_conv2", linear=True), add=False)]
        firsts = dict(zip([0, *accumulate(STAGES)], STRIDES, strict=False))
        for number in range(1, sum(STAGES)):
            own = f"block{number}_conv"
            layers = (layer(f"{own}0"), layer(f"{own}1", firsts.get(number, 1)), layer(f"{own}2", linear=True))
            blocks.append(Block(*layers, add=number not in firsts))
        self.features = nn.Sequential(stem, *blocks, layer("conv0"))
        weight, bias = read("dense0_w").squeeze(), read("dense0_b").flatten()
        self.head = nn.Linear(1280, 1000)
        self.head.weight = nn.Parameter(weight if weight.shape[0] == 1000 else weight.T.contiguous())
        self.head.bias = nn.Parameter(bias)

    def forward(self, x: Tensor) -> Tensor:
        """Return logits."""
        return self.head(self.features(x).mean((2, 3)))
