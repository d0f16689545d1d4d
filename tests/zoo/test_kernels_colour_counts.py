"""The kernels that count colours on CUDA devices, interpreted on a CPU."""

from __future__ import annotations

import pytest
import torch

from brinell.perturb import difference as measuring
from brinell.perturb.operator import find_operator


def pictures(channels: int, height: int, width: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(height)
    return torch.randint(0, 256, (3, channels, height, width), dtype=torch.uint8, generator=generator)


@pytest.fixture
def kernels(interpreted, monkeypatch: pytest.MonkeyPatch):
    found = interpreted("colour_counts")
    return found, lambda: monkeypatch.setattr(measuring, "kernels_for", lambda name, tensor: found)


@pytest.mark.parametrize("level", [1, 20, 30])
@pytest.mark.parametrize("channels", [1, 2, 3])
@pytest.mark.parametrize("size", [(8, 8), (31, 12), (40, 41)], ids=str)
def test_posterised_images(kernels, size, channels: int, level: int) -> None:
    images = find_operator("posterise").at(pictures(channels, *size), level, seed=0, ids=torch.arange(3))
    expected = [len({tuple(pixel) for pixel in image.flatten(1).T.tolist()}) for image in images]
    assert kernels[0].count_posterised(images).tolist() == expected
    kernels[1]()
    counts = measuring._count_on_a_device(images)
    assert counts.tolist() == expected and counts.dtype == torch.int64


def test_images_that_are_not_posterised(kernels) -> None:
    images = find_operator("posterise").at(pictures(3, 12, 12), 30, seed=0, ids=torch.arange(3))
    images[1, 2, 0, :2] = torch.tensor([16, 23], dtype=torch.uint8)  # one pair of values that five bits don't tell apart
    expected = [len({tuple(pixel) for pixel in image.flatten(1).T.tolist()}) for image in images]
    assert kernels[0].count_posterised(images).tolist() == [expected[0], -1, expected[2]]
    kernels[1]()
    assert measuring._count_on_a_device(images).tolist() == expected


def test_channels_that_use_other_values(kernels) -> None:
    images = pictures(3, 9, 9) // 64 * 64 + torch.tensor([0, 3, 7], dtype=torch.uint8)[:, None, None]
    expected = [len({tuple(pixel) for pixel in image.flatten(1).T.tolist()}) for image in images]
    assert kernels[0].count_posterised(images).tolist() == expected


def test_one_pixel(kernels) -> None:
    assert kernels[0].count_posterised(torch.full((2, 3, 1, 1), 255, dtype=torch.uint8)).tolist() == [1, 1]
