"""The kernel that follows paths of moving images, interpreted: the lengths that made and compared images have."""

from __future__ import annotations

from types import ModuleType

import pytest
import torch
from torch import Tensor, nn

from brinell.motion import paths
from brinell.motion.frames import Frames
from brinell.motion.geodesic import Rays, geodesic_scores, trace_rays
from brinell.motion.groups import GROUPS, Group
from brinell.motion.paths import FusedPaths, MovedPaths

groups = pytest.mark.parametrize("group", GROUPS.values(), ids=list(GROUPS))


@pytest.fixture
def kernels(interpreted) -> ModuleType:
    found: ModuleType = interpreted("paths")
    return found


def pictures(count: int, channels: int = 3, height: int = 25, width: int = 23) -> Tensor:
    coarse = torch.rand(count, channels, 5, 5, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    return nn.functional.interpolate(coarse, (height, width), mode="bicubic")


def several_sizes(channels: int = 3) -> Frames:
    """Images of three sizes on one canvas of more pixels than a program has."""
    return Frames.of(pictures(3, channels, 33, 35), torch.tensor([[33, 35], [33, 20], [17, 35]]))


def in_single(frames: Frames) -> Frames:
    sizes = (1 - 2 * frames.corners).flip(1).to(torch.int64).expand(len(frames.images), -1)
    return Frames.of(frames.images.to(torch.float32), sizes)


def draw(group: Group, count: int) -> Tensor:
    noise = torch.randn(count, group.dimension, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    small = torch.tensor([1e-3 if part in ("b31", "b32") else 1.0 for part in group.parts], dtype=torch.float64)
    return noise * small


@groups
def test_gains_between_stops(kernels: ModuleType, group: Group) -> None:
    exact = several_sizes()
    directions = draw(group, 3) / 5
    made, fused = MovedPaths(exact, group, directions), FusedPaths(kernels, in_single(exact), group, directions)
    along = torch.linspace(0.1, 1.9, 19, dtype=torch.float64) * torch.tensor([[1.0], [0.8], [1.2]])  # more than STOPS
    along[1] = along[1].clamp(max=0.9)  # this one arrives before the others
    for part in (along[:, :2], along[:, 2:]):
        expected, found = made.advance(part), fused.advance(part)
        assert found.dtype == torch.float64
        assert torch.allclose(found, expected, rtol=1e-4, atol=2e-5)
    assert not fused.advance(along[:, -1:])[1].any()
    some = torch.tensor([True, False, True])
    made, fused = made.select(some), fused.select(some)
    assert fused.rows.tolist() == made.rows.tolist() == [0, 2]
    further = along[some, -1:] + 0.3
    assert torch.allclose(fused.advance(further), made.advance(further), rtol=1e-4, atol=2e-5)
    start = further[:, 0]
    away = torch.stack([made.leave(start)(start + step) for step in (0.2, -0.4)], 1)
    at_once = fused.leave(start[:, None].expand(-1, 2))(start[:, None] + torch.tensor([0.2, -0.4]))
    assert torch.allclose(at_once, away, rtol=1e-4, atol=2e-5)


@pytest.mark.parametrize("channels", [1, 3])
def test_one_image_of_a_single_pixel(kernels: ModuleType, channels: int) -> None:
    frames, group = Frames.of(torch.full((1, channels, 1, 1), 2.0)), GROUPS["translation"]
    fused = FusedPaths(kernels, frames, group, torch.tensor([[1.0, 0.0]], dtype=torch.float64))
    gains = fused.advance(torch.tensor([[0.25, 0.75, 1.0, 1.5]], dtype=torch.float64))
    expected = 2 * channels**0.5 * torch.tensor([[0.25, 0.5, 0.25, 0.0]], dtype=torch.float64)
    assert torch.allclose(gains, expected, atol=1e-6)


def test_pixels_behind_the_camera_are_not_seen(kernels: ModuleType) -> None:
    group, frames = GROUPS["projective"], Frames.of(pictures(1))
    directions = torch.zeros(1, 8, dtype=torch.float64)
    directions[0, group.parts.index("b31")] = 0.3  # the horizon crosses the image
    made, fused = MovedPaths(frames, group, directions), FusedPaths(kernels, in_single(frames), group, directions)
    along = torch.tensor([[0.5, 1.0, 3.0]], dtype=torch.float64)
    assert torch.allclose(fused.advance(along), made.advance(along), rtol=1e-3, atol=1e-3)


def test_scores_and_rays(kernels: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    group, frames = (
        GROUPS["similarity"],
        Frames.of(pictures(2, 1, 15, 17).to(torch.float32), torch.tensor([[15, 17], [12, 9]])),
    )
    motion = torch.tensor([[0.3, 2.0, 0.0, 0.1], [0.0, -1.0, 2.0, 0.0]], dtype=torch.float64)
    directions = motion / motion.norm(dim=1, keepdim=True)
    wanted = torch.tensor([0.0, 0.1, 0.35, 8.0])

    def measure() -> tuple[Tensor, Tensor, Rays]:
        bound = geodesic_scores(frames, group, motion, most=4)
        return geodesic_scores(frames, group, motion), bound, trace_rays(frames, group, directions, wanted)

    whole, bound, rays = measure()
    monkeypatch.setattr(paths, "kernels_for", lambda name, tensor: kernels)
    assert isinstance(paths.paths_along(frames, group, directions), FusedPaths)
    monkeypatch.setattr(FusedPaths, "stride", 7)
    monkeypatch.setattr(FusedPaths, "checked", 5)
    own, own_bound, own_rays = measure()
    assert torch.allclose(own, whole, rtol=1e-3) and torch.allclose(own_bound, bound, rtol=1e-3)
    assert torch.equal(own_rays.reached, rays.reached) and rays.reached.any() and not rays.reached.all()
    assert torch.allclose(own_rays.reach, rays.reach, rtol=1e-2, atol=1e-6)
    assert torch.allclose(own_rays.scores, rays.scores, rtol=1e-2, atol=1e-6)


def test_an_image_does_not_depend_on_its_batch(kernels: ModuleType) -> None:
    group, frames = GROUPS["affine"], in_single(several_sizes())
    directions = draw(group, 3) / 5
    along = torch.linspace(0.1, 0.5, 3, dtype=torch.float64).repeat(3, 1)
    together = FusedPaths(kernels, frames, group, directions).advance(along)
    for row in range(3):
        index = torch.tensor([row])
        alone = FusedPaths(kernels, frames.select(index), group, directions[index]).advance(along[index])
        assert torch.equal(alone, together[index])
    apart = FusedPaths(kernels, frames, group, directions).select(torch.tensor([False, True, False]))
    assert torch.equal(apart.advance(along[1:2]), together[1:2])
