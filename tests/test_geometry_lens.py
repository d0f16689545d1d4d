"""The geometry lens: motions whose size is known, laws of the searches, degenerate input, and a run end to end."""

from __future__ import annotations

import dataclasses
import json
import math
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import brinell
from brinell.criteria.criterion import find_criterion
from brinell.engine.evaluator import Evaluator
from brinell.errors import BrinellError, ConfigError
from brinell.lenses.geometry.black_box import RandomMotions, grid_motions, grid_search, random_motions
from brinell.lenses.geometry.findings import GeometryFindings
from brinell.lenses.geometry.lens import count_trials, manifool_settings, measure, select_motions
from brinell.lenses.geometry.manifool import manifool
from brinell.lenses.geometry.manitest import Grid, make_grid, manitest
from brinell.lenses.geometry.options import GeometryOptions
from brinell.lenses.geometry.rows import SCORE_LIMIT
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
    ZERO_GRADIENT,
    PathSteps,
)
from brinell.lenses.geometry.show import charts
from brinell.lenses.geometry.statistics import Rate
from brinell.lenses.method import Categorical
from brinell.motion.geodesic import geodesic_scores
from brinell.motion.groups import GROUPS, Group
from brinell.perturb.motion import Motion
from brinell.runs.statistics import Estimate

SIDE = 28
SIZE = (SIDE, SIDE)
TRANSLATION = GROUPS["translation"]
EXACT = PathSteps(eta=0.05, min_change=0)


class Where(nn.Module):
    """Scores of where an image's weight lies: class 0 left of `edge` (in pixels from the middle), class 1 right of it."""

    def __init__(self, edge: float = 4.0, classes: int = 2) -> None:
        super().__init__()
        self.edge, self.classes = edge, classes

    def forward(self, images: Tensor) -> Tensor:
        x = torch.arange(images.shape[3], dtype=images.dtype, device=images.device) - (images.shape[3] - 1) / 2
        weight = images.mean(1).sum(1)
        along = (weight * x).sum(1) / weight.sum(1).clamp(min=1e-3) - self.edge
        others = [along - 2 * k for k in range(self.classes - 1)]
        return torch.stack([torch.zeros_like(along), *others], 1)


class Random(nn.Module):
    """A small network of random weights with ten classes."""

    def __init__(self, classes: int = 10) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        self.layers = nn.Sequential(nn.Conv2d(1, 6, 5, 2), nn.Tanh(), nn.Conv2d(6, 8, 5, 2), nn.Tanh(), nn.Flatten())
        self.last = nn.Linear(8 * 4 * 4, classes)
        for parameter in self.parameters():
            nn.init.normal_(parameter, std=0.3, generator=generator)

    def forward(self, images: Tensor) -> Tensor:
        scores: Tensor = self.last(self.layers(images))
        return scores


def model(module: nn.Module, **options: Any) -> brinell.Model:
    given = {"size": SIDE, "channels": 1, "name": "m", **options}
    return brinell.wrap(module, **given, execution=brinell.Execution(device="cpu", runtime="torch"))


def bench(module: nn.Module, images: Tensor, batch: int = 64, **options: Any) -> Evaluator:
    """A bench on images (N, C, H, W) in grey levels, whose ids are their places."""
    asked = model(module, **options)
    inputs = asked.preprocess.inputs(images)
    labels = asked.predict(inputs).argmax(1)
    originals = list(images) if asked.preprocess.short_side else []
    criterion = find_criterion("misclassification")
    ids = torch.arange(len(images)) * 7919
    return Evaluator.of(asked, inputs, ids, labels, criterion=criterion, seed=0, batch=batch, originals=originals)


def blobs(places: list[tuple[float, float]], side: int = SIDE) -> Tensor:
    """Round blobs, (x, y) pixels from the middle, uint8 (N, 1, side, side)."""
    middle = (side - 1) / 2
    at = torch.arange(side, dtype=torch.float64) - middle
    images = [255 * torch.exp(-((at[None] - x) ** 2 + (at[:, None] - y) ** 2) / 8) for x, y in places]
    return torch.stack(images).round().to(torch.uint8)[:, None]


def shapes(count: int) -> Tensor:
    generator = torch.Generator().manual_seed(5)
    places = (torch.rand(count, 3, 2, generator=generator) * 12 - 6).tolist()
    return torch.stack([blobs([tuple(place) for place in three]).amax(0) for three in places])  # type: ignore[misc]


def searched(asked: Evaluator, group: str = "translation", **options: Any) -> Any:
    given = GeometryOptions(operators=(group,), methods=("manifool",), **options)
    return asked.drive(manifool(GROUPS[group], len(asked.renderer.inputs), manifool_settings(given, SIDE, SIDE)))  # type: ignore[arg-type]


def test_manifool_finds_the_shortest_way_to_a_known_edge() -> None:
    """A blob at x has to go 4 - x pixels to the right; anything along y is for nothing."""
    asked = bench(Where(4.0), blobs([(0.0, 0.0), (-3.0, 2.0), (1.5, -4.0)]))
    found = searched(asked)
    assert found.reason.tolist() == [FOOLED] * 3
    assert found.label.tolist() == [1, 1, 1]
    assert (-found.motion[:, 0] - torch.tensor([4.0, 7.0, 2.5])).abs().max() < 0.1  # shares of a step of half a pixel
    assert found.motion[:, 1].abs().max() < 0.05
    frames = asked.stage.frames(torch.arange(3))
    assert torch.allclose(found.score, geodesic_scores(frames, TRANSLATION, found.motion))


