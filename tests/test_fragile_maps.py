"""Maps of answers to maps of fragile windows: golden cases, brute force, and maps as files."""

from __future__ import annotations

import math
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

from brinell.lenses.fragility.fragile import (
    EIGHT,
    FOUR,
    SHRUNK,
    WindowAnswers,
    find_fragile,
    find_inside,
    find_largest_drop,
)
from brinell.lenses.fragility.maps import Maps, pack, quantise, unpack
from brinell.lenses.fragility.windows import Array, Neighbourhood, WindowGrid, window_side


def answers(grid: WindowGrid, correct: Array, label: Array | None = None, confidence: Array | None = None) -> WindowAnswers:
    label = correct.astype(np.int64) if label is None else label
    confidence = correct.astype(np.float32) if confidence is None else confidence
    return WindowAnswers(grid, correct, label, confidence, (~correct).astype(np.uint8) * 7)


def some_maps(seed: int, hood: Neighbourhood, share: float = 0.5) -> tuple[WindowAnswers, WindowAnswers]:
    made = []
    for grid in (hood.shifted, hood.shrunk):
        draws = np.random.default_rng([seed, grid.side]).random((3, *grid.shape))
        made.append(answers(grid, draws[0] < share, (draws[1] * 3).astype(np.int64), draws[2].astype(np.float32)))
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


def whole(hood: Neighbourhood, correct: Array) -> WindowAnswers:
    return answers(hood.shifted, correct)


@pytest.mark.parametrize("move", ["shift", "shrink"])
@pytest.mark.parametrize("right", [True, False])
def test_a_constant_model_is_nowhere_fragile(move: str, right: bool) -> None:
    hood = Neighbourhood.of(5, 20, 24)
    large, small = (answers(grid, np.full(grid.shape, right)) for grid in (hood.shifted, hood.shrunk))
    found = find_fragile(hood, large, large if move == "shift" else small, move)  # type: ignore[arg-type]
    assert not found.loose.any() and not found.strict.any() and found.judged.all()


def test_a_chequered_map() -> None:
    """All loose; none strict by 8 neighbours, whose diagonals agree, and all by 4."""
    hood = Neighbourhood.of(3, 12, 14)
    rows, columns = np.meshgrid(np.arange(10), np.arange(12), indexing="ij")
    chequered = whole(hood, (rows + columns) % 2 == 0)
    eight = find_fragile(hood, chequered, chequered, "shift", neighbours=8)
    four = find_fragile(hood, chequered, chequered, "shift", neighbours=4)
    assert eight.loose.all() and not eight.strict.any()
    assert four.loose.all() and four.strict.all()


def test_one_wrong_window() -> None:
    """It is strict and gains; its eight neighbours are loose and lose."""
    hood = Neighbourhood.of(3, 12, 14)
    correct = np.ones((10, 12), bool)
    correct[4, 5] = False
    found = find_fragile(hood, whole(hood, correct), whole(hood, correct), "shift")
    assert int(found.strict.sum()) == 1 and bool(found.strict[4, 5])
    assert int(found.loose.sum()) == 9
    signs = found.signs("loose")
    assert int(signs[4, 5]) == -1 and int((signs == 1).sum()) == 8 and int((signs == -1).sum()) == 1


def test_a_map_of_one_window_is_not_judged() -> None:
    hood = Neighbourhood.of(9, 9, 9)
    alone = whole(hood, np.ones((1, 1), bool))
    found = find_fragile(hood, alone, alone, "shift")
    assert not found.judged.any() and not found.strict.any() and not found.loose.any()


@pytest.mark.parametrize("stride", [1, 2, 3, 5])
@pytest.mark.parametrize("neighbours", [8, 4])
@pytest.mark.parametrize("by", ["correct", "label"])
@pytest.mark.parametrize("move", ["shift", "shrink"])
def test_fragile_maps_are_those_of_plain_loops(stride: int, neighbours: int, by: str, move: str) -> None:
    height, width, side = 17, 21, 6
    hood = Neighbourhood.of(side, height, width, stride)
    everything = Neighbourhood.of(side, height, width)
    large, small = some_maps(stride, everything, 0.8)
    values = {"shift": getattr(large, by), "shrink": getattr(small, by)}[move]
    sparse = [_thinned(each, grid) for each, grid in ((large, hood.shifted), (small, hood.shrunk))]
    after = sparse[move == "shrink"]
    found = find_fragile(hood, sparse[0], after, move, by=by, neighbours=neighbours)  # type: ignore[arg-type]
    offsets = SHRUNK if move == "shrink" else EIGHT if neighbours == 8 else FOUR
    for row, top in enumerate(range(0, height - side + 1, stride)):
        for column, left in enumerate(range(0, width - side + 1, stride)):
            own = getattr(large, by)[top, left]
            positions = [(top + down, left + across) for down, across in offsets]
            there = [(y, x) for y, x in positions if 0 <= y < values.shape[0] and 0 <= x < values.shape[1]]
            differs = [bool(values[position] != own) for position in there]
            assert bool(found.loose[row, column]) == any(differs)
            assert bool(found.strict[row, column]) == all(differs)
            assert bool(found.correct[row, column]) == bool(large.correct[top, left])
    assert bool((found.loose | ~found.strict).all())  # strict ones are loose


