"""Searches over a grid of severities, against plain loops over one image at a time, on tables of every outcome."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from brinell.lenses.knob.search import SEARCHES, Search, most_bracket_queries
from brinell.lenses.method import Outcome, Shard, Trials
from brinell.lenses.outcomes import ANSWERS, BROKEN, FAILED, SKIPPED, SURVIVED
from brinell.perturb.property import find_property
from brinell.runs.schema import DISTANCES

HOLDS, BREAKS, MISSING = 0, 1, 2  # what a table says about a point
Found = tuple[int, int, int, int]  # status, start, stop, queries


def make_outcome(broken: Tensor, missing: Tensor, marks: Tensor) -> Any:
    """Return an outcome whose answers and distances are recognisable by their marks."""
    answers = {name: marks.to(torch.float64) + place / 8 for place, name in enumerate(ANSWERS)}
    answers["confidence"] = torch.where(missing, torch.nan, answers["confidence"])
    distances = {name: -marks.to(torch.float64) - place / 16 for place, name in enumerate(DISTANCES)}
    return SimpleNamespace(
        verdict=SimpleNamespace(**answers),
        broken=broken,
        difference=SimpleNamespace(**distances),
        cause=None,
        overlap=None,
        distance=None,
    )


def make_shard(count: int, full: int = 1, *, wrong: list[int] = [], silent: list[int] = []) -> Shard:  # noqa: B006
    chosen = torch.arange(count)
    rank, confidence = torch.isin(chosen, torch.tensor(wrong)).long(), torch.ones(count)
    confidence[silent] = torch.nan
    verdict = SimpleNamespace(rank=rank, confidence=confidence)
    clean: Any = SimpleNamespace(
        broken=torch.zeros(count, dtype=torch.bool), verdict=verdict, detections=None, overlap=None
    )
    return Shard(count, 8, 8, clean, full=full)


class Driven:
    """Drives a search over tables (directions, samples, points) and notes what is queried, round by round."""

    def __init__(self, tables: Tensor, lengths: list[int], shard: Shard, resample: bool = False) -> None:
        self.tables, self.rounds = tables, []  # type: ignore[var-annotated]
        directions, _, length = tables.shape
        points = torch.arange(1, directions * length + 1, dtype=torch.float64).view(directions, length, 1)
        change = find_property("gaussian_noise" if resample else "contrast")
        self.search = Search.of(shard, change, points, torch.tensor(lengths), resample=resample)

    def run(self, how: str) -> Search:
        search = SEARCHES[how](self.search, self.search.active)
        try:
            trials = next(search)
            while True:
                trials = search.send(self._outcome(trials))
        except StopIteration as end:
            found: Search = end.value
            return found

    def _outcome(self, trials: Trials) -> Outcome:
        assert trials.may_fail
        places = trials.parameters[:, 0].long() - 1
        length = self.tables.shape[2]
        answers = self.tables[places // length, trials.samples, places % length]
        fields = [None] * len(places) if trials.fields is None else trials.fields.tolist()
        named = zip(trials.samples.tolist(), places.tolist(), fields, strict=True)
        self.rounds.append(list(named))
        found: Outcome = make_outcome(answers == BREAKS, answers == MISSING, 100 * trials.samples + places)
        return found


def plain_exact(table: list[int]) -> Found:
    for place, answer in enumerate(table):
        if answer == BREAKS:
            return BROKEN, place, place, place + 1
        if answer == MISSING:
            return FAILED, -1, -1, place + 1
    return SURVIVED, -1, -1, len(table)


class Plain:
    """A bracketing search over one image."""

    def __init__(self, table: list[int]) -> None:
        self.table, self.low, self.high = table, -1, len(table)
        self.holds, self.queries, self.start, self.failed = set[int](), 0, -1, False

    def query(self, place: int) -> bool:
        self.queries += 1
        if self.table[place] == BREAKS:
            self.start = self.high = place
            return True
        self.failed = self.table[place] == MISSING
        self.low = max(self.low, place)
        self.holds.add(place)
        return False

    def bisect(self) -> None:
        while True:
            seeking = self.high == len(self.table)
            self.query(min(max(0, 2 * self.low + 1), self.high - 1) if seeking else (self.low + self.high) // 2)
            if self.failed or self.high - self.low <= 1:
                return

    def run(self) -> Found:
        self.bisect()
        for number in range(12):
            known = [-1, *sorted(place for place in self.holds if place < self.high)]
            gaps = [(after - before, -after) for before, after in itertools.pairwise(known)]
            size, end = max(gaps, default=(0, 0))
            if self.failed or size <= 1 or (self.start >= 0 and number >= 4):
                break
            low = -end - size
            if self.query((low - end) // 2):
                self.low = low
                self.bisect()
        status = BROKEN if self.start >= 0 else FAILED if self.failed else SURVIVED
        return status, self.start, self.start, self.queries


def found_by(search: Search) -> list[Found]:
    return list(
        zip(
            search.status.tolist(), search.start.tolist(), search.stop.tolist(), search.queries.tolist(), strict=True
        )
    )  # fmt: skip


def random_tables(length: int, count: int, shares: tuple[float, float], seed: int, directions: int = 1) -> Tensor:
    draws = torch.rand(directions, count, length, generator=torch.Generator().manual_seed(seed))
    return torch.where(draws < shares[0], BREAKS, torch.where(draws < sum(shares), MISSING, HOLDS))


@pytest.mark.parametrize(("length", "shares"), [(1, (0.5, 0.2)), (2, (0.3, 0.2)), (7, (0.1, 0.05)), (60, (0.03, 0.01))])
@pytest.mark.parametrize("how", ["exact", "bracket"])
def test_searches_do_what_plain_loops_do(how: str, length: int, shares: tuple[float, float]) -> None:
    tables = random_tables(length, 120, shares, length)
    tables[0, :4] = torch.tensor([HOLDS, BREAKS, MISSING, HOLDS])[:, None]
    tables[0, 3, -1] = BREAKS
    plain: Callable[[list[int]], Found] = plain_exact if how == "exact" else lambda table: Plain(table).run()
    expected = [plain(table) for table in tables[0].tolist()]
    search = Driven(tables, [length], make_shard(120)).run(how)
    assert found_by(search) == expected
    for sample, (status, start, *_) in enumerate(expected):
        if status == BROKEN or (status == FAILED and start >= 0):
            assert [float(search.found[name][sample]) for name in ("prediction", "probability")] == [
                100 * sample + start, 100 * sample + start + 3 / 8,
            ]  # fmt: skip
            assert float(search.found[DISTANCES[1]][sample]) == -100 * sample - start - 1 / 16


@pytest.mark.parametrize("how", ["exact", "bracket", "bands"])
def test_directions_have_their_own_length_and_what_is_wrong_when_clean_is_left_out(how: str) -> None:
    tables = random_tables(9, 6, (0.15, 0.0), 3, directions=2)
    tables[1, :, 5:] = BREAKS  # beyond the end of the second direction
    driven = Driven(tables, [9, 5], make_shard(6, wrong=[1], silent=[4]))
    search = driven.run(how)
    of_sample = search.status[search.samples == 1], search.status[search.samples == 4]
    assert set(of_sample[0].tolist()) == {SKIPPED} and set(of_sample[1].tolist()) == {FAILED}
    queried = [query for one in driven.rounds for query in one]
    assert {sample for sample, *_ in queried} == {0, 2, 3, 5}
    assert all(place < 14 for _, place, _ in queried), "the second direction begins at 9 and has 5 points"
    if how == "exact":
        expected = {
            (sample, direction): plain_exact(tables[direction, sample, : (9, 5)[direction]].tolist())
            for sample in (0, 2, 3, 5)
            for direction in (0, 1)
        }
        pairs = zip(search.samples.tolist(), search.directions.tolist(), found_by(search), strict=True)
        assert expected == {(sample, direction): found for sample, direction, found in pairs if sample not in (1, 4)}


@pytest.mark.parametrize(("full", "rounds"), [(1, [3] * 20), (12, [12] * 5), (1000, [24, 24, 12])])
def test_exact_search_queries_ahead_to_fill_its_batches(full: int, rounds: list[int]) -> None:
    driven = Driven(torch.zeros(1, 3, 20, dtype=torch.int64), [20], make_shard(3, full))
    assert found_by(driven.run("exact")) == [(SURVIVED, -1, -1, 20)] * 3
    assert [len(one) for one in driven.rounds] == rounds
    assert sorted(place for one in driven.rounds for sample, place, _ in one if sample == 2) == list(range(20))


def test_each_point_may_have_a_random_field_of_its_own() -> None:
    tables = torch.zeros(1, 2, 3, dtype=torch.int64)
    fresh = Driven(tables, [3], make_shard(2), resample=True)
    fresh.run("exact")
    assert [[field for *_, field in one] for one in fresh.rounds] == [[1, 1], [2, 2], [3, 3]]
    once = Driven(tables, [3], make_shard(2))
    once.run("exact")
    assert {field for one in once.rounds for *_, field in one} == {None}


def plain_bands(table: list[int]) -> tuple[list[tuple[int, int]], bool, bool]:
    """Return the breaking intervals, whether all answers are missing or right with a missing one, and recovery."""
    filled = list(table)
    known = [place for place, answer in enumerate(table) if answer != MISSING]
    for place, answer in enumerate(table):
        before = [one for one in known if one < place]
        after = [one for one in known if one > place]
        if answer == MISSING and before and after and table[before[-1]] == table[after[0]] == BREAKS:
            filled[place] = BREAKS
    broken = [place for place, answer in enumerate(filled) if answer == BREAKS]
    starts = [place for place in broken if place - 1 not in broken]
    stops = [place for place in broken if place + 1 not in broken]
    recovers = len(starts) > 1 or bool(broken and known and known[-1] > broken[-1])
    return list(zip(starts, stops, strict=True)), MISSING in table and not broken, recovers


@pytest.mark.parametrize(("length", "full"), [(1, 1), (5, 1), (12, 1), (12, 600), (12, 10_000)])
def test_bands_are_the_intervals_of_a_plain_loop(length: int, full: int) -> None:
    tables = random_tables(length, 150, (0.4, 0.2), length + full)
    driven = Driven(tables, [length], make_shard(150, full))
    search = driven.run("bands")
    expected = {sample: plain_bands(table) for sample, table in enumerate(tables[0].tolist())}
    assert [len(one) for one in driven.rounds] == [150 * min(length, full // 150 or 1)] * (
        length // min(length, full // 150 or 1)
    )
    assert search.queries.tolist() == [length] * len(search.samples)
    assert search.non_monotone is not None
    for sample, (intervals, failed, recovers) in expected.items():
        rows = (search.samples == sample).nonzero()[:, 0]
        assert set(search.non_monotone[rows].tolist()) == {recovers}
        if not intervals:
            assert found_by(search)[int(rows)][:3] == (FAILED if failed else SURVIVED, -1, -1)
            continue
        own = list(zip(search.start[rows].tolist(), search.stop[rows].tolist(), strict=True))
        assert sorted(own) == intervals and set(search.status[rows].tolist()) == {BROKEN}
        assert search.found["prediction"][rows].tolist() == [100 * sample + start for start, _ in own]


def test_the_most_queries_of_bracketing_are_known() -> None:
    counts = [most_bracket_queries(points) for points in (1, 7, 30, 31, 50, 224, 1000)]
    assert counts == [1, 7, 30, 31, 48, 60, 72]