def test_manitest_finds_the_same_to_a_step_of_its_grid() -> None:
    asked = bench(Where(4.0), blobs([(0.0, 0.0), (-3.0, 2.0), (1.5, -4.0)]))
    found = asked.drive(manitest(TRANSLATION, 3, make_grid(TRANSLATION, SIDE, SIDE), path=EXACT))  # type: ignore[arg-type]
    assert found.reason.tolist() == [FOOLED] * 3
    excess = -found.motion[:, 0] - torch.tensor([4.0, 7.0, 2.5])
    assert (excess > -0.01).all()
    assert (excess < 0.26).all()
    assert found.motion[:, 1].abs().max() <= 0.25


def test_the_image_that_fools_has_another_label_and_a_bit_less_motion_has_not() -> None:
    asked = bench(Random(), shapes(12))
    group = GROUPS["affine"]
    found = searched(asked, "affine")
    won = (found.reason == FOOLED).nonzero()[:, 0]
    assert len(won) >= 10
    frames = asked.stage.frames(won)
    _, labels = asked.stage.scores(won, group.exp(found.motion[won]))
    _, clean = asked.stage.scores(won)
    assert torch.equal(labels, found.label[won])
    assert (labels != clean).all()
    shorter = geodesic_scores(frames, group, found.motion[won])
    assert (searched(asked, "affine", backtrack=False).score[won] >= shorter - 1e-9).float().mean() > 0.9


def test_neither_batches_nor_company_change_what_is_found() -> None:
    images = shapes(6)
    together = searched(bench(Random(), images), "similarity")
    small = searched(bench(Random(), images, batch=1), "similarity")
    for place in range(6):
        alone = searched(bench(Random(), images[place : place + 1]), "similarity")
        for found, row in ((together, place), (small, place)):
            assert found.reason[row] == alone.reason[0]
            assert float(found.score[row]) == pytest.approx(float(alone.score[0]), rel=1e-3)


def test_dropping_targets_changes_nothing_but_the_cost() -> None:
    asked = bench(Random(), shapes(12))
    kept, dropped = searched(asked, "similarity", drop=False), searched(asked, "similarity")
    assert torch.allclose(kept.score, dropped.score)
    assert dropped.queries.sum() < kept.queries.sum()


def test_momentum_may_be_added_after_the_line_search() -> None:
    asked = bench(Random(), shapes(12))
    still = [searched(asked, "similarity", momentum=0, momentum_inside=inside) for inside in (True, False)]
    assert torch.allclose(still[0].score, still[1].score, rtol=1e-5)
    moved = [searched(asked, "similarity", momentum=0.8, momentum_inside=inside, max_step=4.0) for inside in (True, False)]
    assert not torch.allclose(moved[0].score, moved[1].score, rtol=1e-3)
    won = (moved[1].reason == FOOLED).nonzero()[:, 0]
    labels = asked.stage.scores(won, GROUPS["similarity"].exp(moved[1].motion[won]))[1]
    assert len(won) and torch.equal(labels, moved[1].label[won])


def test_of_all_targets_the_least_score_counts() -> None:
    asked = bench(Random(), shapes(4))
    every = [searched(asked, "similarity", targets=count).score for count in (1, 4, 9)]
    assert (every[1] <= every[0] + 1e-5).all()
    assert (every[2] <= every[1] + 1e-5).all()


def test_a_second_try_with_longer_steps_is_for_images_that_the_first_did_not_fool() -> None:
    asked, few = bench(Random(), shapes(24)), {"max_steps": 2, "step_lengths": 6}
    first, longer, both = (
        searched(asked, "affine", **few, **own) for own in ({"retry": 0}, {"max_step": 4, "retry": 0}, {"retry": 4})
    )
    missed = first.reason != FOOLED
    assert 0 < missed.sum() < 24 and (longer.reason[missed] == FOOLED).any()
    for name in ("score", "motion", "label", "reason"):
        one, two, own = (getattr(found, name) for found in (first, longer, both))
        expected = torch.where(missed.view(-1, *[1] * (one.ndim - 1)), two, one)
        assert torch.allclose(own, expected, rtol=1e-5), name  # networks round by the size of a batch
    assert torch.equal(both.steps, torch.where(missed & (longer.reason == FOOLED), longer.steps + 2, first.steps))
    assert torch.equal(both.queries, first.queries + missed * (longer.queries - 1))  # the clean image is asked once


def test_photographs_get_a_second_try_and_small_images_do_not() -> None:
    assert manifool_settings(GeometryOptions(), 32, 32).retry_lengths is None
    retry = manifool_settings(GeometryOptions(), 256, 340).retry_lengths
    assert retry is not None and float(retry[-1]) == pytest.approx(8)
    assert manifool_settings(GeometryOptions(retry=0), 256, 340).retry_lengths is None


def test_manitest_in_four_dimensions_is_about_as_near_as_manifool() -> None:
    asked = bench(Random(), shapes(2))
    group = GROUPS["similarity"]
    found = asked.drive(manitest(group, 2, make_grid(group, SIDE, SIDE), path=EXACT))  # type: ignore[arg-type]
    assert found.reason.tolist() == [FOOLED] * 2
    slope = searched(asked, "similarity")
    assert (found.score <= slope.score + 0.25).all()  # no more than a step of the grid


