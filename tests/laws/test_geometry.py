"""Laws for motions of images: groups compared with SciPy, Jacobians with finite differences, and scores."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.linalg
import torch
from torch import Tensor

from brinell.motion.frames import Frames, Pixels
from brinell.motion.geodesic import chords, geodesic_scores, trace_rays
from brinell.motion.groups import GROUPS, Group, half_turns, logarithm
from brinell.motion.jacobian import (
    flows,
    gram,
    jacobian,
    jacobian_gram,
    metric,
    numerical_jacobian,
    project_gradient,
    pullback,
    solve_normal_equations,
)
from brinell.motion.names import GROUP_FACTS, describe

groups = pytest.mark.parametrize("group", GROUPS.values(), ids=list(GROUPS))
SMALL = {"b31": 0.002, "b32": 0.002}
TYPICAL = {"rotation": 0.5, "x": 3.0, "y": 3.0}


def draw_motions(group: Group, count: int, seed: int = 0) -> Tensor:
    """Draw motions that keep most of an image of 80 pixels in the frame."""
    sizes = torch.tensor([SMALL.get(part, TYPICAL.get(part, 0.2)) for part in group.parts], dtype=torch.float64)
    noise = torch.randn(count, group.dimension, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return noise * sizes


def blobs(count: int, height: int = 80, width: int = 88, channels: int = 1) -> Frames:
    """Return smooth images that are zero near their borders."""
    generator = torch.Generator().manual_seed(1)
    y, x = torch.meshgrid(*(torch.arange(side, dtype=torch.float64) for side in (height, width)), indexing="ij")
    images = torch.zeros(count, channels, height, width, dtype=torch.float64)
    for image in images.flatten(0, 1):
        for _ in range(3):
            cx, cy, spread, weight = torch.rand(4, generator=generator, dtype=torch.float64).tolist()
            far = (x - width * (0.35 + 0.3 * cx)) ** 2 + (y - height * (0.35 + 0.3 * cy)) ** 2
            image += (0.2 + weight) * torch.exp(-far / (2 * (height * (0.1 + 0.05 * spread)) ** 2))
    radius = ((x - (width - 1) / 2) ** 2 + (y - (height - 1) / 2) ** 2).sqrt() / (0.38 * min(height, width))
    return Frames.of(images * torch.cos(radius.clamp(max=1) * math.pi / 2) ** 2)


def test_the_groups_of_the_paper_have_their_dimensions() -> None:
    expected = {
        "rotation": 1,
        "translation": 2,
        "rotation_scale": 2,
        "rotation_translation": 3,
        "scale_translation": 3,
        "similarity": 4,
        "affine": 6,
        "projective": 8,
    }
    assert {name: GROUPS[name].dimension for name in expected} == expected


@groups
def test_exponential_and_logarithm_equal_those_of_scipy(group: Group) -> None:
    coordinates = draw_motions(group, 30)
    matrices = group.exp(coordinates)
    for own, matrix, algebra in zip(coordinates, matrices, group.algebra(coordinates), strict=True):
        assert np.allclose(matrix, scipy.linalg.expm(algebra.numpy()), atol=1e-12)
        assert np.allclose(logarithm(matrix), scipy.linalg.logm(matrix.numpy()).real, atol=1e-9)
        assert torch.allclose(group.log(matrix), own, atol=1e-9)


def test_the_logarithm_inverts_the_exponential_up_to_a_half_turn() -> None:
    group = GROUPS["similarity"]
    turns = torch.tensor([[3.1, 2.0, -1.0, 0.4], [-3.0, 0.0, 5.0, -0.7], [0.0, 0.0, 0.0, 0.0]], dtype=torch.float64)
    assert torch.allclose(group.log(group.exp(turns)), turns, atol=1e-7)
    assert (half_turns(group, turns) < 1).all()
    assert (half_turns(group, torch.tensor([[3.2, 0, 0, 0]], dtype=torch.float64)) > 1).all()


@groups
def test_products_of_motions_stay_in_the_group(group: Group) -> None:
    first, second = group.exp(draw_motions(group, 10, 1)), group.exp(draw_motions(group, 10, 2) / 4)
    product = first @ second
    assert torch.allclose(group.exp(group.log(product)), product, atol=1e-8)


@groups
def test_the_right_jacobian_is_the_derivative_of_the_exponential(group: Group) -> None:
    coordinates, tiny = draw_motions(group, 5), 1e-6
    jacobian = group.right_jacobian(coordinates)
    for index in range(group.dimension):
        nudge = torch.zeros(group.dimension, dtype=torch.float64)
        nudge[index] = tiny
        moved = torch.linalg.solve(group.exp(coordinates), group.exp(coordinates + nudge))
        assert torch.allclose(group.log(moved) / tiny, jacobian[:, :, index], atol=1e-4)


def test_translations_by_whole_pixels_shift_the_array() -> None:
    image = torch.rand(1, 2, 9, 12, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    moved = Frames.of(image).move(GROUPS["translation"].exp(torch.tensor([[2.0, -3.0]])))
    expected = torch.zeros_like(image)
    expected[:, :, 3:, :-2] = image[:, :, :-3, 2:]
    assert torch.allclose(moved, expected, atol=1e-9)


def test_a_half_turn_flips_both_axes() -> None:
    image = torch.rand(1, 1, 8, 11, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    moved = Frames.of(image).move(GROUPS["rotation"].exp(torch.tensor([[math.pi]], dtype=torch.float64)))
    assert torch.allclose(moved, image.flip(2, 3), atol=1e-9)


@groups
def test_motions_are_inverse_maps_that_compose_on_the_right(group: Group) -> None:
    frames = blobs(2)
    first, second = group.exp(draw_motions(group, 2, 3) / 2), group.exp(draw_motions(group, 2, 4) / 2)
    twice = Frames.of(frames.move(first)).move(second)
    once = frames.move(first @ second)
    assert (twice - once).abs().max() < 0.02 * frames.images.max()


@groups
def test_several_motions_of_an_image_equal_single_ones(group: Group) -> None:
    frames = blobs(2, 20, 26, channels=3)
    ways = torch.stack([group.exp(draw_motions(group, 2, seed) / 4) for seed in range(3)], 1)
    together = frames.move(ways)
    assert together.shape == (2, 3, 3, 20, 26)
    for index in range(3):
        assert torch.allclose(together[:, index], frames.move(ways[:, index]))


@groups
def test_seen_pixels_equal_those_of_the_whole_moved_image(group: Group) -> None:
    frames, motion = blobs(2, 24, 30), group.exp(draw_motions(group, 2) / 4)
    seen = Pixels(frames.pixels.x[:, 3:20], frames.pixels.y[:, 5:11])
    assert torch.allclose(frames.move(motion, seen), frames.move(motion)[..., 5:11, 3:20])


@groups
@pytest.mark.parametrize("sizes", [None, torch.tensor([[20, 26], [17, 26], [20, 13]])], ids=["one size", "several"])
def test_gram_matrices_without_columns_equal_those_of_columns(group: Group, sizes: Tensor | None) -> None:
    whole = torch.rand(3, 2, 20, 26, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    frames = Frames.of(whole, sizes)
    images = frames.move(group.exp(draw_motions(group, 3) / 4))
    gradient = torch.randn(images.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    if frames.inside is not None:
        gradient = gradient * frames.inside
    seen = torch.zeros(1, 1, 20, 26, dtype=torch.bool)
    seen[..., 2:15, 4:20] = True
    columns = jacobian(images, frames, flows(group, frames))
    assert torch.allclose(jacobian_gram(images, frames, group), gram(columns))
    assert torch.allclose(jacobian_gram(images, frames, group, seen), gram(columns * seen[:, None]))
    along = (columns.flatten(2) @ gradient.flatten(1)[..., None])[..., 0]
    assert torch.allclose(pullback(images, gradient, frames, group), along)
    assert torch.allclose(solve_normal_equations(gram(columns), along), project_gradient(columns, gradient))


@groups
def test_the_jacobian_agrees_with_finite_differences(group: Group) -> None:
    frames = blobs(3, channels=2)
    matrices = group.exp(draw_motions(group, 3) / 2)
    columns = jacobian(frames.move(matrices), frames, flows(group, frames))
    for index, part in enumerate(group.parts):
        step = (0.5 if part in "xy" else 0.5 / 40) / (
            40 if part in SMALL else 1
        )  # half a pixel at the border, in both directions
        ahead, behind = (numerical_jacobian(frames, matrices, group, step=way)[:, index] for way in (step, -step))
        own, other = columns[:, index], (ahead + behind) / 2
        assert (own - other).norm() < 0.1 * other.norm(), part
        assert torch.corrcoef(torch.stack([own.flatten(), other.flatten()]))[0, 1] > 0.995, part


def test_the_image_gradient_uses_central_differences_with_zeros_outside() -> None:
    frames, group = Frames.of(torch.rand(1, 1, 6, 7, dtype=torch.float64)), GROUPS["translation"]
    still = torch.eye(3, dtype=torch.float64)[None]
    both = (numerical_jacobian(frames, still, group, 1.0) + numerical_jacobian(frames, still, group, -1.0)) / 2
    assert torch.allclose(jacobian(frames.images, frames, flows(group, frames)), both, atol=1e-9)


def test_smaller_images_in_larger_frames_move_as_if_alone() -> None:
    group = GROUPS["affine"]
    alone = blobs(1, 30, 26)
    around = torch.zeros(2, 1, 80, 88, dtype=torch.float64)
    around[0, :, :30, :26] = alone.images[0]
    around[1] = blobs(1).images[0]
    both = Frames.of(around, torch.tensor([[30, 26], [80, 88]]))
    motion = draw_motions(group, 2, 5)
    assert torch.allclose(both.move(group.exp(motion))[0, :, :30, :26], alone.move(group.exp(motion[:1]))[0])
    assert torch.allclose(geodesic_scores(both, group, motion)[0], geodesic_scores(alone, group, motion[:1])[0])
    columns = jacobian(both.move(group.exp(motion)), both, flows(group, both))
    own = jacobian(alone.move(group.exp(motion[:1])), alone, flows(group, alone))
    assert torch.allclose(gram(columns)[0], gram(own)[0])


@groups
def test_projecting_a_gradient_is_least_squares(group: Group) -> None:
    frames = blobs(3)
    columns = jacobian(frames.images, frames, flows(group, frames))
    gradient = torch.randn(frames.images.shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    found = project_gradient(columns, gradient)
    for own, column, slope in zip(found, columns, gradient, strict=True):
        expected = np.linalg.lstsq(column.flatten(1).T.numpy(), slope.flatten().numpy(), rcond=None)[0]
        assert np.allclose(own, expected, rtol=1e-5, atol=1e-9 * np.abs(expected).max())


def test_projecting_onto_a_zero_jacobian_gives_zero() -> None:
    frames = Frames.of(torch.zeros(2, 1, 8, 8))
    columns = jacobian(frames.images, frames, flows(GROUPS["affine"], frames))
    assert torch.equal(project_gradient(columns, torch.ones(2, 1, 8, 8)), torch.zeros(2, 6, dtype=torch.float64))


@groups
def test_the_metric_measures_small_changes_of_coordinates(group: Group) -> None:
    frames, where = blobs(1), draw_motions(group, 1) / 2
    matrices = group.exp(where)
    found = metric(group, where, gram(jacobian(frames.move(matrices), frames, flows(group, frames))))[0]
    nudge = draw_motions(group, 1, 9)[0] / 100
    apart = (frames.move(group.exp(where + nudge)) - frames.move(matrices)).norm()
    assert float((nudge @ found @ nudge).sqrt()) == pytest.approx(float(apart), rel=0.05)


@groups
def test_geodesic_scores(group: Group) -> None:
    """They are 0 without a motion, don't depend on the scale of pixels, grow along the path and are at least the chord."""
    frames, motion = blobs(2), draw_motions(group, 2, 6)
    length = geodesic_scores(frames, group, motion)
    assert geodesic_scores(frames, group, 0 * motion).max() < 1e-12
    assert torch.allclose(geodesic_scores(Frames.of(255 * frames.images), group, motion), length)
    assert (length >= chords(frames, group.exp(motion)) - 1e-9).all()
    half = geodesic_scores(frames, group, motion / 2, eta=0.02, min_change=0)
    rest = Frames.of(frames.images)
    whole = geodesic_scores(rest, group, motion, eta=0.02, min_change=0)
    assert (whole > half).all()
    assert torch.allclose(length, whole, rtol=0.03)


