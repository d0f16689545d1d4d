"""Maps of answers to maps of fragile windows: golden cases, brute force, and maps as files."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from brinell.lenses.fragility.fragile import EIGHT, FOUR, SHRUNKEN, Answers, best_pair, fragile, inside
from brinell.lenses.fragility.maps import Maps, packed, unpacked
from brinell.lenses.fragility.windows import Grid, Neighbourhood, window_side


def answers(grid: Grid, correct: Tensor, label: Tensor | None = None, confidence: Tensor | None = None) -> Answers:
    label = correct.to(torch.int64) if label is None else label
    confidence = correct.to(torch.float32) if confidence is None else confidence
    return Answers(grid, correct, label, confidence, (~correct).to(torch.uint8) * 7)


def some_maps(seed: int, hood: Neighbourhood, share: float = 0.5) -> tuple[Answers, Answers]:
    made = []
    for grid in (hood.shifted, hood.shrunk):
        draws = torch.from_numpy(np.random.default_rng([seed, grid.side]).random((3, *grid.shape)))
        made.append(answers(grid, draws[0] < share, (draws[1] * 3).to(torch.int64), draws[2].to(torch.float32)))
    return made[0], made[1]


def test_the_paper_s_counts_of_windows() -> None:
    """500×375 at P = 0.2, 0.4, 0.6, 0.8 (PAPERS.md)."""
    sides = [window_side(share, 375, 500) for share in (0.2, 0.4, 0.6, 0.8)]
    assert sides == [75, 151, 225, 301]
    hoods = [Neighbourhood.of(side, 375, 500) for side in sides]
    assert [len(hood.judged) for hood in hoods] == [128_226, 78_750, 41_676, 15_000]
    assert sum(len(hood) for hood in hoods) == 531_328


@pytest.mark.parametrize(
    ("size", "height", "width", "side"), [(1.0, 100, 120, 99), (1.0, 101, 90, 89), (0.29, 200, 300, 59)]
)
def test_sides_are_odd_and_fit(size: float, height: int, width: int, side: int) -> None:
    assert window_side(size, height, width) == side
    assert window_side(40, height, width) == 40  # pixels as they are


def whole(hood: Neighbourhood, correct: Tensor) -> Answers:
    return answers(hood.shifted, correct)


@pytest.mark.parametrize("change", ["shift", "shrink"])
@pytest.mark.parametrize("right", [True, False])
def test_a_constant_model_is_nowhere_fragile(change: str, right: bool) -> None:
    hood = Neighbourhood.of(5, 20, 24)
    large, small = (answers(grid, torch.full(grid.shape, right)) for grid in (hood.shifted, hood.shrunk))
    found = fragile(hood, large, large if change == "shift" else small, change, "correct")  # type: ignore[arg-type]
    assert not found.loose.any() and not found.strict.any() and found.judged.all()


def test_a_chequered_map() -> None:
    """All loose; none strict by 8 neighbours, whose diagonals agree, and all by 4."""
    hood = Neighbourhood.of(3, 12, 14)
    rows, columns = torch.meshgrid(torch.arange(10), torch.arange(12), indexing="ij")
    chequered = whole(hood, (rows + columns) % 2 == 0)
    eight = fragile(hood, chequered, chequered, "shift", "correct", 8)
    four = fragile(hood, chequered, chequered, "shift", "correct", 4)
    assert eight.loose.all() and not eight.strict.any()
    assert four.loose.all() and four.strict.all()


def test_one_wrong_window() -> None:
    """It is strict and gains; its eight neighbours are loose and lose."""
    hood = Neighbourhood.of(3, 12, 14)
    correct = torch.ones(10, 12, dtype=torch.bool)
    correct[4, 5] = False
    found = fragile(hood, whole(hood, correct), whole(hood, correct), "shift", "correct")
    assert int(found.strict.sum()) == 1 and bool(found.strict[4, 5])
    assert int(found.loose.sum()) == 9
    signs = found.signs("loose")
    assert int(signs[4, 5]) == -1 and int((signs == 1).sum()) == 8 and int((signs == -1).sum()) == 1


def test_a_map_of_one_window_is_not_judged() -> None:
    hood = Neighbourhood.of(9, 9, 9)
    alone = whole(hood, torch.ones(1, 1, dtype=torch.bool))
    found = fragile(hood, alone, alone, "shift", "correct")
    assert not found.judged.any() and not found.strict.any() and not found.loose.any()


@pytest.mark.parametrize("stride", [1, 2, 3, 5])
@pytest.mark.parametrize("neighbours", [8, 4])
@pytest.mark.parametrize("by", ["correct", "label"])
@pytest.mark.parametrize("change", ["shift", "shrink"])
def test_fragile_maps_are_those_of_plain_loops(stride: int, neighbours: int, by: str, change: str) -> None:
    height, width, side = 17, 21, 6
    hood = Neighbourhood.of(side, height, width, stride)
    everything = Neighbourhood.of(side, height, width)
    large, small = some_maps(stride, everything, 0.8)
    values = {"shift": getattr(large, by), "shrink": getattr(small, by)}[change]
    sparse = [_thinned(each, grid) for each, grid in ((large, hood.shifted), (small, hood.shrunk))]
    found = fragile(hood, sparse[0], sparse[change == "shrink"], change, by, neighbours)  # type: ignore[arg-type]
    offsets = SHRUNKEN if change == "shrink" else EIGHT if neighbours == 8 else FOUR
    for row, top in enumerate(range(0, height - side + 1, stride)):
        for column, left in enumerate(range(0, width - side + 1, stride)):
            own = getattr(large, by)[top, left]
            places = [(top + down, left + across) for down, across in offsets]
            there = [(y, x) for y, x in places if 0 <= y < values.shape[0] and 0 <= x < values.shape[1]]
            differs = [bool(values[place] != own) for place in there]
            assert bool(found.loose[row, column]) == any(differs)
            assert bool(found.strict[row, column]) == all(differs)
            assert bool(found.correct[row, column]) == bool(large.correct[top, left])
    assert bool((found.loose | ~found.strict).all())  # strict ones are loose


def _thinned(answered: Answers, grid: Grid) -> Answers:
    """The answers at some of the windows, as a stride leaves them."""
    maps = {name: answered.at(grid.tops, grid.lefts, name)[0] for name in ("correct", "label", "confidence", "rank")}
    return Answers(grid, **maps)


@pytest.mark.parametrize("change", ["shift", "shrink"])
def test_the_best_pair_falls_the_most(change: str) -> None:
    hood = Neighbourhood.of(5, 16, 15)
    large, small = some_maps(3, hood)
    after = large if change == "shift" else small
    found = best_pair(hood, large, after, change)  # type: ignore[arg-type]
    best = -math.inf
    for top in range(large.correct.shape[0]):
        for left in range(large.correct.shape[1]):
            for down, across in EIGHT if change == "shift" else SHRUNKEN:
                y, x = top + down, left + across
                there = 0 <= y < after.correct.shape[0] and 0 <= x < after.correct.shape[1]
                if there and large.correct[top, left] and not after.correct[y, x]:
                    best = max(best, float(large.confidence[top, left] - after.confidence[y, x]))
    assert found is not None and found.drop == pytest.approx(best)
    assert bool(large.correct[found.top, found.left]) and not bool(after.correct[found.to_top, found.to_left])


def test_no_pair_where_nothing_is_lost() -> None:
    hood = Neighbourhood.of(5, 16, 15)
    always = whole(hood, torch.ones(hood.shifted.shape, dtype=torch.bool))
    assert best_pair(hood, always, always, "shift") is None


def test_windows_are_inside_a_box_with_their_middle() -> None:
    grid = Grid(5, torch.arange(0, 16), torch.arange(0, 12))
    within = inside(grid, torch.tensor([4.0, 6.0, 8.0, 12.0]))
    middles = [(top + 2.5, left + 2.5) for top in range(16) for left in range(12)]
    assert within.flatten().tolist() == [6 <= y <= 12 and 4 <= x <= 8 for y, x in middles]


@pytest.mark.parametrize("stride", [1, 4])
def test_maps_come_back_from_their_file(stride: int) -> None:
    hood = Neighbourhood.of(5, 33, 41, stride)
    large, small = some_maps(1, hood)
    large.label[0, 0] = -1  # a detector that finds nothing
    back = unpacked(packed(Maps(large, small, stride)))
    assert back.stride == stride and back.small is not None
    for kept, one in ((back.large, large), (back.small, small)):
        assert kept.grid.side == one.grid.side
        assert torch.equal(kept.grid.tops, one.grid.tops) and torch.equal(kept.grid.lefts, one.grid.lefts)
        assert torch.equal(kept.correct, one.correct) and torch.equal(kept.label, one.label)
        assert torch.equal(kept.rank, one.rank)
        assert float((kept.confidence - one.confidence).abs().max()) <= 0.5 / 255 + 1e-6
    assert torch.equal(back.large.top(5).correct, large.rank < 5)


def test_maps_of_a_500_by_375_image_at_four_sizes_stay_under_2_mb() -> None:
    """Worse than real ones: confidences and labels change at every other window."""
    total = 0
    for share in (0.2, 0.4, 0.6, 0.8):
        hood = Neighbourhood.of(window_side(share, 375, 500), 375, 500)
        large, small = (_rough(grid) for grid in (hood.shifted, hood.shrunk))
        total += len(packed(Maps(large, small, 1)))
    assert total < 2_000_000


def _rough(grid: Grid) -> Answers:
    """A smooth confidence with noise, ranks that follow it, and labels that flicker."""
    rows, columns = torch.meshgrid(grid.tops / 40.0, grid.lefts / 40.0, indexing="ij")
    noise = torch.from_numpy(np.random.default_rng(grid.side).normal(size=grid.shape)).to(torch.float32)
    confidence = torch.sigmoid(2 * torch.sin(rows) * torch.cos(columns) + 0.1 * noise)
    rank = ((1 - confidence) * 8).to(torch.uint8)
    label = torch.where(confidence > 0.5, 7, 100 + (rows * 3).to(torch.int64) + (noise > 1.5) * 400)
    return Answers(grid, rank < 5, label, confidence, rank)