def test_manitests_candidates_fool_and_are_no_longer_than_the_nearest_node() -> None:
    """The first node by the metric, or with backtracking the shortest direct path of its shell, shortened."""
    asked, group = bench(Random(), shapes(6)), GROUPS["rotation_translation"]
    grid = make_grid(group, SIDE, SIDE, 0.5)
    nearest, best = (
        asked.drive(manitest(group, 6, grid, path=EXACT, backtrack=back))  # type: ignore[arg-type]
        for back in (False, True)
    )
    on_grid = nearest.motion / grid.steps
    assert torch.allclose(on_grid, on_grid.round(), atol=1e-9)
    assert (best.score <= nearest.score + 1e-9).all()
    assert (best.score < nearest.score - 1e-3).any()
    rows = torch.arange(6)
    for found in (nearest, best):
        _, labels = asked.stage.scores(rows, group.exp(found.motion))
        assert torch.equal(labels, found.label)
        assert (labels != asked.clean.verdict.prediction).all()
        assert torch.allclose(geodesic_scores(asked.stage.frames(rows), group, found.motion, min_change=0), found.score)
        assert (
            found.queries <= count_trials(GeometryOptions(grid_pixels=0.5), Motion(group, "manitest"), SIZE, SIZE)
        ).all()


def test_manitest_says_when_a_smaller_motion_may_lie_beyond_its_grid() -> None:
    """A blob has to go 4 pixels: the front of a grid that ends after 2 along y is at its edge before, that of 6 is not."""
    asked = bench(Where(4.0), blobs([(0.0, 0.0)]))
    for reach, reason in ((2, AT_EDGE), (6, FOOLED)):
        grid = Grid(torch.tensor([6, reach]), torch.ones(2, dtype=torch.float64))
        found = asked.drive(manitest(TRANSLATION, 1, grid, path=EXACT))  # type: ignore[arg-type]
        assert found.reason.tolist() == [reason]


def test_rows_and_findings_say_that_the_edge_was_reached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def small(group: Group, height: int, width: int, pixels: float | None) -> Grid:
        return Grid(torch.tensor([6, 2]), torch.ones(2, dtype=torch.float64))

    monkeypatch.setattr("brinell.lenses.geometry.lens.make_grid", small)
    lens = {"name": "geometry", "operators": ["translation"], "methods": ["manitest"]}
    data = [(image, 0) for image in blobs([(0.0, 0.0), (3.2, 0.0)])]
    run = brinell.run(model(Where(4.0)), data, lens=lens, out=tmp_path / "run", quiet=True)
    rows = run.rows("select status, reason from rows order by score").fetchall()
    assert rows == [("broken", ""), ("broken", "a smaller motion may lie beyond the edge of the grid")]
    found = run.summary()
    assert isinstance(found, GeometryFindings)
    note = "for 1 of 2 fooled images a smaller motion may lie beyond the edge of the grid"
    assert found.smallest["m", "translation:manitest"].edge_note == note
    assert note in Path(run.report()).read_text(encoding="utf-8")


def test_manitest_says_when_it_runs_out_of_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("brinell.lenses.geometry.manitest.MAX_NODES", 20)
    asked = bench(Where(9.0), blobs([(0.0, 0.0)]))
    found = asked.drive(manitest(TRANSLATION, 1, make_grid(TRANSLATION, SIDE, SIDE, 1.0), path=EXACT))  # type: ignore[arg-type]
    assert found.reason.tolist() == [OUT_OF_NODES]


class Constant(nn.Module):
    def forward(self, images: Tensor) -> Tensor:
        return torch.tensor([[1.0, 0.0, 0.5]]).expand(len(images), -1)


class OneClass(nn.Module):
    def forward(self, images: Tensor) -> Tensor:
        return images.flatten(1).sum(1, keepdim=True)


class Silent(nn.Module):
    """Gives NaN for images that are neither plain nor unmoved."""

    def forward(self, images: Tensor) -> Tensor:
        middle = images[:, 0, 13:15, 13:15].mean((1, 2))
        return torch.stack([middle - 0.9, -middle + 0.9], 1).masked_fill(
            ((middle > 0.6) & (middle < 0.93))[:, None], torch.nan
        )


class Bright(nn.Module):
    """Class 0 whatever happens, and the less so the darker the image: the slope leads out of the frame."""

    def forward(self, images: Tensor) -> Tensor:
        return torch.stack([torch.full((len(images),), 1e4), -images.sum((1, 2, 3))], 1)


def flat(value: int) -> Tensor:
    return torch.full((1, 1, SIDE, SIDE), value, dtype=torch.uint8)


@pytest.mark.parametrize(
    ("module", "images", "options", "reason"),
    [
        (Random(), flat(0), {}, NO_EFFECT),
        (Constant(), blobs([(0, 0)]), {}, ZERO_GRADIENT),
        (OneClass(), blobs([(0, 0)]), {}, ONE_CLASS),
        (Bright(), blobs([(8, 0)]), {"max_steps": 500, "max_step": 5.0}, LEFT_FRAME),
        (Where(40.0), blobs([(0, 0)]), {"max_steps": 3}, OUT_OF_STEPS),
    ],
    ids=["nothing in the image", "a constant model", "one class", "out of the frame", "too far"],
)
def test_degenerate_input_ends_with_a_reason(
    module: nn.Module, images: Tensor, options: dict[str, Any], reason: int
) -> None:
    asked = bench(module, images)
    found = searched(asked, "translation", **options)
    assert found.reason.tolist() == [reason]
    assert torch.isinf(found.score).all()
    assert not found.motion.any()
    coarse = Grid(torch.tensor([3, 3]), torch.tensor([3.0, 3.0], dtype=torch.float64))
    marched = asked.drive(manitest(TRANSLATION, 1, coarse, path=EXACT))  # type: ignore[arg-type]
    assert marched.reason.tolist() == [NO_EFFECT if reason == NO_EFFECT else NOT_ON_GRID]