@groups
def test_a_score_with_few_stops_is_a_lower_bound(group: Group) -> None:
    frames, motion = blobs(4), draw_motions(group, 4, 8)
    for min_change in (0.0, 0.02):
        whole = geodesic_scores(frames, group, motion, min_change=min_change)
        bounds = [geodesic_scores(frames, group, motion, min_change=min_change, most=most) for most in (1, 4, 12)]
        assert all((bound <= whole + 1e-9).all() for bound in bounds)
        assert torch.allclose(bounds[0], chords(frames, group.exp(motion)))
        assert torch.allclose(geodesic_scores(frames, group, motion, min_change=min_change, most=10_000), whole)


def test_a_score_is_the_sum_over_the_steps_of_the_paper() -> None:
    frames, group = blobs(1), GROUPS["rotation_translation"]
    motion = torch.tensor([[0.12, 0.31, -0.2]], dtype=torch.float64)
    length = float(motion.norm())
    stops = [i * 0.05 / length for i in range(int(length / 0.05) + 1)] + [1.0]
    path = [frames.move(group.exp(stop * motion)) for stop in stops]
    expected = sum(float((a - b).norm()) for a, b in zip(path[1:], path, strict=False)) / float(frames.norms())
    assert float(geodesic_scores(frames, group, motion, min_change=0)) == pytest.approx(expected, rel=1e-9)