def _thinned(answered: WindowAnswers, grid: WindowGrid) -> WindowAnswers:
    """Return the answers at some of the windows, as a stride leaves them."""
    maps = {name: answered.at(grid.tops, grid.lefts, name)[0] for name in ("correct", "label", "confidence", "rank")}
    return WindowAnswers(grid, **maps)


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("move", ["shift", "shrink"])
def test_the_largest_drop_is_that_of_plain_loops(move: str, ties: bool) -> None:
    """Of equal drops the first wins: offset by offset, then row by row."""
    hood = Neighbourhood.of(5, 16, 15)
    large, small = (_rounded(each) if ties else each for each in some_maps(3, hood))
    after = large if move == "shift" else small
    found = find_largest_drop(hood, large, after, move)  # type: ignore[arg-type]
    best, where = -math.inf, None
    for down, across in EIGHT if move == "shift" else SHRUNK:
        for top in range(large.correct.shape[0]):
            for left in range(large.correct.shape[1]):
                y, x = top + down, left + across
                exists = 0 <= y < after.correct.shape[0] and 0 <= x < after.correct.shape[1]
                if exists and large.correct[top, left] and not after.correct[y, x]:
                    drop = float(large.confidence[top, left] - after.confidence[y, x])
                    if drop > best:
                        best, where = drop, (left, top, x, y)
    assert found is not None and found.drop == best
    assert (found.left, found.top, found.to_left, found.to_top) == where
    assert bool(large.correct[found.top, found.left]) and not bool(after.correct[found.to_top, found.to_left])


def _rounded(answered: WindowAnswers) -> WindowAnswers:
    return replace(answered, confidence=np.round(answered.confidence * 2) / np.float32(2))


def test_no_pair_where_nothing_is_lost() -> None:
    hood = Neighbourhood.of(5, 16, 15)
    always = whole(hood, np.ones(hood.shifted.shape, bool))
    assert find_largest_drop(hood, always, always, "shift") is None


def test_windows_are_inside_a_box_with_their_centre() -> None:
    grid = WindowGrid(5, np.arange(0, 16), np.arange(0, 12))
    within = find_inside(grid, np.array([4.0, 6.0, 8.0, 12.0], np.float32))
    centres = [(top + 2.5, left + 2.5) for top in range(16) for left in range(12)]
    assert within.ravel().tolist() == [6 <= y <= 12 and 4 <= x <= 8 for y, x in centres]


def test_corners_go_down_the_columns() -> None:
    grid = WindowGrid(5, np.array([0, 3, 4]), np.array([1, 7]))
    assert grid.corners().tolist() == [[1, 0], [1, 3], [1, 4], [7, 0], [7, 3], [7, 4]]
    assert grid.to_map(np.arange(6)).tolist() == [[0, 3], [1, 4], [2, 5]]


def test_confidences_are_rounded_half_to_even() -> None:
    levels = np.array([0.0, 0.5, 1.5, 2.5, 254.5, 255.0, math.nan], np.float32) / np.float32(255)
    assert quantise(levels).tolist() == [0, 0, 2, 2, 254, 255, 0]


@pytest.mark.parametrize("stride", [1, 4])
def test_maps_come_back_from_their_file(stride: int) -> None:
    hood = Neighbourhood.of(5, 33, 41, stride)
    large, small = some_maps(1, hood)
    large.label[0, 0] = -1  # a detector that finds nothing
    back = unpack(pack(Maps(large, small, stride)))
    assert back.stride == stride and back.small is not None
    for kept, one in ((back.large, large), (back.small, small)):
        assert kept.grid.side == one.grid.side
        assert np.array_equal(kept.grid.tops, one.grid.tops) and np.array_equal(kept.grid.lefts, one.grid.lefts)
        assert np.array_equal(kept.correct, one.correct) and np.array_equal(kept.label, one.label)
        assert np.array_equal(kept.rank, one.rank)
        assert float(np.abs(kept.confidence - one.confidence).max()) <= 0.5 / 255 + 1e-6
    assert np.array_equal(back.large.top(5).correct, large.rank < 5)


def test_maps_of_a_500_by_375_image_at_four_sizes_stay_under_2_mb() -> None:
    """Worse than real ones: confidences and labels change at every other window."""
    total = 0
    for share in (0.2, 0.4, 0.6, 0.8):
        hood = Neighbourhood.of(window_side(share, 375, 500), 375, 500)
        large, small = (_rough(grid) for grid in (hood.shifted, hood.shrunk))
        total += len(pack(Maps(large, small, 1)))
    assert total < 2_000_000


def _rough(grid: WindowGrid) -> WindowAnswers:
    """Return a smooth confidence with noise, ranks that follow it, and labels that flicker."""
    rows, columns = np.meshgrid(grid.tops / 40.0, grid.lefts / 40.0, indexing="ij")
    noise = np.random.default_rng(grid.side).normal(size=grid.shape)
    confidence = (1 / (1 + np.exp(-(2 * np.sin(rows) * np.cos(columns) + 0.1 * noise)))).astype(np.float32)
    rank = ((1 - confidence) * 8).astype(np.uint8)
    label = np.where(confidence > 0.5, 7, 100 + (rows * 3).astype(np.int64) + (noise > 1.5) * 400)
    return WindowAnswers(grid, rank < 5, label, confidence, rank)


def test_maps_are_read_without_torch() -> None:
    """Findings, tables, pictures of maps and the comparison with people are for machines without torch, too."""
    modules = ("findings", "show", "charts", "overlays", "human", "commands", "tables", "exhibits")
    imports = "; ".join(f"import brinell.lenses.fragility.{name}" for name in modules)
    code = f"import sys; {imports}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