class Dead(nn.Module):
    """As `Where`, with a third class whose score never moves."""

    def __init__(self, edge: float) -> None:
        super().__init__()
        self.where = Where(edge)

    def forward(self, images: Tensor) -> Tensor:
        return torch.cat([self.where(images), torch.full((len(images), 1), -50.0)], 1)


def test_a_target_without_a_slope_takes_nothing_from_the_others() -> None:
    asked = bench(Dead(6.0), blobs([(0, 0)]))
    assert searched(asked, max_steps=3, retry=0).reason.tolist() == [OUT_OF_STEPS]
    assert searched(asked, max_steps=3, retry=4).reason.tolist() == [FOOLED]


class SilentLeft(nn.Module):
    """Class 1 beyond a pixel to the right; no number for a small move to the left."""

    def forward(self, images: Tensor) -> Tensor:
        scores = Where(1.0)(images)
        left = (scores[:, 1] < -1.2) & (scores[:, 1] > -1.9)
        return scores.masked_fill(left[:, None], torch.nan)


def test_a_motion_without_an_answer_is_not_one_that_fools() -> None:
    asked = bench(SilentLeft(), blobs([(0, 0)]))
    motions = grid_motions(TRANSLATION, SIDE, SIDE, 4000)
    found: Any = asked.drive(grid_search(TRANSLATION, torch.tensor([0]), motions, EXACT))  # type: ignore[arg-type]
    assert found.unanswered.tolist() == [True]
    assert found.label.tolist() == [1] and float(found.motion[0, 0]) < -1  # an inverse map: to the right


@pytest.mark.parametrize("name", ["retry", "max_step", "eta"])
def test_numbers_are_finite(name: str) -> None:
    with pytest.raises(ValueError, match="finite"):
        GeometryOptions(**{name: math.inf})


def test_one_length_is_the_longest() -> None:
    settings = manifool_settings(GeometryOptions(step_lengths=1, max_step=0.7), 256, 256)
    assert settings.step_lengths.tolist() == [0.7]
    assert settings.retry_lengths is not None and settings.retry_lengths.tolist() == [8.0]


@pytest.mark.parametrize("group", list(GROUPS))
def test_a_constant_image_ends(group: str) -> None:
    """Zeros come in at the border, so there is something to follow; it may fool or not, but ends and is no NaN."""
    found = searched(bench(Random(), flat(128)), group)
    assert found.reason.tolist()[0] in (FOOLED, OUT_OF_STEPS, NO_EFFECT, LEFT_FRAME)
    assert torch.isfinite(found.motion).all()
    assert not found.score.isnan().any()


def test_a_model_that_gives_no_number_failed() -> None:
    found = searched(bench(Silent(), blobs([(0, 0)])))
    assert found.reason.tolist() == [UNANSWERED]


def test_the_truth_may_count_instead_of_the_answer() -> None:
    asked = bench(Where(4.0), blobs([(0.0, 0.0), (6.0, 0.0)]))
    asked.labels[:] = 0
    inputs, ids = asked.renderer.inputs, asked.renderer.ids
    rows = _rows(Evaluator.of(asked.model, inputs, ids, asked.labels, criterion=asked.criterion, seed=0, batch=8))
    assert rows("answer") == ["broken", "broken"]
    assert rows("truth") == ["broken", "skipped"]


def _rows(asked: Evaluator) -> Callable[[str], list[str]]:
    def statuses(against: str, method: Any = "manifool") -> list[str]:
        options = GeometryOptions(operators=("translation",), methods=(method,), against=against)  # type: ignore[arg-type]
        columns = asked.drive(measure(asked.shard(), Motion(TRANSLATION, method), options))
        status = columns["status"]
        assert isinstance(status, Categorical)
        return [status.categories[code] for code in status.codes.tolist()]

    return statuses


def test_the_whole_image_moves_and_then_the_models_crop_follows() -> None:
    """A model that sees the middle 20 of 28 pixels: what lies outside comes in."""
    images = blobs([(0.0, 0.0), (0.0, 12.0)])
    asked = bench(Where(1.0), images, size=20, short_side=28)
    frames = asked.stage.frames(torch.arange(2))
    assert frames.images.shape == (2, 1, 28, 28)
    matrices = TRANSLATION.exp(torch.tensor([[-3.0, 0.0], [0.0, 6.0]]))
    seen = asked.renderer.moving.view(torch.arange(2), matrices)
    assert seen.shape == (2, 1, 20, 20)
    expected = torch.zeros(2, 1, 20, 20)
    expected[0] = images[0, :, 4:24, 1:21].float() / 255
    expected[1] = images[1, :, 10:30, 4:24].float().new_zeros(1, 20, 20)
    expected[1, :, :18] = images[1, :, 10:28, 4:24].float() / 255
    assert torch.allclose(seen, expected, atol=1e-5)
    mask = asked.stage.seen(torch.arange(2))
    assert mask is not None
    whole = frames.move(matrices)
    assert torch.allclose(whole[mask.expand_as(whole)].view_as(seen), seen, atol=1e-5)
    still, _ = asked.stage.scores(torch.arange(2))
    assert torch.allclose(still.softmax(1), asked.model.predict(asked.renderer.inputs), atol=1e-6)
    found = searched(asked)
    assert found.reason[0] == FOOLED
    assert float(-found.motion[0, 0]) == pytest.approx(1.0, abs=0.1)


