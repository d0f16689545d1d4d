"""Kernels that move images and find motions, interpreted: what tensor code gives, to rounding."""

from __future__ import annotations

from types import ModuleType

import pytest
import torch
from torch import Tensor, nn

from brinell.motion import frames as module
from brinell.motion.frames import Frames, Pixels
from brinell.motion.groups import GROUPS, Group

groups = pytest.mark.parametrize("group", GROUPS.values(), ids=list(GROUPS))
SIZES = torch.tensor([[33, 35], [33, 20], [17, 35]])


@pytest.fixture
def kernels(interpreted, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Kernels that `Frames.move` uses for float32; with float64 it makes a grid."""
    found: ModuleType = interpreted("frames")
    monkeypatch.setattr(module, "kernels_for", lambda name, tensor: found)
    return found


def both(channels: int, sizes: Tensor | None = SIZES) -> tuple[Frames, Frames]:
    """Return the same images, smooth and of one canvas, in single and in double precision."""
    coarse = torch.rand(3, channels, 5, 5, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    images = nn.functional.interpolate(coarse, (33, 35), mode="bicubic")
    exact = Frames.of(images, sizes)
    return Frames.of(exact.images.to(torch.float32), sizes), exact


def draw(group: Group, *shape: int) -> Tensor:
    noise = torch.randn(*shape, group.dimension, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    return noise * torch.tensor([3e-3 if part in ("b31", "b32") else 0.3 for part in group.parts], dtype=torch.float64)


@groups
@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("sizes", [None, SIZES], ids=["one size", "several sizes"])
def test_whole_images(kernels: ModuleType, group: Group, channels: int, sizes: Tensor | None) -> None:
    single, exact = both(channels, sizes)
    matrices = group.exp(draw(group, 3))
    assert torch.allclose(single.move(matrices).double(), exact.move(matrices), atol=1e-4)
    some = torch.tensor([2, 0, 0, 1])
    assert torch.equal(single.move(matrices[some], rows=some), single.move(matrices)[some])


@groups
def test_several_motions_of_each_image(kernels: ModuleType, group: Group) -> None:
    single, exact = both(3)
    matrices = group.exp(draw(group, 3, 2))
    moved = single.move(matrices)
    assert moved.shape == (3, 2, 3, 33, 35)
    assert torch.allclose(moved.double(), exact.move(matrices), atol=1e-4)
    assert torch.equal(moved[:, 1], single.move(matrices[:, 1]))


@pytest.mark.parametrize("shared", [True, False])
def test_the_pixels_that_a_model_sees(kernels: ModuleType, shared: bool) -> None:
    """They may lie outside of the whole image, where there is nothing."""
    group, (single, exact) = GROUPS["similarity"], both(3, None if shared else SIZES)
    rows = torch.tensor([1, 2, 0, 1, 1])
    matrices = group.exp(draw(group, 5))
    first = exact.corners if shared else exact.corners[rows]
    seen = Pixels(first[:, :1] + torch.arange(-2.0, 12), first[:, 1:] + torch.arange(3.0, 20))
    moved = single.move(matrices, seen, rows)
    assert moved.shape == (5, 3, 17, 14)
    assert torch.allclose(moved.double(), exact.select(rows).move(matrices, seen), atol=1e-4)


def test_what_lies_behind_the_camera_is_not_seen(kernels: ModuleType) -> None:
    group, (single, exact) = GROUPS["projective"], both(1, None)
    motion = torch.zeros(3, 8, dtype=torch.float64)
    motion[1, group.parts.index("b31")] = 0.15  # the horizon crosses this image alone
    matrices = group.exp(motion)
    moved = single.move(matrices)
    assert torch.allclose(moved.double(), exact.move(matrices), atol=1e-3)
    assert not moved[1].any(1).all() and torch.equal(moved[0], single.images[0])


@groups
def test_motions_along_elements(interpreted, group: Group) -> None:
    """As many as a program has and one more, of any length: exponentials as torch computes them."""
    coordinates = draw(group, 33) * torch.logspace(-3, 1, 33, dtype=torch.float64)[:, None]
    coordinates[::2, [part in ("b31", "b32") for part in group.parts]] = 0  # the divisor is constant, and not 1
    corners = torch.tensor([[-17.0, -16.0], [-9.5, -16.0], [-17.0, -8.0]]).double().repeat(11, 1)
    along = torch.tensor([[0.0, 0.5, 1.0]], dtype=torch.float64).repeat(33, 1)
    found = interpreted("paths").find_motions(group.algebra(coordinates), along, corners)
    expected = [module.sources(group.exp(coordinates * share), corners)[0] for share in (0.0, 0.5, 1.0)]
    assert found.shape == (33, 3, 9) and found.dtype == torch.float32
    assert torch.allclose(found.double(), torch.stack(expected, 1).flatten(2), rtol=1e-6, atol=1e-6)
