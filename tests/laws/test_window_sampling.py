"""Laws of windows under a budget: equally likely, nested, evenly spread, and judged as in the full run."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from brinell.lenses.fragility.chosen import ChosenWindows, QueriedGrid, choose_windows, complete
from brinell.lenses.fragility.counts import count_rows
from brinell.lenses.fragility.fragile import WindowAnswers, find_fragile
from brinell.lenses.fragility.lattice import choose, pattern_of
from brinell.lenses.fragility.maps import Maps, pack, unpack
from brinell.lenses.fragility.windows import Array, Neighbourhood, WindowGrid
from brinell.lenses.sampling import Sampling

SHARES = st.floats(0, 1)
DRAWS = st.tuples(*[st.floats(1e-9, 1 - 1e-9)] * 3)
SIZES = st.tuples(st.integers(9, 40), st.integers(9, 40))
PLACES = np.random.default_rng(2).random((2, 50, 50))
STRIDES = st.sampled_from([1, 2, 3, 5])


@settings(deadline=None)
@given(SIZES, STRIDES, SHARES, SHARES, DRAWS)
def test_a_larger_budget_judges_more_windows(
    size: tuple[int, int], stride: int, one: float, other: float, draws: tuple[float, float, float]
) -> None:
    windows = Neighbourhood.of(7, *size, stride)
    small, large = (choose(windows, stride, share, draws) for share in sorted((one, other)))
    assert not (small & ~large).any()
    assert choose(windows, stride, 1.0, draws).all()
    assert not choose(windows, stride, 0.0, draws).any()


@pytest.mark.parametrize("share", [0.01, 0.1, 0.3, 0.8])
@pytest.mark.parametrize("stride", [1, 2, 4])
def test_every_window_is_equally_likely(share: float, stride: int) -> None:
    windows, generator = Neighbourhood.of(5, 17, 24, stride), np.random.default_rng(0)
    drawn = generator.random((3000, 3))
    found = np.mean([choose(windows, stride, share, draws) for draws in drawn], axis=0)
    expected = found.mean()
    assert np.abs(found - expected).max() < 5 * np.sqrt(expected * (1 - expected) / len(drawn))


@pytest.mark.parametrize("stride", [1, 2, 4])
@pytest.mark.parametrize("share", [0.02, 0.1, 0.3, 0.6])
def test_a_share_of_the_queries_is_made(share: float, stride: int) -> None:
    """On average, and where an image has few windows at its edges."""
    windows, generator = Neighbourhood.of(9, 140, 90, stride), np.random.default_rng(1)
    made = [windows.needed(choose(windows, stride, share, draws)) for draws in generator.random((40, 3))]
    queries = np.mean([shifted.sum() + shrunk.sum() for shifted, shrunk in made])
    assert queries / len(windows) == pytest.approx(share, rel=0.06)


@settings(deadline=None)
@given(st.tuples(st.integers(1, 60), st.integers(1, 60)))
def test_the_order_begins_with_lattices(shape: tuple[int, int]) -> None:
    rank = pattern_of(shape, 3).complete  # three apart, nothing is shared
    assert sorted(rank.ravel().tolist()) == list(range(1, rank.size + 1))
    for stride in (2, 4, 8):
        lattice = rank[::stride, ::stride]
        assert lattice.max() == lattice.size


def _answers(grid: WindowGrid, seed: int) -> WindowAnswers:
    """Answers of a model that depend on a window's place alone."""
    place = PLACES[seed][np.ix_(grid.tops, grid.lefts)]
    values = place > 0.4, (place * 7).astype(np.int64), place.astype(np.float32), (place * 9).astype(np.int64)
    return WindowAnswers(grid, *values)


def _shown(answers: WindowAnswers, mask: Array | None) -> WindowAnswers:
    """What a model is asked about some windows."""
    part = QueriedGrid(0, answers.grid, mask)
    order = slice(None) if mask is None else mask.T.ravel()
    maps = (answers.correct, answers.label, answers.confidence, answers.rank)
    return part.answers(*(each.T.ravel()[order] for each in maps))


