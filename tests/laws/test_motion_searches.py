"""ManiFool and Manitest step by step, on small images and models that are formulas: their way is pinned, query by query."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from brinell.lenses.geometry.manifool import ManiFoolSettings, _Pairs, _Search, default_retry, default_steps, manifool
from brinell.lenses.geometry.manitest import Grid, make_grid, manitest
from brinell.lenses.geometry.search import (
    AT_EDGE,
    FOOLED,
    LEFT_FRAME,
    NO_EFFECT,
    NOT_ON_GRID,
    ONE_CLASS,
    OUT_OF_NODES,
    OUT_OF_STEPS,
    UNANSWERED,
    WRONG_WHEN_CLEAN,
    ZERO_GRADIENT,
    PathSteps,
    SearchResult,
)
from brinell.lenses.method import NO_ANSWER, Task
from brinell.motion.frames import Frames
from brinell.motion.groups import GROUPS

SIDE = 14
PATH = PathSteps(eta=0.2, min_change=0.0)
LENGTHS = torch.tensor([0.25, 0.5, 1.0], dtype=torch.float64)
Model = Callable[[Tensor], Tensor]


class Scene:
    """A stage of a few images and a model."""

    def __init__(self, images: Tensor, model: Model) -> None:
        self.images, self.model, self.sizes = images, model, list[int]()

    def frames(self, samples: Tensor) -> Frames:
        return Frames.of(self.images[samples])

    def seen(self, samples: Tensor) -> Tensor | None:
        return None

    def scores(self, samples: Tensor, matrices: Tensor | None = None) -> tuple[Tensor, Tensor]:
        frames = self.frames(samples)
        values = self.model(frames.images if matrices is None else frames.move(matrices))
        return values, values.argmax(1).masked_fill(values.isnan().any(1), NO_ANSWER)

    def gradient(self, images: Tensor, samples: Tensor, plus: Tensor, minus: Tensor) -> Tensor:
        images = images.detach().requires_grad_()
        values = self.model(images)
        if not values.requires_grad:
            return torch.zeros_like(images)
        gap = values.gather(1, plus[:, None]) - values.gather(1, minus[:, None])
        return torch.autograd.grad(gap.sum(), images)[0].nan_to_num(0.0, 0.0, 0.0)

    def drive(self, search: Any) -> Any:
        """Run all tasks of a search; note how many images each query has."""
        done = None
        try:
            while True:
                task: Task = search.send(done)
                self.sizes += [len(task.samples)] if task.queries else []
                done = task.do(self, torch.arange(len(task.samples)))  # type: ignore[arg-type]
        except StopIteration as end:
            return end.value


def blobs(*places: tuple[float, float]) -> Tensor:
    at = torch.arange(SIDE, dtype=torch.float64) - (SIDE - 1) / 2
    each = [torch.exp(-((at[None] - x) ** 2 + 0.7 * (at[:, None] - y) ** 2) / 5) for x, y in places]
    return torch.stack(each)[:, None]


def centre(images: Tensor) -> tuple[Tensor, Tensor]:
    at = torch.arange(SIDE, dtype=images.dtype) - (SIDE - 1) / 2
    weight = images[:, 0].sum((1, 2)).clamp(min=1e-6)
    return (images[:, 0].sum(1) * at).sum(1) / weight, (images[:, 0].sum(2) * at).sum(1) / weight


def where(images: Tensor) -> Tensor:
    """Class 0 in the middle, 1 on the right, 2 far below, 3 beyond the image on the left."""
    x, y = centre(images)
    return torch.stack([torch.zeros_like(x), x - 2.2, (y - 2.6) * 1.5, -x - 20], 1)


def settings(**options: Any) -> ManiFoolSettings:
    given = {"step_lengths": LENGTHS, "momentum": 0.1, "max_steps": 8, "targets": 2, "path": PATH}
    return ManiFoolSettings(**(given | options))


def facts(found: SearchResult) -> list[tuple[Any, ...]]:
    columns = (found.reason, found.label, found.target, found.steps, found.queries, found.gradients)
    return list(zip(*(values.tolist() for values in columns), strict=True))


def numbers(found: SearchResult) -> list[float]:
    return [round(value, 6) for value in [*found.score.tolist(), *found.motion.flatten().tolist()]]


PLACES = ((0.1, -0.2), (1.0, 0.5), (-0.5, 1.8), (3.0, 0.3))
GOLDEN_MANIFOOL: list[tuple[Any, ...]] = [
    (
        "translation",
        {},
        [(0, 1, 1, 3, 33, 6), (0, 1, 1, 2, 17, 4), (0, 2, 2, 1, 17, 2), (0, 0, 0, 1, 17, 2)],
        [1.012956, 0.532218, 0.317911, 0.345589, -2.322, -0.0, -1.22, 0.0, 0.0, -0.865782, 0.790285, -0.0],
        [4, 8, 24, 8, 12, 4, 12, 4, 2, 6, 8, 6],
    ),
    (
        "rotation_translation",
        {"targets": 3, "drop": False},
        [(0, 1, 1, 3, 57, 14), (0, 1, 1, 2, 48, 13), (0, 2, 2, 1, 51, 12), (0, 0, 0, 1, 37, 4)],
        [
            1.012855,
            0.531963,
            0.318048,
            0.345556,
            0.000377,
            -2.322,
            -0.000389,
            -0.000718,
            -1.219999,
            0.000823,
            0.000904,
            0.001627,
            -0.86578,
            0.000217,
            0.790285,
            -0.00065,
        ],
        [4, 12, 36, 12, 18, 9, 27, 8, 7, 21, 16, 6, 3, 9, 3, 9, 3, 9, 3, 9, 3, 9],
    ),
    (
        "translation",
        {"momentum_inside": False, "momentum": 0.5},
        [(0, 1, 1, 2, 35, 5), (0, 1, 1, 2, 31, 4), (0, 2, 2, 1, 19, 2), (0, 0, 0, 1, 19, 2)],
        [0.953393, 0.567111, 0.317911, 0.345589, -2.185427, -0.0, -1.3, 0.0, 0.0, -0.865782, 0.790285, -0.0],
        [4, 8, 24, 8, 8, 12, 4, 12, 4, 12, 12, 1, 3, 1, 4],
    ),
    (
        "translation",
        {"max_steps": 2, "retry_lengths": torch.tensor([1.5], dtype=torch.float64)},
        [(0, 1, 1, 4, 31, 8), (0, 1, 1, 2, 17, 4), (0, 2, 2, 1, 17, 2), (0, 0, 0, 1, 17, 2)],
        [1.005629, 0.532218, 0.317911, 0.345589, -2.3052, -0.0, -1.22, 0.0, 0.0, -0.865782, 0.790285, -0.0],
        [4, 8, 24, 8, 12, 4, 12, 4, 2, 2, 2, 2, 8, 6],
    ),
    (
        "translation",
        {"backtrack": False, "targets": 1},
        [(0, 1, 1, 3, 10, 3), (0, 1, 1, 2, 7, 2), (0, 2, 2, 1, 4, 1), (0, 0, 0, 1, 4, 1)],
        [1.399711, 0.915851, 0.367195, 0.437297, -3.21, -0.0, -2.1, 0.0, 0.0, -1.0, 1.0, -0.0],
        [4, 4, 12, 2, 6, 1, 3],
    ),
    (
        "similarity",
        {"numerical": True, "left": True, "max_steps": 4},
        [(0, 1, 1, 3, 33, 6), (0, 1, 1, 2, 17, 4), (0, 2, 2, 1, 17, 2), (0, 0, 0, 2, 24, 3)],
        [
            0.947124,
            0.584881,
            0.317417,
            0.41397,
            0.247895,
            -2.229757,
            -0.267143,
            -0.001749,
            0.459995,
            -1.110362,
            -0.616593,
            0.006029,
            0.129023,
            0.204061,
            -0.83135,
            0.012201,
            -0.266503,
            0.937037,
            0.749035,
            -0.030507,
        ],
        [4, 8, 24, 8, 12, 5, 15, 8, 2, 6, 8, 6],
    ),
    (
        "affine",
        {"targets": 5, "max_steps": 3},
        [(0, 1, 1, 3, 42, 9), (0, 1, 1, 2, 23, 6), (0, 2, 2, 1, 20, 3), (0, 0, 0, 1, 60, 3)],
        [
            1.006054,
            0.528807,
            0.31123,
            0.347942,
            -0.00426,
            -2.315696,
            0.001163,
            0.002806,
            0.005707,
            -0.000952,
            0.027605,
            -1.217288,
            -0.032951,
            0.002341,
            0.00452,
            0.005172,
            0.007265,
            0.006836,
            -0.892328,
            0.009858,
            -0.018255,
            0.001134,
            -0.013839,
            0.943077,
            0.04443,
            -0.018595,
            -0.034051,
            -0.002519,
        ],
        [4, 12, 36, 16, 24, 20, 6, 18, 4, 3, 9, 8, 6],
    ),
]
GOLDEN_MANITEST: list[tuple[Any, ...]] = [
    (
        "translation",
        [5, 4],
        [1.0, 0.8],
        False,
        [(10, 2, 2, 0, 37, 0), (0, 2, 2, 0, 19, 0), (0, 2, 2, 0, 11, 0), (0, 0, 0, 0, 9, 0)],
        [1.175177, 0.881212, 0.584973, 0.437297, 0.0, -3.2, 0.0, -2.4, 0.0, -1.6, 1.0, 0.0],
        [4, 8, 24, 6, 16, 12, 6],
    ),
    (
        "translation",
        [5, 4],
        [1.0, 0.8],
        True,
        [(10, 2, 2, 0, 56, 0), (0, 1, 1, 0, 57, 0), (0, 2, 2, 0, 30, 0), (0, 0, 0, 0, 66, 0)],
        [1.058522, 0.545303, 0.323131, 0.349837, 0.0, -2.88, -1.25, 0.0, 0.0, -0.88, 0.8, 0.0],
        [4, 8, 24, 6, 16, 12, 6, 133],
    ),
    (
        "rotation_translation",
        [2, 5, 4],
        [0.3, 1.0, 0.8],
        False,
        [(0, 1, 1, 0, 112, 0), (0, 1, 1, 0, 45, 0), (0, 2, 2, 0, 29, 0), (0, 0, 0, 0, 35, 0)],
        [0.927203, 0.575814, 0.402566, 0.401032, -0.3, -2.0, 0.8, 0.6, -1.0, -0.8, 0.3, 1.0, -0.8, 0.3, 1.0, -0.8],
        [4, 2, 28, 41, 31, 58, 22, 35],
    ),
    (
        "rotation_translation",
        [2, 5, 4],
        [0.3, 1.0, 0.8],
        True,
        [(0, 1, 1, 0, 150, 0), (0, 1, 1, 0, 64, 0), (0, 2, 2, 0, 67, 0), (0, 0, 0, 0, 111, 0)],
        [0.927203, 0.547746, 0.347528, 0.349837, -0.3, -2.0, 0.8, 0.57, -0.95, -0.76, 0.495, 0.825, -0.66, 0.0, 0.8, 0.0],
        [4, 2, 28, 41, 31, 58, 22, 35, 171],
    ),
]


@pytest.mark.parametrize(
    ("group", "options", "expected", "close", "sizes"),
    GOLDEN_MANIFOOL,
    ids=[f"{one[0]} {', '.join(one[1]) or 'as it is'}" for one in GOLDEN_MANIFOOL],
)
def test_manifool_goes_its_way(
    group: str, options: dict[str, Any], expected: list[tuple[Any, ...]], close: list[float], sizes: list[int]
) -> None:
    scene = Scene(blobs(*PLACES), where)
    found = scene.drive(manifool(GROUPS[group], 4, settings(**options)))
    assert facts(found) == expected
    assert numbers(found) == pytest.approx(close, abs=2e-6)
    assert scene.sizes == sizes


@pytest.mark.parametrize(("group", "half", "steps", "backtrack", "expected", "close", "sizes"), GOLDEN_MANITEST)
def test_manitest_goes_its_way(
    group: str,
    half: list[int],
    steps: list[float],
    backtrack: bool,
    expected: list[tuple[Any, ...]],
    close: list[float],
    sizes: list[int],
) -> None:
    scene = Scene(blobs(*PLACES), where)
    grid = Grid(torch.tensor(half), torch.tensor(steps, dtype=torch.float64))
    found = scene.drive(manitest(GROUPS[group], 4, grid, path=PATH, backtrack=backtrack))
    assert facts(found) == expected
    assert numbers(found) == pytest.approx(close, abs=2e-6)
    assert scene.sizes == sizes


def constant(images: Tensor) -> Tensor:
    return torch.tensor([[1.0, 0.0, 0.5]], dtype=torch.float64).expand(len(images), -1)


def one_class(images: Tensor) -> Tensor:
    return images.flatten(1).sum(1, keepdim=True)


def brightness(images: Tensor) -> Tensor:
    """Class 0 whatever happens; the slope leads out of the frame."""
    light = images.sum((1, 2, 3))
    return torch.stack([torch.full_like(light, 1e4), -light], 1)


def silent(images: Tensor) -> Tensor:
    """No answer once the image has moved to the right a little."""
    scores = where(images)
    return scores.masked_fill((scores[:, 1] > -1.9)[:, None], torch.nan)


SMALL = Grid(torch.tensor([2, 2]), torch.tensor([0.5, 0.5], dtype=torch.float64))


@pytest.mark.parametrize(
    ("model", "image", "options", "reason", "on_grid"),
    [
        (where, torch.zeros(1, 1, SIDE, SIDE, dtype=torch.float64), {}, NO_EFFECT, NO_EFFECT),
        (constant, blobs((0, 0)), {}, ZERO_GRADIENT, NOT_ON_GRID),
        (one_class, blobs((0, 0)), {}, ONE_CLASS, NOT_ON_GRID),
        (brightness, blobs((4, 0)), {"max_steps": 60, "step_lengths": 3 * LENGTHS}, LEFT_FRAME, NOT_ON_GRID),
        (where, blobs((-3, -3)), {"max_steps": 2}, OUT_OF_STEPS, NOT_ON_GRID),
        (silent, blobs((0, 0)), {"targets": 1}, UNANSWERED, NOT_ON_GRID),
        (silent, blobs((1, 0)), {}, UNANSWERED, UNANSWERED),
    ],
    ids=["nothing there", "constant", "one class", "out of the frame", "too far", "silent", "silent when clean"],
)
def test_searches_end_with_a_reason(
    model: Model, image: Tensor, options: dict[str, Any], reason: int, on_grid: int
) -> None:
    found = Scene(image, model).drive(manifool(GROUPS["translation"], 1, settings(**options)))
    assert found.reason.tolist() == [reason] and found.score.tolist() == [torch.inf] and not found.motion.any()
    marched = Scene(image, model).drive(manitest(GROUPS["translation"], 1, SMALL, path=PATH))
    assert marched.reason.tolist() == [on_grid] and marched.score.tolist() == [torch.inf] and not marched.motion.any()


def test_the_truth_may_replace_the_answer() -> None:
    truth = torch.tensor([1, 0, 2, 1])
    scene = Scene(blobs(*PLACES), where)
    found = scene.drive(manifool(GROUPS["translation"], 4, settings(), truth))
    assert found.reason.tolist() == [WRONG_WHEN_CLEAN, FOOLED, WRONG_WHEN_CLEAN, FOOLED]
    grid = Grid(torch.tensor([5, 4]), torch.tensor([1.0, 0.8], dtype=torch.float64))
    marched = Scene(blobs(*PLACES), where).drive(manitest(GROUPS["translation"], 4, grid, path=PATH, truth=truth))
    assert marched.reason.tolist() == found.reason.tolist()
    assert marched.label.tolist()[0::2] == [0, 0], "what it answered"


def test_manitest_says_where_it_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    grid = Grid(torch.tensor([3, 3]), torch.tensor([1.0, 0.8], dtype=torch.float64))
    image = blobs((0.1, -0.2), (-2.0, 0.0))
    whole = Scene(image, where).drive(manitest(GROUPS["translation"], 2, grid, path=PATH))
    assert whole.reason.tolist() == [AT_EDGE, NOT_ON_GRID] and whole.queries.tolist()[1] == 49
    monkeypatch.setattr("brinell.lenses.geometry.manitest.NODES_AT_ONCE", 60)
    waves = Scene(image, where)
    apart = waves.drive(manitest(GROUPS["translation"], 2, grid, path=PATH))
    assert facts(apart) == facts(whole) and waves.sizes[0] == 1, "one image after another"
    monkeypatch.setattr("brinell.lenses.geometry.manitest.MAX_NODES", 9)
    few = Scene(image, where).drive(manitest(GROUPS["translation"], 2, grid, path=PATH))
    assert few.reason.tolist() == [OUT_OF_NODES] * 2 and max(few.queries.tolist()) < 20


def test_a_coordinate_without_effect_does_not_matter() -> None:
    """A single pixel in the centre doesn't change under rotations: neither its nodes nor the width of shells do."""
    image = torch.zeros(1, 1, 15, 15, dtype=torch.float64)
    image[..., 7, 7] = 1

    def left(images: Tensor) -> Tensor:
        where = (images[:, 0].sum(1) * torch.arange(15)).sum(1) / images.sum((1, 2, 3)).clamp(min=1e-6)
        return torch.stack([torch.zeros_like(where), 5.1 - where], 1)

    steps = torch.tensor([0.3, 0.5, 0.5], dtype=torch.float64)
    plain, with_rotation = Scene(image, left), Scene(image, left)
    grid, wider = Grid(torch.tensor([4, 4]), steps[1:]), Grid(torch.tensor([0, 4, 4]), steps)
    found = plain.drive(manitest(GROUPS["translation"], 1, grid, path=PATH, backtrack=False))
    again = with_rotation.drive(manitest(GROUPS["rotation_translation"], 1, wider, path=PATH))
    assert facts(again) == facts(found) and with_rotation.sizes == plain.sizes and len(plain.sizes) > 3
    assert found.reason.tolist() == [AT_EDGE]