def test_images_of_several_sizes_move_side_by_side() -> None:
    wide = torch.nn.functional.pad(blobs([(0.0, 0.0)])[0], (10, 10))  # 28 by 48
    asked_model = model(Where(1.0), size=20, short_side=28)
    originals = [blobs([(0.0, 0.0)])[0], wide]
    inputs = torch.stack([asked_model.preprocess.model_input(image) for image in originals])
    criterion = find_criterion("misclassification")
    both = Evaluator.of(
        asked_model,
        inputs,
        torch.arange(2),
        torch.zeros(2, dtype=torch.int64),
        criterion=criterion,
        seed=0,
        batch=8,
        originals=originals,
    )
    found = searched(both)
    assert found.reason.tolist() == [FOOLED, FOOLED]
    assert torch.allclose(found.motion[0], found.motion[1], atol=0.05)


def every(samples: int, draws: int, wanted: Tensor) -> Tensor:
    """All scores of all draws."""
    return torch.ones(samples, draws, len(wanted), dtype=torch.bool)


def test_random_motions_have_the_scores_that_were_asked_for() -> None:
    asked, group = bench(Random(), shapes(5)), GROUPS["similarity"]
    wanted = torch.tensor([0.0, 0.5, 1.0, 2.0], dtype=torch.float64)
    found = asked.drive(random_motions(group, every(5, 3, wanted), wanted=wanted, whitened=False, path=PathSteps()))  # type: ignore[arg-type]
    assert len(found.sample) == 5 * 3 * 4
    assert (found.score - found.wanted).abs()[found.reached].max() < 0.01
    there = found.reached.nonzero()[:, 0]
    frames = asked.stage.frames(found.sample[there])
    assert torch.allclose(geodesic_scores(frames, group, found.motion[there]), found.score[there], atol=0.01)
    assert torch.equal(found.label[found.wanted == 0], asked.clean.verdict.prediction.repeat_interleave(3))
    directions = found.motion[found.wanted == 1.0]
    directions = directions / directions.norm(dim=1, keepdim=True)
    assert len(torch.unique(directions.round(decimals=6), dim=0)) == 15  # every image and draw its own
    again = bench(Random(), shapes(5), batch=2).drive(
        random_motions(group, every(5, 3, wanted), wanted=wanted, whitened=False, path=PathSteps())  # type: ignore[arg-type]
    )
    assert torch.allclose(again.motion, found.motion, atol=1e-6)


