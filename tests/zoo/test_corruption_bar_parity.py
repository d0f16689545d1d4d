"""Parity with the published corruptions of ImageNet-C-bar, if there is a copy: pixel by pixel, for the same random numbers.

The parameters that the published code would draw are made from our draws.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch

from brinell.draws import Draws, key
from brinell.perturb.corruptions.fields import normal
from brinell.perturb.corruptions.severity import BAR, CORRUPTIONS
from brinell.perturb.property import find_property

sys.path.insert(0, str(Path(__file__).parents[2]))
from fidelity.published_bar import (
    VARIABLE,
    find_folder,
    import_published,
    published_classes,
    published_strengths,
)

FOLDER = find_folder()
pytestmark = pytest.mark.skipif(FOLDER is None, reason=f"{VARIABLE} names no copy of ImageNet-C-bar's code")
NAMES = [name for name, facts in CORRUPTIONS.items() if facts.family == BAR]
SEED, IMAGE = 3, 11
ROUNDED = 1.0  # of a grey level: the published code cuts off, brinell rounds
COARSE = 4.0  # at sharp edges, where positions are rounded to 1/128 of a pixel


@pytest.fixture(scope="module")
def published() -> ModuleType:
    assert FOLDER is not None
    return import_published(FOLDER)


def photograph(side: int) -> torch.Tensor:
    from skimage import data

    photo = torch.tensor(data.astronaut()).permute(2, 0, 1)[None].float()
    small = torch.nn.functional.interpolate(photo[:, :, :400, 60:460], (side, side), mode="area")
    return small.round().to(torch.uint8)


class Numbers:
    """Stand in for NumPy's `RandomState`: return our numbers in the order in which they are asked for."""

    def __init__(self, uniform: Any = (), normals: Any = ()) -> None:
        self._uniform, self._normals = iter(uniform), iter(normals)

    def uniform(self, size: tuple[int, ...], low: float = 0.0, high: float = 1.0) -> np.ndarray:
        return low + (high - low) * np.asarray(next(self._uniform)).reshape(size)

    def randn(self) -> float:
        return float(next(self._normals))


def single_frequency_greyscale(draws: Draws, side: int, drawn: dict[str, Any]) -> Numbers:
    first, second, phase, coin = draws.uniform(0, 4)[0].tolist()
    one = math.pi * (2 * first - 1)
    pair = [one, abs(one) * (2 * second - 1)]
    drawn.update(freq=pair if coin < 0.5 else pair[::-1], phase=2 * math.pi * phase)
    return Numbers()


def cocentric_sine_waves(draws: Draws, side: int, drawn: dict[str, Any]) -> Numbers:
    left, top, turns, swing, ring = draws.uniform(0, 5)[0].tolist()
    drawn.update(
        offset=[left * side, top * side], freq=10 * turns, amplitude=swing * side / 10, ring_width=ring * side / 10
    )
    return Numbers()


def plasma_noise(draws: Draws, side: int, drawn: dict[str, Any]) -> Numbers:
    moment, count, sharp, size = draws.uniform(0, 4)[0].tolist()
    drawn.update(time=6 * math.pi * moment, iterations=4 + int(3 * count), sharpness=0.5 + 0.5 * sharp)
    drawn.update(scale=(0.075 + 0.125 * size) * side)
    return Numbers()


def sparkles(draws: Draws, side: int, drawn: dict[str, Any]) -> Numbers:
    rays = [50 + int(150 * float(draws.uniform(2 * (1 + star), 1))) for star in range(5)]
    drawn.update(centers=side * draws.uniform(0, 10)[0].view(5, 2).numpy(), nrays=rays)
    lengths = (normal(draws, 2 * (1 + star) + 1, torch.Size([1, 200]))[0, : rays[star]] for star in range(5))
    return Numbers(normals=torch.cat(list(lengths)).tolist())


def inverse_sparkles(draws: Draws, side: int, drawn: dict[str, Any]) -> Numbers:
    drawn.update(center=side * (0.25 + 0.5 * draws.uniform(0, 2)[0].numpy()), rays=50 + int(150 * draws.uniform(2, 1)))
    return Numbers(normals=normal(draws, 3, torch.Size([1, 200]))[0].tolist())