@groups
def test_rays_reach_the_wanted_scores(group: Group) -> None:
    frames = blobs(5)
    directions = draw_motions(group, 5, 7)
    directions /= directions.norm(dim=1, keepdim=True)
    wanted = torch.tensor([0.0, 0.05, 0.15, 0.9])
    found = trace_rays(frames, group, directions, wanted)
    assert found.reached[:, :3].all()
    assert torch.equal(found.reach[:, 0], torch.zeros(5, dtype=torch.float64))
    assert (found.scores - wanted).abs()[found.reached].max() < 0.01
    again = geodesic_scores(frames, group, directions * found.reach[:, 2:3])
    assert torch.allclose(again, found.scores[:, 2], atol=0.01)


def test_a_ray_ends_outside_the_frame_or_beyond_a_half_turn() -> None:
    frames = blobs(1)
    along = torch.tensor([[1.0, 0.0]], dtype=torch.float64)
    assert not trace_rays(frames, GROUPS["translation"], along, torch.tensor([50.0])).reached.any()
    turn = trace_rays(frames, GROUPS["rotation"], torch.ones(1, 1, dtype=torch.float64), torch.tensor([0.5, 50.0]))
    assert turn.reached.tolist() == [[True, False]]
    nothing = trace_rays(Frames.of(torch.zeros(1, 1, 9, 9)), GROUPS["translation"], along, torch.tensor([0.1]))
    assert not nothing.reached.any()


def test_a_motion_is_described_as_the_image_moves() -> None:
    assert (
        describe(GROUP_FACTS["similarity"], [0.2, 3.0, -1.0, 0.1]) == "11.5° anticlockwise, 3 px left, 1 px down, × 0.905"
    )
    image = torch.zeros(1, 1, 9, 9)
    image[..., 4, 6] = 1
    moved = Frames.of(image).move(GROUPS["translation"].exp(torch.tensor([[3.0, 0.0]])))
    assert moved[..., 4, 3] == pytest.approx(1)  # 3 px to the left
    turned = Frames.of(image).move(GROUPS["rotation"].exp(torch.tensor([[math.pi / 2]])))
    assert turned[..., 2, 4] == pytest.approx(1, abs=1e-5)  # from the right to the top: anticlockwise
