"""Kernels that compress as JPEG on CUDA devices, interpreted on a CPU: the bytes of tensor code and of OpenCV's codec."""

from __future__ import annotations

import pytest
import torch

from brinell.perturb import codec
from brinell.perturb.dct import constants, jpeg_in_tensors

QUALITIES = [1, 2, 31, 49, 50, 95, 100, 1, 31]  # smooth, extreme, noisy in turn


def pictures(height: int, width: int, channels: int, count: int) -> torch.Tensor:
    """Return smooth images, noise of extremes, which the codec cuts off, and noise, in turn."""
    generator = torch.Generator().manual_seed(height * 1000 + width)
    noise = torch.randint(0, 256, (count, channels, height, width), generator=generator).to(torch.uint8)
    ramp = torch.arange(height)[:, None] * 5 + torch.arange(width) * 3 + torch.arange(channels)[:, None, None] * 40
    noise[::3] = (ramp + noise[::3] % 8).clamp(max=255).to(torch.uint8)
    noise[1::3] = (noise[1::3] > 127).to(torch.uint8) * 255
    return noise


@pytest.mark.parametrize("swapped", [False, True], ids=["rgb", "swapped"])
@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("size", [(8, 8), (9, 13), (17, 33), (31, 12), (1, 1), (40, 56)], ids=str)
def test_the_same_bytes(interpreted, size: tuple[int, int], channels: int, swapped: bool) -> None:
    images, qualities = pictures(*size, channels, len(QUALITIES)), torch.tensor(QUALITIES)
    before = images.clone()
    made = interpreted("jpeg").compress(images, qualities, constants(images.device), swapped=swapped)
    order = [2, 1, 0] if swapped and channels == 3 else slice(None)
    assert torch.equal(made, jpeg_in_tensors(images[:, order], qualities)[:, order])
    if min(size) >= 8:  # below, libjpeg doubles in another way
        assert torch.equal(made, codec._compress_by_codec(images, qualities, swapped))
    assert torch.equal(images, before)


def test_no_sum_exceeds_int32() -> None:
    """Bounds by absolute values, which no sum of a part exceeds, either."""
    matrix = constants(torch.device("cpu"))[0].abs().long()
    across = (matrix.sum(1) * 128 + 1024) >> 11
    coefficients = matrix.sum(1)[:, None] * across
    rounded = (coefficients >> 15) // 8 + 128
    down = matrix.T @ rounded
    back = ((down + 1024) >> 11) @ matrix + (1 << 17)
    assert max(int(sums.max()) for sums in (coefficients + (1 << 14), down + 1024, back)) < 2**31