class _Shard:
    def __init__(self, sampling: Sampling | None) -> None:
        self.sampling, self.ids = sampling, torch.tensor([4711])


class _Change:
    id = "windows:0.2"


def _measure(windows: Neighbourhood, stride: int, sampling: Sampling | None, stored: bytes | None = None) -> Maps:
    [chosen] = choose_windows(_Shard(sampling), _Change(), [windows], [stride])  # type: ignore[arg-type]
    large, small = (
        _shown(_answers(grid, seed), mask)
        for seed, (grid, mask) in enumerate(zip((windows.shifted, windows.shrunk), chosen.missing, strict=True))
    )
    return complete(Maps(large, small, stride), chosen, stored)


def _same(one: Maps, other: Maps) -> bool:
    """Whether two maps have the same answers to the same windows."""
    pairs = [(one.large, other.large), (one.small, other.small)]
    names = ("correct", "label", "confidence", "rank", "known")
    return np.array_equal(one.chosen, other.chosen) and all(
        np.array_equal(getattr(first, name), getattr(second, name)) for first, second in pairs for name in names
    )


@settings(max_examples=30, deadline=None)
@given(SIZES, STRIDES, SHARES, SHARES)
def test_grown_maps_are_those_of_the_full_run(size: tuple[int, int], stride: int, one: float, other: float) -> None:
    windows = Neighbourhood.of(7, *size, stride)
    first, second = sorted((one, other))
    stored, done = None, 0.0
    for share in (first, second, 1.0):
        if share <= done:
            continue
        grown = _measure(windows, stride, Sampling(3, share, done), stored)
        assert _same(grown, _measure(windows, stride, Sampling(3, share)))
        stored, done = pack(grown), share
    assert _same(unpack(stored or b""), unpack(pack(_measure(windows, stride, None))))


@settings(max_examples=30, deadline=None)
@given(SIZES, STRIDES, SHARES)
def test_windows_are_judged_as_in_the_full_run(size: tuple[int, int], stride: int, share: float) -> None:
    windows = Neighbourhood.of(7, *size, stride)
    full, some = _measure(windows, stride, None), _measure(windows, stride, Sampling(3, share))
    assert some.chosen is not None or share == 1
    chosen = replace(windows, chosen=some.chosen)
    for move in ("shift", "shrink"):
        after = (full.large, some.large) if move == "shift" else (full.small, some.small)
        whole = find_fragile(windows, full.large, after[0], move)  # type: ignore[arg-type]
        found = find_fragile(chosen, some.large, after[1], move)  # type: ignore[arg-type]
        mask = np.ones_like(whole.loose) if some.chosen is None else some.chosen
        assert np.array_equal(found.loose, whole.loose & mask) and np.array_equal(found.strict, whole.strict & mask)
        assert np.array_equal(found.judged, whole.judged & mask)
    rows = count_rows(chosen, some.large, some.small, None, neighbours=8)
    assert {row["windows"] for row in rows} == {int(mask.sum())}


def test_maps_of_a_sample_are_stored_exactly() -> None:
    windows = Neighbourhood.of(5, 21, 17)
    maps = _measure(windows, 1, Sampling(0, 0.3))
    back = unpack(pack(maps))
    assert back.chosen is not None and maps.chosen is not None and np.array_equal(back.chosen, maps.chosen)
    assert np.array_equal(back.large.confidence, maps.large.confidence)
    assert back.windows(21, 17).chosen is back.chosen


def test_without_a_budget_everything_is_queried() -> None:
    [chosen] = choose_windows(_Shard(None), _Change(), [Neighbourhood.of(5, 9, 9)], [1])  # type: ignore[arg-type]
    assert chosen == ChosenWindows(None, 1.0)
