"""Operators whose steps are kernels, interpreted on the CPU: the pixels of the tensor code and of plain loops."""

from __future__ import annotations

import importlib
from types import ModuleType

import numpy as np
import pytest
import torch

import reference
from brinell.draws import Draws, key
from brinell.perturb import patches
from brinell.perturb.operator import OPERATORS, Operator, find_operator

KERNELS = {
    "local_blur": "patches",
    "boxes": "patches",
    "black_lines": "lines",
    "white_lines": "lines",
    "noise": "dots",
    "white_fog": "dots",
    "pixel_exchange": "exchange",
    "adjacent_exchange": "exchange",
}
ALL = [pytest.param(operator, id=operator.id) for operator in OPERATORS.values() if operator.name in KERNELS]
IDS = torch.tensor([123456789012345, -77])


def noise(channels: int, height: int, width: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(height * width)
    return torch.randint(0, 256, (len(IDS), channels, height, width), generator=generator, dtype=torch.uint8)


def by_kernels(operator: Operator, kernels: ModuleType, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Let an operator find kernels; return the names under which it will have asked for them."""
    asked: list[str] = []

    def find(name: str, tensor: torch.Tensor) -> ModuleType:
        asked.append(name)
        return kernels

    monkeypatch.setattr(importlib.import_module(operator.function.__module__), "kernels_for", find)
    return asked


@pytest.mark.parametrize("operator", ALL)
@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("size", [(8, 8), (4, 5), (9, 23)], ids=str)
def test_kernels_make_one_change_after_the_other(interpreted, monkeypatch, operator: Operator, channels: int, size) -> None:
    images, levels = noise(channels, *size), 2
    before, expected = images.clone(), operator.at(images, levels, seed=5, ids=IDS)
    asked = by_kernels(operator, interpreted(KERNELS[operator.name]), monkeypatch)
    made = operator.at(images, levels, seed=5, ids=IDS)
    assert asked == [KERNELS[operator.name]] * levels
    assert torch.equal(made, expected)
    assert torch.equal(images, before)
    for row, identity in enumerate(IDS.tolist()):
        picture = np.ascontiguousarray(before[row].permute(1, 2, 0).numpy())
        plain = reference.apply_operator(operator.id, picture, levels, seed=5, identity=identity)
        assert np.array_equal(made[row].permute(1, 2, 0).numpy(), plain)


@pytest.mark.parametrize("name", ["local_blur", "boxes", "white_lines", "noise", "white_fog"])
def test_images_that_lie_otherwise_in_memory(interpreted, monkeypatch, name: str) -> None:
    operator, images = find_operator(name), noise(3, 8, 9).permute(0, 1, 3, 2)
    expected = operator.at(images, 1, seed=5, ids=IDS)
    by_kernels(operator, interpreted(KERNELS[name]), monkeypatch)
    assert torch.equal(operator.at(images, 1, seed=5, ids=IDS), expected)


@pytest.mark.parametrize("size", [(5, 7), (7, 23)], ids=str)
def test_lines_in_every_direction(interpreted, monkeypatch, size: tuple[int, int]) -> None:
    """The ends of a line lie at random edges, so that a few dozen lines are of all kinds."""
    operator, images = find_operator("white_lines"), noise(1, *size)
    expected = operator.at(images, 30, seed=5, ids=IDS)
    by_kernels(operator, interpreted("lines"), monkeypatch)
    assert torch.equal(operator.at(images, 30, seed=5, ids=IDS), expected)


def test_pixels_that_are_drawn_often(interpreted) -> None:
    dots, draws, images, count = interpreted("dots"), Draws.of(key("dots"), IDS), noise(3, 4, 5), 300
    redrawn, lighter = images.clone(), images.to(torch.int64)
    for row, (pixels, bits) in enumerate(
        zip(draws.below(0, count, 20).tolist(), draws.bits(1, count).tolist(), strict=True)
    ):
        for pixel, colour in zip(pixels, bits, strict=True):
            redrawn[row, :, pixel // 5, pixel % 5] = torch.tensor([colour >> shift & 0xFF for shift in (0, 8, 16)])
            lighter[row, :, pixel // 5, pixel % 5] += 3
    assert torch.equal(dots.redraw(images, draws.keys, count), redrawn)
    assert torch.equal(dots.lighten(images, draws.keys, count, 3), lighter.clamp(max=255).to(torch.uint8))


@pytest.mark.parametrize("size", [(6, 9), (3, 2)], ids=str)
def test_boxes_that_lie_on_each_other_and_cross_the_edges(interpreted, size: tuple[int, int]) -> None:
    draws, images, count = Draws.of(key("boxes"), IDS), noise(3, *size), 19
    drawn = patches.draw_patches(draws, count, *size, shortest=2, longest=5)
    expected = images.clone()
    for row in range(len(IDS)):
        for top, left, tall, wide in zip(*(part[row].tolist() for part in vars(drawn).values()), strict=True):
            expected[row, :, top : top + tall + 1, left : left + wide + 1] = 0
    assert torch.equal(interpreted("patches").draw_boxes(images, draws.keys, count, extra=1), expected)