def checkerboard_cutout(draws: Draws, side: int, drawn: dict[str, Any]) -> Numbers:
    angle, size = draws.uniform(0, 2)[0].tolist()
    scale = max(1.0, (0.1 + 0.15 * size) * side)
    drawn.update(angle=2 * math.pi * angle, scales=(scale, scale))
    cells = int(4 * side // scale)
    places = [
        index if index < cells // 2 else index - cells for index in range(cells)
    ]  # the upper half are negative places
    table = draws.uniform(1, 64 * 64)[0].view(64, 64).numpy()
    return Numbers(uniform=[table[np.ix_(places, places)]])


def blue_noise_sample(draws: Draws, side: int, drawn: dict[str, Any]) -> Numbers:
    return Numbers(uniform=[draws.uniform(0, side * (side // 2))])


def brownish_noise(draws: Draws, side: int, drawn: dict[str, Any]) -> Numbers:
    return Numbers(uniform=[draws.uniform(channel, side * (side // 2)) for channel in range(3)])


def perlin_noise(draws: Draws, side: int, drawn: dict[str, Any]) -> Numbers:
    return Numbers()  # its tables are replaced as a whole


def caustic_refraction(draws: Draws, side: int, drawn: dict[str, Any]) -> Numbers:
    moment, size = draws.uniform(0, 2)[0].tolist()
    drawn.update(time=0.5 + 1.5 * moment, size=(0.75 + 0.5 * size) * side)
    return Numbers()


def perlin_tables(module: ModuleType, draws: Draws) -> Callable[[Any], Any]:
    """Return what makes a published generator with our order of 256 slopes, and our slopes."""
    order = draws.uniform(0, 256)[0].argsort(stable=True).numpy()
    slopes = 2 * draws.uniform(1, 512)[0].view(2, 256).numpy().T - 1
    slopes /= np.linalg.norm(slopes, axis=1, keepdims=True)
    kind = module.PerlinNoiseGenerator

    def make(_: Any) -> Any:
        generator = kind(np.random.RandomState(0))
        generator.p, generator.g = np.tile(order, 3)[: len(generator.p)], np.tile(slopes, (3, 1))[: len(generator.g)]
        return generator

    return make


@pytest.mark.parametrize("side", [32, 224])
@pytest.mark.parametrize("name", NAMES)
def test_a_corruption_is_the_published_one_for_the_same_numbers(
    published: ModuleType, name: str, side: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert FOLDER is not None
    strengths = published_strengths(FOLDER, side).get(name) or published_strengths(FOLDER, 224)[name]
    clean, draws = photograph(side), Draws.of(key(SEED, name), torch.tensor([IMAGE]))
    picture = clean[0].permute(1, 2, 0).contiguous().numpy()
    if name == "perlin_noise":
        monkeypatch.setattr(published, "PerlinNoiseGenerator", perlin_tables(published, draws))
    for severity in (1, 5) if side == 224 else (1, 2, 3, 4, 5):
        corrupt = published_classes(published)[name](strengths[severity - 1], side)
        drawn = corrupt.sample_parameters()
        numbers = globals()[name](draws, side, drawn)
        with monkeypatch.context() as patched:
            if name != "perlin_noise":
                patched.setattr(np.random, "RandomState", lambda seed: numbers)  # noqa: B023
            there = corrupt.transform(picture, **drawn).astype(np.float64)
        amount = torch.full((1, 1), severity / 5, dtype=torch.float64)
        changed = find_property(f"{name}:{BAR}").apply(clean, amount, seed=SEED, ids=torch.tensor([IMAGE]))
        gap = np.abs(changed[0].permute(1, 2, 0).numpy() - there)
        most = COARSE if name == "caustic_refraction" else ROUNDED
        assert gap.max() <= most and np.quantile(gap, 0.99) <= ROUNDED, f"severity {severity}: {gap.max()}"


@pytest.mark.parametrize("side", [32, 224])
def test_strengths_are_the_published_ones(side: int) -> None:
    assert FOLDER is not None
    found = published_strengths(FOLDER, side)
    assert side == 32 or sorted(found) == sorted(NAMES)
    for name in set(found) & set(NAMES):
        assert [CORRUPTIONS[name].constants.at(severity, side, side)[0] for severity in range(1, 6)] == found[name]