@pytest.mark.parametrize("share", [1.0, 0.3])
def test_random_motions_are_the_same_however_they_are_traced(share: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rays are traced by the shapes of images, a few at a time; rows keep the order of images, draws and scores."""
    asked, group = bench(Random(), shapes(5)), GROUPS["similarity"]
    wanted = torch.tensor([0.5, 1.0, 9.0], dtype=torch.float64)  # the last one is out of reach
    chosen = torch.rand(5, 4, 3, generator=torch.Generator().manual_seed(1)) < share
    sizes = torch.tensor([[30, 20], [20, 30], [20, 20], [20, 30], [40, 10]])

    def find(**options: Any) -> RandomMotions:
        given = {"wanted": wanted, "whitened": True, "path": PathSteps(), **options}
        found: Any = asked.drive(random_motions(group, chosen, **given))  # type: ignore[arg-type]
        return found

    expected = find()
    assert (~expected.reached).any() and expected.reached.any()
    order = expected.sample * 100 + expected.draw * 10 + expected.level
    assert torch.equal(order, order.sort().values) and len(order) == chosen.sum()
    monkeypatch.setattr("brinell.lenses.geometry.black_box.RAYS", 3)
    found = find(sizes=sizes)
    for each in dataclasses.fields(RandomMotions):
        assert torch.equal(getattr(found, each.name), getattr(expected, each.name)), each.name


def test_whitened_directions_change_an_image_alike() -> None:
    """In raw units a random similarity is mostly rotation and scale; by the metric each part has its share."""
    asked, group = bench(Random(), shapes(3)), GROUPS["similarity"]
    wanted = torch.tensor([0.3], dtype=torch.float64)
    raw, white = (
        asked.drive(random_motions(group, every(3, 60, wanted), wanted=wanted, whitened=way, path=PathSteps()))  # type: ignore[arg-type]
        for way in (False, True)
    )
    share = [(found.motion[:, 1:3].norm(dim=1) / found.motion.norm(dim=1)).median() for found in (raw, white)]
    assert share[0] < 0.85
    assert share[1] > 0.95


def test_the_grid_search_is_the_least_of_all_fooling_motions() -> None:
    asked, group = bench(Random(), shapes(3)), GROUPS["rotation_translation"]
    motions = grid_motions(group, SIDE, SIDE, 130)
    assert len(motions) == 5**3 - 1
    original = asked.clean.verdict.prediction
    found = asked.drive(grid_search(group, original, motions, EXACT))  # type: ignore[arg-type]
    for place in range(3):
        rows = torch.full((len(motions),), place)
        frames = asked.stage.frames(rows)
        _, labels = asked.stage.scores(rows, group.exp(motions))
        length = geodesic_scores(frames, group, motions, min_change=0)
        fooling = labels != original[place]
        assert float(found.share[place]) == pytest.approx(float(fooling.double().mean()))
        if bool(fooling.any()):
            assert float(found.score[place]) == pytest.approx(float(length[fooling].min()))
        else:
            assert torch.isinf(found.score[place])


def test_models_without_gradients_are_searched_without_them() -> None:
    black = dataclasses.replace(model(Where(4.0)), differentiable=None)
    data = [(image, 0) for image in blobs([(0.0, 0.0), (1.0, 1.0)])]
    with pytest.raises(
        ConfigError, match=r"^similarity:manifool needs gradients, and model m has none .*; use the methods random"
    ):
        brinell.run(black, data, lens={"name": "geometry", "methods": ["manifool"]}, quiet=True)


def test_manitest_and_grid_refuse_groups_that_are_too_large() -> None:
    with pytest.raises(ConfigError, match="up to 4 coordinates, but affine has 6"):
        select_motions(GeometryOptions(operators=("affine",), methods=("manitest",)))
    with pytest.raises(ConfigError, match="has more than 1000 motions"):
        select_motions(GeometryOptions(operators=("projective",), methods=("grid",)))
    every = select_motions(GeometryOptions(operators=("all",), methods=("manifool", "manitest", "random", "grid")))
    assert len(every) == 8 + 6 + 8 + 7
    with pytest.raises(BrinellError, match="did you mean similarity"):
        select_motions(GeometryOptions(operators=("similar",)))


def test_no_search_asks_more_than_it_says() -> None:
    asked = bench(Random(), shapes(4))
    for search in select_motions(
        GeometryOptions(operators=("translation", "similarity"), methods=("manifool", "manitest", "random", "grid"))
    ):
        before = asked.queries
        options = GeometryOptions(operators=(search.name,), draws=2)
        asked.drive(measure(asked.shard(), search, options))  # type: ignore[arg-type]
        assert asked.queries - before <= 4 * count_trials(options, search, SIZE, SIZE)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> brinell.Run:
    """Two models, one of which has no gradients, on a few shapes."""
    images = shapes(6)
    white = model(Random(), name="white", classes=[f"kind {k}" for k in range(10)])
    black = dataclasses.replace(model(Where(3.0, 10), name="black"), differentiable=None)
    data = [(image, 0) for image in images]
    lens = {"name": "geometry", "operators": ["similarity", "translation"], "draws": 2, "radii": [0.0, 1.0, 3.0]}
    folder = tmp_path_factory.mktemp("runs") / "geometry"
    return brinell.run([white, black], data, lens=lens, out=folder, quiet=True)


def test_a_run_has_a_row_an_image_and_a_row_a_random_motion(run: brinell.Run) -> None:
    counts = dict(run.rows("select model || ' ' || operator, count(*) from rows group by all").fetchall())
    assert counts == {
        "white similarity:manifool": 6,
        "white translation:manifool": 6,
        **{f"{name} {group}:random": 36 for name in ("white", "black") for group in ("similarity", "translation")},
    }
    assert {entry["reason"] for entry in run.manifest["unsupported"]} == {"the model has no gradients"}
    still = run.rows("select distinct status from rows where amount = 0").fetchall()
    assert still == [("survived",)]


def test_a_row_can_be_replayed(run: brinell.Run) -> None:
    """The motion that a row tells gives the label and the score that it tells."""
    asked, group = bench(Random(), shapes(6)), GROUPS["similarity"]
    rows = run.rows(
        """select samples.index, motion, prediction, score from rows join samples using (image)
           where model = 'white' and operator = 'similarity:manifool' and status = 'broken'"""
    ).fetchall()
    assert rows
    for index, motion, prediction, score in rows:
        own = torch.tensor([motion], dtype=torch.float64)
        frames = asked.stage.frames(torch.tensor([index]))
        _, labels = asked.stage.scores(torch.tensor([index]), group.exp(own))
        assert labels.tolist() == [prediction]
        assert float(geodesic_scores(frames, group, own)) == pytest.approx(score, rel=1e-5)


def test_findings_are_those_of_the_rows(run: brinell.Run) -> None:
    found = run.summary()
    assert isinstance(found, GeometryFindings)
    one = found.smallest["white", "similarity:manifool"]
    mean, fooled = run.rows(
        "select avg(score), count(score) from rows where model = 'white' and operator = 'similarity:manifool'"
    ).fetchall()[0]
    assert one.rho_hat.value == pytest.approx(mean)
    assert (one.fooled, one.fooled + one.failed) == (fooled, 6)
    rates = found.rates["white", "similarity:random"]
    assert [rate.score for rate in rates] == [0, 1, 3]
    assert rates[0].changed.value == 0
    assert all(rate.worst.value >= rate.changed.value for rate in rates)
    told = json.loads(json.dumps(found.to_json(), allow_nan=False))
    assert told["verdicts"].keys() == {"white", "black"}
    shares = [share.mean for share in found.shares if share.operator == "similarity:manifool"]
    assert sum(shares) == pytest.approx(1)


def test_what_a_second_try_found_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from brinell.cli.main import main

    lens = {
        "name": "geometry",
        "operators": ["affine"],
        "methods": ["manifool"],
        "max_steps": 2,
        "step_lengths": 6,
        "retry": 4,
    }
    data = [(image, 0) for image in shapes(24)]
    run = brinell.run(model(Random(), name="white"), data, lens=lens, out=tmp_path / "run", quiet=True)
    found = run.summary()
    assert isinstance(found, GeometryFindings)
    (one,) = found.smallest.values()
    retried, first = run.rows("select count(*) filter (steps > 2), avg(score) filter (steps <= 2) from rows").fetchall()[0]
    assert (one.by_retry, one.first_try.value) == (retried, pytest.approx(first)) and 0 < retried < one.fooled
    said = f"{retried} of {one.fooled} fooled by a second try, whose longer steps find larger motions"
    assert said in Path(run.report()).read_text(encoding="utf-8")
    main(["summary", str(tmp_path / "run")])
    assert said in " ".join(capsys.readouterr().out.split())


def test_models_are_ranked_with_the_images_that_they_withstand(tmp_path: Path) -> None:
    """The sturdy model is fooled on two images, by small motions: its mean over fooled images is the smaller one."""
    images = blobs([(3.0, 0.0), (3.2, 0.0), *[(-5.0, y / 2) for y in range(-10, 10)]])
    lens = {
        "name": "geometry",
        "operators": ["translation"],
        "methods": ["manifool"],
        "max_steps": 8,
        "max_step": 1.0,
        "retry": 0,
    }
    models = [model(Where(4.0), name="sturdy"), model(Where(-1.0), name="fragile")]
    run = brinell.run(models, [(image, 0) for image in images], lens=lens, out=tmp_path / "run", quiet=True)
    found = run.summary()
    assert isinstance(found, GeometryFindings)
    sturdy, fragile = (found.smallest[name, "translation:manifool"] for name in ("sturdy", "fragile"))
    assert (sturdy.fooled, sturdy.failed) == (2, 20) and fragile.fooled == 22
    assert sturdy.rho_hat.value < fragile.rho_hat.value < SCORE_LIMIT
    assert found.models == ["sturdy", "fragile"]
    values = run.rows("select least(score, 2) from rows where model = 'sturdy' and status = 'broken'").fetchall()
    assert sturdy.restricted_mean.value == pytest.approx((sum(value for (value,) in values) + 20 * SCORE_LIMIT) / 22)
    assert fragile.restricted_mean.high < sturdy.restricted_mean.low
    assert f"up to 2, is {sturdy.restricted_mean.value:.2f} [" in found.verdict("sturdy")
    board = brinell.leaderboard(run)
    assert [row.model for row in board.rows] == ["sturdy", "fragile"]
    assert [measure.name for measure in board.measures if measure.lens] == ["motion"]
    compared = brinell.compare(run).deltas
    motion = next(delta for delta in compared if delta.measure.name == "motion")
    published = next(delta for delta in compared if delta.measure.name == "rho_hat")
    assert (motion.images, motion.verdict()) == (22, "worse")
    assert published.images == 2


def test_a_model_that_is_never_fooled_is_not_certain(tmp_path: Path) -> None:
    lens = {"name": "geometry", "operators": ["translation"], "methods": ["manifool"], "max_steps": 1, "retry": 0}
    data = [(image, 0) for image in blobs([(0.0, float(y)) for y in range(8)])]
    run = brinell.run(model(Where(9.0)), data, lens=lens, out=tmp_path / "run", quiet=True)
    found = run.summary()
    assert isinstance(found, GeometryFindings)
    (one,) = found.smallest.values()
    assert (one.fooled, one.restricted_mean.value, one.restricted_mean.high) == (0, SCORE_LIMIT, SCORE_LIMIT)
    assert 1.0 < one.restricted_mean.low < 1.6  # Wilson: at least 68 % of images withstand
    assert math.isnan(one.rho_hat.value)
    assert found.verdict("m").startswith("No motion found changes a label of m.")
    assert "invariance" in charts(found) and "generators" not in charts(found)


def test_r_hat_is_read_off_the_rates_between_two_scores() -> None:
    def rate(score: float, value: float) -> Any:
        whole = Estimate(value, value, value)
        return Rate("m", "similarity:random", score, whole, whole, 10, 0.0)

    def found(*rates: Any) -> float | None:
        findings = GeometryFindings({}, {("m", "similarity:random"): list(rates)})
        return findings.threshold_score("m", "similarity:random")

    assert found(rate(1, 0.1), rate(2, 0.4), rate(3, 0.8)) == pytest.approx(2.25)
    assert found(rate(1, 0.1), rate(2, 0.4)) is None
    assert found(rate(1, 1.0)) == pytest.approx(0.5)


def test_a_sample_of_motions_has_few_images_at_each_score() -> None:
    whole, unknown = Estimate(0.6, 0.5, 0.7), Estimate(math.nan, math.nan, math.nan)
    for worst, end in ((unknown, "Only 12 images were tested at each score."), (whole, "Only 12 images were tested.")):
        rate = Rate("m", "similarity:random", 1.0, whole, worst, 12, 0.0, 12)
        assert GeometryFindings({}, {("m", "similarity:random"): [rate]}).verdict("m").endswith(end)


def test_the_report_and_the_figures_are_made(run: brinell.Run) -> None:
    page = Path(run.report()).read_text(encoding="utf-8")
    assert "smallest motion" in page
    assert "kind " in page
    assert "data:image/jpeg" in page
    files = run.figures()
    assert {"invariance.svg", "misclassification.svg", "generators.svg", "random.svg"} <= set(files)


def test_findings_and_the_report_need_no_torch(run: brinell.Run) -> None:
    code = f"import sys, brinell; brinell.Run({run.folder!r}).report(); print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False"]


def test_a_run_that_is_done_measures_nothing_again(run: brinell.Run) -> None:
    before = run.rows("select sum(seconds) from rows").fetchall()
    white = model(Random(), name="white", classes=[f"kind {k}" for k in range(10)])
    black = dataclasses.replace(model(Where(3.0, 10), name="black"), differentiable=None)
    lens = {"name": "geometry", "operators": ["similarity", "translation"], "draws": 2, "radii": [0.0, 1.0, 3.0]}
    again = brinell.run([white, black], [(image, 0) for image in shapes(6)], lens=lens, out=run.folder, quiet=True)
    assert again.rows("select sum(seconds) from rows").fetchall() == before


def test_moved_images_are_written_with_their_true_labels(run: brinell.Run, tmp_path: Path) -> None:
    """The minimal version fools; the random one has its score; a folder holds the same."""
    white = model(Random(), name="white", classes=[f"kind {k}" for k in range(10)])
    data = [(image, 0) for image in shapes(6)]

    def write(name: str, operator: str, **options: Any) -> Any:
        return run.export_moved(tmp_path / name, operator, data=data, **options)

    written = write("minimal.npz", "similarity:manifool")
    with np.load(tmp_path / "minimal.npz") as content:
        images, labels = content["images"], content["labels"]
    fooled = run.rows("select count(*) from rows where operator = 'similarity:manifool' and status = 'broken'").fetchall()
    assert (written.images, written.left_out) == (fooled[0][0], 6 - fooled[0][0])
    assert images.shape == (written.images, SIDE, SIDE, 1)
    assert labels.tolist() == [0] * written.images
    predictions = white.predict(torch.from_numpy(images).permute(0, 3, 1, 2).contiguous()).argmax(1)
    told = run.rows(
        """select prediction from rows where operator = 'similarity:manifool' and status = 'broken'
           order by prediction"""
    ).fetchall()
    agree = np.mean(np.sort(predictions) == np.array([label for (label,) in told]))
    assert agree >= 0.6  # whole grey levels: an image at the edge may fall back
    assert write("random", "similarity:random", score=1.0).score == 1.0
    again = brinell.open_dataset(tmp_path / "random")
    assert len(again) > 0
    assert again[0].label == 0
    with pytest.raises(ConfigError, match="no random motions of score 2; run it with --radius 2"):
        write("x.npz", "similarity:random", score=2.0)
    with pytest.raises(ConfigError, match="did you mean similarity:manifool"):
        write("x.npz", "similarity:manifol")


def test_moved_images_of_objects_need_the_images_alone(
    run: brinell.Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A run of Python objects: refused from the command line with a remedy, and other images are noticed."""
    from brinell.cli.main import main

    command = ["export-moved", run.folder, str(tmp_path / "x.npz"), "--operator", "similarity:manifool"]
    with pytest.raises(SystemExit):
        main(command)
    told = capsys.readouterr().err
    assert "was a Python object; pass it again from Python (data=…), or give the same images with --data PATH" in told
    np.savez(tmp_path / "same.npz", images=shapes(6).permute(0, 2, 3, 1).numpy(), labels=np.zeros(6, dtype=np.int64))
    main([*command, "--data", str(tmp_path / "same.npz")])
    assert "images moved" in capsys.readouterr().out
    run.export_moved(tmp_path / "y.npz", "similarity:manifool", data=[(image, 0) for image in shapes(6)])
    with np.load(tmp_path / "x.npz") as ours, np.load(tmp_path / "y.npz") as theirs:
        assert (ours["images"] == theirs["images"]).all() and len(ours["images"]) > 0
    for other, problem in (
        ([(255 - image, 0) for image in shapes(6)], "is another image"),
        ([(image, 0) for image in shapes(1)], "there is no image"),
    ):
        with pytest.raises(brinell.RunError, match=problem):
            run.export_moved(tmp_path / "z.npz", "similarity:manifool", data=other)


def test_the_lens_from_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Run, plan and summary; what needs gradients is refused by name in one line."""
    from brinell.cli.main import main

    np.savez(tmp_path / "images.npz", images=shapes(3).permute(0, 2, 3, 1).numpy(), labels=np.zeros(3, dtype=np.int64))
    (tmp_path / "net.py").write_text(
        "import torch\nclass Net(torch.nn.Module):\n"
        "    def forward(self, x):\n"
        "        left, right = x[..., :14].mean((1, 2, 3)), x[..., 14:].mean((1, 2, 3))\n"
        "        return torch.stack([left, right, x[:, 0, 5, 5] - 0.5], 1)\n"
    )
    given = [
        *("--model", f"torch:{tmp_path}/net.py:Net?size=28&channels=1&name=net", "--data", str(tmp_path / "images.npz")),
        *("--lens", "geometry", "--operator", "translation", "--device", "cpu", "--out", str(tmp_path / "run")),
        *("--runtime", "torch", "--batch", "8", "--labels", "prediction", "--draws", "2"),
    ]
    main(["plan", *given])
    shown = " ".join(capsys.readouterr().out.split())
    assert "geometry net 3 × 2" in shown and "at most" in shown
    main(["run", *given])
    assert "translation (ManiFool)" in capsys.readouterr().out
    main(["summary", str(tmp_path / "run"), "--json"])
    assert json.loads(capsys.readouterr().out)["lenses"]["geometry"]["smallest"][0]["fooled"] >= 1
    main(["export-moved", str(tmp_path / "run"), str(tmp_path / "train.npz"), "--operator", "translation:manifool"])
    assert "images moved" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        main(["run", *given[:-2], "--method", "manitest", "--operator", "projective"])
    assert "up to 4 coordinates" in capsys.readouterr().err