def test_a_target_is_dropped_only_if_its_path_is_known_to_be_longer() -> None:
    """Of a reflection no logarithm is known, so nothing is known of its path."""
    group = GROUPS["affine"]
    result = SearchResult.empty(2, group.dimension, OUT_OF_STEPS)
    result.score[:] = 0.05
    reflection, far = torch.eye(3, dtype=torch.float64), torch.eye(3, dtype=torch.float64)
    reflection[0, 0], far[0, 2] = -1, 4.0
    assert not torch.isfinite(group.log(reflection[None])).all()
    pairs = _Pairs(torch.tensor([0, 1]), torch.tensor([1, 1]), torch.stack([reflection, far]), torch.zeros(2, 6))
    search = _Search(group, settings(), torch.tensor([0, 0]), result)
    left = Scene(blobs((0, 0), (0, 0)), where).drive(search._drop_losers(pairs))
    assert left.sample.tolist() == [0]


def test_grids_and_steps_are_the_published_ones() -> None:
    small, large = (make_grid(GROUPS["similarity"], side, 2 * side) for side in (28, 56))
    order = GROUPS["similarity"].parts
    for grid, pixel in ((small, 0.5), (large, 1.0)):
        steps = dict(zip(order, grid.steps.tolist(), strict=True))
        assert steps == pytest.approx({"rotation": torch.pi / 20, "x": pixel, "y": pixel, "scale": 0.1})
    assert dict(zip(order, small.half.tolist(), strict=True)) == {"rotation": 19, "x": 56, "y": 28, "scale": 10}
    for name in ("translation", "rotation_translation"):
        assert make_grid(GROUPS[name], 28, 28).steps.tolist()[-2:] == [0.25, 0.25]
    assert make_grid(GROUPS["rotation_translation"], 28, 28, 2.0).half.tolist()[1:] == [7, 7]
    assert [default_steps(side, 300) for side in (28, 29, 64, 65)] == [
        (10, 0.5, 0.1), (20, 1.0, 0.0), (20, 1.0, 0.0), (20, 1.0, 0.2),
    ]  # fmt: skip
    assert [default_retry(300, side) for side in (64, 65, 96)] == [0, 65 / 32, 3]
    defaults = ManiFoolSettings(LENGTHS, 0.0)
    assert (defaults.max_steps, defaults.targets, defaults.momentum_inside, defaults.backtrack, defaults.drop) == (
        50, 10, True, True, True,
    )  # fmt: skip
    assert not defaults.numerical and not defaults.left and defaults.retry_lengths is None
