"""JPEG and operators on colours on an accelerator: the CPU's bytes, made without waiting for the device."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from brinell.kernels import kernels_for
from brinell.perturb import codec, colour
from devices import never_waiting

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")

SIZES = [(8, 8), (9, 13), (17, 33), (31, 12), (64, 48), (224, 224), (299, 301)]


def pictures(height: int, width: int, channels: int, count: int) -> Tensor:
    """Return smooth images, noise of extremes, which the codec cuts off, and noise, in turn."""
    generator = torch.Generator().manual_seed(height * 1000 + width)
    noise = torch.randint(0, 256, (count, channels, height, width), generator=generator).to(torch.uint8)
    ramp = torch.arange(height)[:, None] * 5 + torch.arange(width) * 3 + torch.arange(channels)[:, None, None] * 40
    noise[::3] = (ramp % 250 + noise[::3] % 8).clamp(max=255).to(torch.uint8)
    noise[1::3] = (noise[1::3] > 127).to(torch.uint8) * 255
    return noise


def test_kernels_make_colours_on_this_device() -> None:
    pytest.importorskip("triton")
    if torch.cuda.get_device_capability() < (8, 0):
        pytest.skip("Triton needs a newer device")
    assert all(kernels_for(name, torch.zeros(1, device="cuda")) is not None for name in ("jpeg", "colour"))


@pytest.mark.parametrize("swapped", [False, True], ids=["rgb", "swapped"])
@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_the_same_jpeg_of_every_quality_as_on_the_cpu(size: tuple[int, int], channels: int, swapped: bool) -> None:
    images, qualities = pictures(*size, channels, 303), torch.arange(303) % 100 + 1
    there = codec.compress(images.cuda(), qualities.cuda(), swapped=swapped).cpu()
    wrong = (there != codec.compress(images, qualities, swapped=swapped)).flatten(1).any(1)
    assert not wrong.any(), f"of qualities {qualities[wrong].unique().tolist()}"


def test_all_colours_fade_as_on_the_cpu() -> None:
    colours = torch.arange(1 << 24)
    images = torch.stack([colours >> shift & 0xFF for shift in (0, 8, 16)]).to(torch.uint8).view(1, 3, 4096, 4096)
    assert torch.equal(colour.fade_grey(images.cuda()).cpu(), colour.fade_grey(images))


@pytest.mark.parametrize("operator", [colour.fade_black, colour.fade_white, colour.fade_grey])
@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("size", [(1, 1), *SIZES], ids=str)
def test_the_same_steps_as_on_the_cpu(size: tuple[int, int], channels: int, operator: Callable[[Tensor], Tensor]) -> None:
    images = pictures(*size, channels, 4)
    assert torch.equal(operator(images.cuda()).cpu(), operator(images))


@pytest.mark.parametrize("operator", [colour.posterise, colour.posterise_as_written])
@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("size", [(1, 1), *SIZES], ids=str)
def test_the_same_levels_as_on_the_cpu(
    size: tuple[int, int], channels: int, operator: Callable[[Tensor, Tensor], Tensor]
) -> None:
    images, levels = pictures(*size, channels, 32), torch.arange(32)
    assert torch.equal(operator(images.cuda(), levels.cuda()).cpu(), operator(images, levels))


def test_nothing_waits_for_the_device() -> None:
    images, levels = pictures(64, 48, 3, 8).cuda(), torch.arange(1, 9, device="cuda")

    def change() -> None:
        for operator in (codec.jpeg, codec.jpeg_standard, colour.posterise):
            operator(images, levels)
        for step in (colour.fade_black, colour.fade_white, colour.fade_grey):
            step(images)
        codec.jpeg_cumulative(images, 3)

    change()  # tables are brought to the device once
    with never_waiting():
        change()
