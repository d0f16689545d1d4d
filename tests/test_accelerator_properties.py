"""Properties and the global blur on an accelerator: kernels where there are some, and no waiting for the device."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from brinell.kernels import kernels_for
from brinell.perturb import smear
from brinell.perturb.blur import global_blur
from brinell.perturb.operator import find_operator
from brinell.perturb.property import PROPERTIES, Property
from brinell.perturb.warp import warp
from devices import never_waiting
from test_accelerator import pictures

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")

BUILT_IN = [pytest.param(found, id=found.id) for found in PROPERTIES.values() if not found.facts.family]
SIZES = [(8, 8), (31, 12), (33, 40), (230, 70)]


def some_severities(found: Property, height: int, width: int) -> Tensor:
    """Return severity 0, the weakest and the strongest of each direction, and one between."""
    points = [track[index] for track in found.tracks(height, width) for index in (0, len(track) // 3, -1)]
    return torch.stack([torch.zeros_like(points[0]), *points])


@pytest.mark.parametrize("name", ["levels", "noise", "smear", "warp", "weather", "box_blur"])
def test_there_are_kernels(name: str) -> None:
    assert kernels_for(name, torch.zeros(1, device="cuda")) is not None


@pytest.mark.parametrize("found", BUILT_IN)
@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_properties_are_those_of_the_cpu_and_wait_for_nothing(
    found: Property, channels: int, size: tuple[int, int]
) -> None:
    severities = some_severities(found, *size)
    clean, ids = pictures(*size, channels, len(severities)), torch.arange(len(severities)) * 7919 - 3
    there, ids_there, fields = clean.cuda(), ids.cuda(), torch.arange(len(severities)) % 3
    for kind in (found, replace(found, whole=False)):
        here = kind.apply(clean, severities, seed=5, ids=ids, fields=fields)
        kind.apply(there, severities, seed=5, ids=ids_there, fields=fields)  # compiles kernels, fills caches
        with never_waiting():
            made = kind.apply(there, severities, seed=5, ids=ids_there, fields=fields)
        assert made.dtype == here.dtype
        assert torch.equal(made.cpu(), here), f"{int((made.cpu() != here).sum())} values differ"
    assert torch.equal(there.cpu(), clean), "the input was overwritten"


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("size", [(1, 1), (2, 5), (3, 3), *SIZES], ids=str)
def test_a_global_blur_is_that_of_the_cpu(channels: int, size: tuple[int, int]) -> None:
    images = pictures(*size, channels)
    assert torch.equal(global_blur(images.cuda()).cpu(), global_blur(images))


def test_steps_of_an_operator_wait_for_nothing() -> None:
    images, stop = pictures(32, 32, 3).cuda(), torch.tensor([1, 2, 3, 1, 2, 3])
    given = {"seed": 0, "ids": torch.arange(6).cuda()}
    find_operator("global_blur").advance(images, torch.zeros_like(stop), stop, **given)
    with never_waiting():
        find_operator("global_blur").advance(images, torch.zeros_like(stop), stop, **given)


@pytest.mark.parametrize("size", SIZES, ids=str)
def test_a_warp_in_perspective_is_that_of_the_cpu(size: tuple[int, int]) -> None:
    near = torch.tensor([[1.1, 0.05, -3], [-0.02, 0.95, 2], [0.006, -0.009, 1]], dtype=torch.float64)
    behind = torch.tensor([[1.0, 0, 0], [0, 1, 0], [0.2, 0.1, -1]], dtype=torch.float64)
    images, matrices = pictures(*size, 3, 2), torch.stack([near, behind])
    assert torch.equal(warp(images.cuda(), matrices).cpu(), warp(images, matrices))


@pytest.mark.parametrize("edge_twice", [False, True])
@pytest.mark.parametrize("axis", [-1, -2])
@pytest.mark.parametrize(("reach", "bits", "depth"), [(1, 1, 8), (5, 7, 8), (40, 16, 8), (179, 16, 8), (179, 12, 12)])
def test_weighted_sums_are_those_of_the_cpu(axis: int, edge_twice: bool, reach: int, bits: int, depth: int) -> None:
    generator = torch.Generator().manual_seed(reach)
    most = (1 << bits) // (2 * reach + 1) + 1
    weights = torch.randint(0, most, (2, 2 * reach + 1), generator=generator)
    for size in ((224, 224), (140, 5), (20, 300)):
        images = torch.randint(0, 1 << depth, (2, 3, *size), generator=generator).to(torch.float32)
        given = {"edge_twice": edge_twice, "unit": 2.0**-8, "depth": depth}
        there = smear._weighted_sums(images.cuda(), weights, axis, **given)
        assert torch.equal(there.cpu(), smear._weighted_sums(images, weights, axis, **given))
