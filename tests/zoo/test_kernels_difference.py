"""The kernels that measure distances and mean grey values on CUDA devices, interpreted on a CPU: the same bits."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from brinell.perturb import difference as measuring

SIZES = [(1, 1), (8, 8), (31, 12), (27, 29), (61, 44)]  # planes in whole words and not, of less and more than a step


def pictures(count: int, channels: int, height: int, width: int, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, 256, (count, channels, height, width), dtype=torch.uint8, generator=generator)


def changed_in_ways(clean: torch.Tensor) -> torch.Tensor:
    """Return images that differ nowhere, everywhere, as far as possible, and in one value."""
    one = clean[3].clone()
    one.view(-1)[-1] ^= 255
    return torch.stack([clean[0], clean[1].flip(-1) ^ 1, 255 - clean[2] % 2 * 255, one])


@pytest.fixture
def kernels(interpreted, monkeypatch: pytest.MonkeyPatch):
    found = interpreted("difference")
    return lambda: monkeypatch.setattr(measuring, "kernels_for", lambda name, tensor: found)


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("channels", [1, 3, 4])
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_distances_have_the_bits_of_a_cpu(kernels, size, channels: int, shared: bool) -> None:
    clean = pictures(4, channels, *size)
    clean[2] = clean[2] % 2 * 255  # gaps of 255
    changed = changed_in_ways(clean)
    clean = clean[2:3] if shared else clean
    expected = measuring.difference(clean, changed)
    kernels()
    found = measuring.difference(clean, changed)
    for field in dataclasses.fields(expected):
        assert torch.equal(getattr(found, field.name), getattr(expected, field.name)), field.name


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_mean_grey_has_the_bits_of_a_cpu(kernels, size, channels: int) -> None:
    images = pictures(3, channels, *size)
    expected = measuring.mean_grey(images)
    kernels()
    assert torch.equal(measuring.mean_grey(images), expected)


def test_mean_grey_of_sums_that_float32_rounds(kernels) -> None:
    images = pictures(2, 1, 300, 300) | 224  # sums of more than 2**24
    total = images.flatten(1).sum(1)
    assert bool((total.float().double() != total).any())
    kernels()
    assert torch.equal(measuring.mean_grey(images), total.float() / 90000)


def test_images_that_begin_anywhere_and_views(kernels) -> None:
    stored = pictures(1, 1, 1, 4 * 64 + 3)[0, 0, 0]
    for start in range(4):
        images = stored[start : start + 256].view(4, 1, 8, 8)
        expected = measuring._by_bytes(images, images.flip(0)), images.double().mean((1, 2, 3)).float()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(measuring, "kernels_for", lambda name, tensor: None)
            assert torch.equal(measuring.mean_grey(images), expected[1])
        kernels()
        turned = images.flip(0).transpose(2, 3).contiguous().transpose(2, 3)
        found = measuring.difference(images, turned)
        assert torch.equal(found.l1, expected[0].l1) and torch.equal(found.l2, expected[0].l2)
        assert torch.equal(measuring.mean_grey(images), expected[1])


def test_floats_keep_their_own_way(kernels) -> None:
    clean = pictures(2, 3, 8, 8)
    changed = clean + torch.rand(clean.shape, generator=torch.Generator().manual_seed(1))
    expected = measuring.difference(clean, changed), measuring.mean_grey(changed)
    kernels()
    found = measuring.difference(clean, changed)
    assert all(torch.equal(getattr(found, name), getattr(expected[0], name)) for name in ("changed", "l1", "l2", "mse"))
    assert torch.equal(measuring.mean_grey(changed), expected[1])
