"""Kernels that change colours on CUDA devices, interpreted on a CPU: the bytes of the CPU's own ways."""

from __future__ import annotations

from types import ModuleType

import pytest
import torch

from brinell.perturb import colour

SIZES = [(1, 1), (8, 8), (9, 13), (17, 97)]


@pytest.fixture
def kernels(interpreted, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Let operators use the kernels."""
    found: ModuleType = interpreted("colour")
    monkeypatch.setattr(colour, "kernels_for", lambda name, images: found)
    return found


def grey_levels(*shape: int) -> torch.Tensor:
    return torch.randint(0, 256, shape, generator=torch.Generator().manual_seed(sum(shape)), dtype=torch.uint8)


@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("operator", [colour.fade_grey, colour.fade_black, colour.fade_white])
def test_the_same_steps(operator, channels: int, size: tuple[int, int], monkeypatch, request) -> None:
    images = grey_levels(3, channels, *size)
    before, expected = images.clone(), operator(images)
    request.getfixturevalue("kernels")
    made = operator(images)
    assert torch.equal(made, expected) and made.data_ptr() != images.data_ptr()
    assert torch.equal(images, before)


def test_every_hue_fades_to_the_same_colour(kernels: ModuleType) -> None:
    """All mixtures of 18 values of red, green and blue, all greys, and neighbours of greys."""
    some = torch.tensor([*range(0, 255, 15), 254])
    greys = torch.arange(256)[:, None].expand(-1, 3)
    near = (greys[:, None] + torch.eye(3, dtype=torch.int64)).clamp(max=255).flatten(0, 1)
    images = torch.cat([torch.cartesian_prod(some, some, some), greys, near]).to(torch.uint8).T.reshape(1, 3, -1, 8)
    assert torch.equal(
        kernels.fade_grey(images, colour._hsv_tables(images.device).in_order()), colour._fade_colours(images)
    )


@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("operator", [colour.posterise, colour.posterise_as_written])
def test_the_same_levels(operator, channels: int, size: tuple[int, int], request) -> None:
    images, levels = grey_levels(6, channels, *size), torch.tensor([0, 1, 7, 29, 30, 33])
    expected = operator(images, levels)
    request.getfixturevalue("kernels")
    assert torch.equal(operator(images, levels), expected)


def test_images_that_are_not_contiguous(kernels: ModuleType) -> None:
    images = grey_levels(2, 7, 9, 3).permute(0, 3, 1, 2)
    expected = colour._fade_colours(images)
    assert torch.equal(colour.fade_grey(images), expected)
