"""The kernels of properties and of the global blur, interpreted on the CPU: the pixels of the tensor code, to the bit."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from types import ModuleType

import numpy as np
import pytest
import torch
from torch import Tensor

from brinell.perturb import blur, levels, noise, smear, warp, weather
from brinell.perturb.property import PROPERTIES, Property, PropertyKind

SIZES = [(8, 8), (31, 12), (33, 40)]
BUILT_IN = [found for found in PROPERTIES.values() if not found.facts.family]
FIELDS = {"uniform_noise": "noise", "gaussian_noise": "noise", "blended_noise": "noise", "salt_and_pepper": "noise"}
OTHERS = {"motion_blur": "smear", "gaussian_blur": "smear", "fog": "weather", "snow": "weather", **FIELDS}


Kernels = Callable[[], AbstractContextManager[set[str]]]


@pytest.fixture
def kernels(interpreted: Callable[[str], ModuleType]) -> Kernels:
    """Return a context in which tensor code uses interpreted kernels; it lists those that were asked for."""
    loaded = {name: interpreted(name) for name in ("levels", "noise", "smear", "warp", "weather")}

    @contextmanager
    def use() -> Iterator[set[str]]:
        used: set[str] = set()

        def kernels_for(name: str, tensor: Tensor) -> ModuleType:
            used.add(name)
            return loaded[name]

        with pytest.MonkeyPatch.context() as patch:
            for module in (levels, noise, smear, warp, weather):
                patch.setattr(module, "kernels_for", kernels_for)
            yield used

    return use


def pictures(height: int, width: int, channels: int, count: int) -> Tensor:
    """Return images of noise with parts in black and white, where sums have to be clipped."""
    values = np.random.default_rng(height).integers(0, 256, (count, channels, height, width), np.uint8)
    values[..., : width // 2] = np.where(values[..., : width // 2] > 127, 255, 0)
    return torch.from_numpy(values)


def some_severities(found: Property, height: int, width: int) -> Tensor:
    """Return severity 0, the weakest and the strongest of each direction, and one between."""
    tracks = found.tracks(height, width)
    points = [track[index] for track in tracks for index in (0, len(track) // 3, -1)]
    return torch.stack([torch.zeros_like(points[0]), *points])


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("found", [pytest.param(found, id=found.id) for found in BUILT_IN])
def test_properties(kernels: Kernels, found: Property, size: tuple[int, int], channels: int) -> None:
    severities = some_severities(found, *size)
    clean, ids = pictures(*size, channels, len(severities)), torch.arange(len(severities)) * 7919 - 3
    before = clean.clone()
    for kind in (found, replace(found, whole=False)):
        plain = kind.apply(clean, severities, seed=5, ids=ids)
        with kernels() as used:
            made = kind.apply(clean, severities, seed=5, ids=ids)
        assert made.dtype == plain.dtype
        assert torch.equal(made, plain), f"{int((made != plain).sum())} values differ"
        own = "warp" if found.kind is PropertyKind.MOTION else OTHERS.get(found.name)
        assert own is None or own in used
        assert "levels" in used or not kind.whole
    assert torch.equal(clean, before), "the input was overwritten"


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("size", [(1, 1), (2, 1), (2, 5), (3, 3), *SIZES, (70, 300)], ids=str)
def test_a_global_blur(interpreted: Callable[[str], ModuleType], size: tuple[int, int], channels: int) -> None:
    images = pictures(*size, channels, 2)
    images[:, :, size[0] // 2 :] = 255
    assert torch.equal(interpreted("box_blur").blur(images), blur._blur_by_opencv(images))


def test_whole_levels_are_rounded_half_to_even(kernels: Kernels) -> None:
    halves = torch.arange(-20, 1100).to(torch.float32) / 4
    values = torch.cat([halves, halves.nextafter(torch.tensor(0.0)), halves.nextafter(torch.tensor(300.0))])
    with kernels():
        made = levels.to_whole(values.clone())
    assert torch.equal(made, levels.to_whole(values))


def test_a_blend_rounds_products_before_their_sum(kernels: Kernels) -> None:
    generator = torch.Generator().manual_seed(0)
    images, fields = torch.rand(2, 3, 2, 9, 13, generator=generator) * 255
    keep, weight = torch.rand(2, 3, dtype=torch.float64, generator=generator)
    for field in (None, fields, fields[:, :1].contiguous(), fields[0], fields[0, :1]):
        plain = levels.blend(images.clone(), keep, weight, None if field is None else field.clone())
        with kernels():
            assert torch.equal(levels.blend(images.clone(), keep, weight, field), plain)
    with kernels():
        assert torch.equal(levels.blend(images.clone(), 0.3, 7), images * 0.3 + 7)


@pytest.mark.parametrize("size", SIZES, ids=str)
def test_a_warp_in_perspective(kernels: Kernels, size: tuple[int, int]) -> None:
    near = torch.tensor([[1.1, 0.05, -3], [-0.02, 0.95, 2], [0.006, -0.009, 1]], dtype=torch.float64)
    behind = torch.tensor([[1.0, 0, 0], [0, 1, 0], [0.2, 0.1, -1]], dtype=torch.float64)
    far = torch.tensor([[1e9, 0, 1e12], [0, 1e-9, 5], [0, 0, 1]], dtype=torch.float64)
    images, matrices = pictures(*size, 3, 4), torch.stack([near, behind, far, torch.eye(3, dtype=torch.float64)])
    for flat in (False, True):  # the first two are not
        some = slice(2, None) if flat else slice(None)
        with kernels():
            made = warp.warp(images[some], matrices[some])
        assert torch.equal(made, warp.warp(images[some], matrices[some]))


@pytest.mark.parametrize("edge_twice", [False, True])
@pytest.mark.parametrize("axis", [-1, -2])
@pytest.mark.parametrize(("reach", "bits", "depth"), [(1, 1, 8), (5, 7, 8), (5, 14, 8), (40, 10, 12), (150, 3, 12)])
def test_weighted_sums(kernels: Kernels, axis: int, edge_twice: bool, reach: int, bits: int, depth: int) -> None:
    """Weights of no symmetry that reach beyond several mirror images, and images longer than a program's block."""
    chance = np.random.default_rng(reach)
    weights = torch.from_numpy(chance.integers(0, (1 << bits) // (reach + 1) + 2, (2, 2 * reach + 1)))
    for size in ((3, 140), (140, 5), (20, 9)):
        images = torch.from_numpy(chance.integers(0, 1 << depth, (2, 3, *size))).to(torch.float32)
        given = {"edge_twice": edge_twice, "unit": 0.25, "depth": depth}
        with kernels():
            made = smear._weighted_sums(images, weights, axis, **given)
        assert torch.equal(made, smear._weighted_sums(images, weights, axis, **given))


def test_a_gaussian_as_narrow_or_as_wide_as_can_be(kernels: Kernels) -> None:
    """A weight of 65,536 alone, and weights that are folded several times."""
    found = next(one for one in BUILT_IN if one.name == "gaussian_blur")
    images, severities = pictures(8, 60, 3, 5), torch.tensor([1e-9, 1e-3, 0.02, 0.3, 1.0], dtype=torch.float64)[:, None]
    for given in (images, images.mT.contiguous()):
        with kernels():
            made = found.apply(given, severities, seed=0, ids=torch.arange(5))
        assert torch.equal(made, found.apply(given, severities, seed=0, ids=torch.arange(5)))
