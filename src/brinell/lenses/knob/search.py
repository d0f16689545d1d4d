"""Searches over a grid of severities: where does the model break, for every sample and direction?

All pairs of a sample and a direction advance together; finished pairs drop out. When few are left, several points of each
are queried at once, so that batches stay full to the end.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from brinell.lenses.method import Outcome, Shard, Trials
from brinell.lenses.outcomes import BROKEN, FAILED, SKIPPED, SURVIVED, flatten, wrong_when_clean
from brinell.perturb.property import Property

# probes of a bracketing search for each pair that is known to break, and for each that seems to survive
PROBES = (4, 12)
AHEAD = 8  # points of a pair that are queried at once, at most: queries beyond the first break are wasted


@dataclass
class Search:
    """Pairs of a sample and a direction, and what is known of each so far, (pairs,) each.

    `start` is the index of the breaking point in its direction's grid, `stop` that of the last point of the breaking
    interval (different where the whole grid is queried); -1: none. `found` holds the answers and distances at `start`.
    `non_monotone` marks pairs whose sample recovers from a break as the change grows; only the whole grid shows that.
    """

    shard: Shard
    change: Property
    resample: bool
    points: Tensor  # severities (directions, K, P)
    lengths: Tensor  # number of points per direction
    samples: Tensor
    directions: Tensor
    status: Tensor
    start: Tensor
    stop: Tensor
    queries: Tensor
    found: dict[str, Tensor] = field(default_factory=dict)
    non_monotone: Tensor | None = None

    @staticmethod
    def of(shard: Shard, change: Property, points: Tensor, lengths: Tensor, *, resample: bool) -> Search:
        """Return a search before its first query.

        Samples that are wrong or broken by the criterion when clean are skipped; those without a clean answer have failed.
        """
        directions = torch.arange(len(points)).repeat_interleave(shard.count)
        samples = torch.arange(shard.count).repeat(len(points))
        status = torch.where(wrong_when_clean(shard)[samples], SKIPPED, SURVIVED)
        status[shard.clean.verdict.confidence.isnan().cpu()[samples]] = FAILED
        start, stop = torch.full_like(samples, -1), torch.full_like(samples, -1)
        queries = torch.zeros_like(samples)
        return Search(shard, change, resample, points, lengths, samples, directions, status, start, stop, queries)

    @property
    def active(self) -> Tensor:
        """Indices of the pairs to query."""
        return (self.status == SURVIVED).nonzero()[:, 0]

    def query(self, pairs: Tensor, indices: Tensor) -> Generator[Trials, Outcome, Outcome]:
        """Return the outcome of each pair at a point of its direction."""
        self.queries.index_add_(0, pairs, torch.ones_like(pairs))
        fields = indices + 1 if self.resample and self.change.stochastic else None
        severities = self.points[self.directions[pairs], indices]
        return (yield Trials(self.samples[pairs], self.change, severities, fields, may_fail=True))

    def record_breaks(self, pairs: Tensor, indices: Tensor, outcome: Outcome, rows: Tensor) -> None:
        """Record that pairs broke at these points, with the outcome's rows as their answers."""
        self.status[pairs] = BROKEN
        self.start[pairs] = indices
        self.stop[pairs] = indices
        for name, values in flatten(outcome).items():
            kept = self.found.setdefault(name, torch.zeros(len(self.samples), dtype=values.dtype))
            kept[pairs] = values[rows]

    def record_failures(self, pairs: Tensor) -> None:
        """Record that the model returned no answer for pairs; those that are known to break stay broken."""
        self.status[pairs] = torch.where(self.status[pairs] == BROKEN, BROKEN, FAILED)


Searching = Generator[Trials, Outcome, Search]


def exact(search: Search, active: Tensor) -> Searching:
    """Find the first breaking point of every pair, in increasing order."""
    position = torch.zeros_like(search.samples)
    while len(active):
        window = min(AHEAD, max(1, search.shard.full // len(active)))
        indices = position[active, None] + torch.arange(window)
        inside = indices < search.lengths[search.directions[active], None]
        rows = torch.full_like(indices, -1)
        rows[inside] = torch.arange(int(inside.sum()))
        outcome = yield from search.query(active[:, None].expand_as(indices)[inside], indices[inside])
        broken, failed = _evaluate(outcome)
        stops = torch.zeros_like(inside)
        stops[inside] = broken | failed
        first = stops.to(torch.int8).argmax(1)
        stopped = stops.any(1)
        row = rows.gather(1, first[:, None])[stopped, 0]
        pairs = active[stopped]
        hit = broken[row]
        search.record_breaks(pairs[hit], indices.gather(1, first[:, None])[stopped, 0][hit], outcome, row[hit])
        search.record_failures(pairs[~hit])
        position[active] += window
        active = active[~stopped & (position[active] < search.lengths[search.directions[active]])]
    return search


def bracket(search: Search, active: Tensor) -> Searching:
    """Double until a pair breaks, then bisect, then probe for weaker breaks.

    Doubling and bisection find the first break of a model that stays broken. A model may recover, though, so probes follow
    in the middle of the largest gaps between points that don't break, and a probe that breaks is bisected in turn. A pair
    that seems to survive gets more of them than one that is known to break.
    """
    bounds = _Bounds.of(search)
    yield from _bisect(search, bounds, active)
    for number in range(max(PROBES)):
        low, high = bounds.largest_gap(active)
        allowed = number < torch.where(search.status[active] == BROKEN, *PROBES)
        probed = allowed & (high - low > 1) & ~bounds.failed[active]
        active, low = active[probed], low[probed]
        if not len(active):
            break
        hit = yield from _query_bounds(search, bounds, active, (low + high[probed]) // 2)
        bounds.low[active[hit]] = low[hit]
        yield from _bisect(search, bounds, active[hit])
    return search


def most_bracket_queries(points: int) -> int:
    """Return the most queries that bracketing needs for a direction: doubling, bisection, probes, and bisection after each
    probe that breaks.
    """
    halvings = points.bit_length()
    return min(points, 2 * halvings + max(PROBES) + min(PROBES) * halvings)


@dataclass
class _Bounds:
    """What a bracketing search knows of each pair.

    `high` (pairs,) is the weakest point that breaks, or the number of points; `low` (pairs,) the strongest point below it
    that doesn't, or -1; `unbroken` (pairs, K) all points that don't; `failed` (pairs,) whether a query got no answer,
    which ends the search.
    """

    low: Tensor
    high: Tensor
    unbroken: Tensor
    failed: Tensor

    @staticmethod
    def of(search: Search) -> _Bounds:
        """Return the bounds before the first query."""
        unbroken = torch.zeros(len(search.samples), int(search.lengths.max()), dtype=torch.bool)
        low, high = torch.full_like(search.samples, -1), search.lengths[search.directions].clone()
        return _Bounds(low, high, unbroken, torch.zeros(len(low), dtype=torch.bool))

    def largest_gap(self, pairs: Tensor) -> tuple[Tensor, Tensor]:
        """Return the ends of the largest gap between neighbouring unbroken points below `high`, from the clean image on."""
        indices = torch.arange(self.unbroken.shape[1])
        known = self.unbroken[pairs] & (indices < self.high[pairs, None])
        latest = torch.where(known, indices, -1).cummax(1).values
        before = torch.nn.functional.pad(latest, (1, 0), value=-1)[:, :-1]
        gaps = torch.where(known, indices - before, 0)
        end = gaps.argmax(1)
        return end - gaps.amax(1), end


def _bisect(search: Search, bounds: _Bounds, active: Tensor) -> Generator[Trials, Outcome, None]:
    """Double until pairs break, then bisect between their bounds."""
    while len(active):
        low, high = bounds.low[active], bounds.high[active]
        seeking = high == search.lengths[search.directions[active]]
        doubled = (2 * low + 1).clamp(min=0).minimum(high - 1)
        yield from _query_bounds(search, bounds, active, torch.where(seeking, doubled, (low + high) // 2))
        active = active[~bounds.failed[active] & (bounds.high[active] - bounds.low[active] > 1)]


def _query_bounds(search: Search, bounds: _Bounds, pairs: Tensor, indices: Tensor) -> Generator[Trials, Outcome, Tensor]:
    """Query pairs at points within their bounds, tighten these, and return which pairs broke."""
    outcome = yield from search.query(pairs, indices)
    broken, failed = _evaluate(outcome)
    rows = broken.nonzero()[:, 0]
    search.record_breaks(pairs[rows], indices[rows], outcome, rows)
    bounds.high[pairs[rows]] = indices[rows]
    bounds.low[pairs[~broken]] = bounds.low[pairs[~broken]].maximum(indices[~broken])
    bounds.unbroken[pairs[~broken], indices[~broken]] = True
    search.record_failures(pairs[failed])
    bounds.failed[pairs] = failed
    return broken


def bands(search: Search, active: Tensor) -> Searching:
    """Query the whole grid; the pairs then stand for one breaking interval each."""
    longest = int(search.lengths.max())
    queried: list[tuple[Tensor, Tensor]] = []
    outcomes: list[dict[str, Tensor]] = []
    broken, failed = (torch.zeros(len(search.samples), longest, dtype=torch.bool) for _ in range(2))
    window = max(1, search.shard.full // len(active))
    for start in range(0, longest, window):
        indices = torch.arange(start, min(start + window, longest)).expand(len(active), -1)
        inside = indices < search.lengths[search.directions[active], None]
        pairs, points = active[:, None].expand_as(indices)[inside], indices[inside]
        outcome = yield from search.query(pairs, points)
        broken[pairs, points], failed[pairs, points] = _evaluate(outcome)
        queried.append((pairs, points))
        outcomes.append(flatten(outcome))
    return _split_intervals(search, broken, failed, queried, outcomes)


def _split_intervals(
    search: Search,
    broken: Tensor,
    failed: Tensor,
    queried: list[tuple[Tensor, Tensor]],
    outcomes: list[dict[str, Tensor]],
) -> Search:
    """Return the search with one pair for each breaking interval, and the other pairs as they were."""
    # a missing answer between two breaks is no recovery
    broken |= failed & _broken_before(broken, failed) & _broken_before(broken.flip(1), failed.flip(1)).flip(1)
    before = torch.nn.functional.pad(broken, (1, 0))[:, :-1]
    after = torch.nn.functional.pad(broken, (0, 1))[:, 1:]
    pairs, starts = (broken & ~before).nonzero().unbind(1)
    _, stops = (broken & ~after).nonzero().unbind(1)
    whole = (~broken.any(1)).nonzero()[:, 0]
    search.status[whole[failed[whole].any(1)]] = FAILED
    row = torch.full_like(broken, -1, dtype=torch.int64)
    count = 0
    for these, points in queried:
        row[these, points] = torch.arange(count, count + len(these))
        count += len(these)
    kept = torch.cat([pairs, whole])
    none = torch.full_like(whole, -1)
    rows = torch.cat([row[pairs, starts], torch.zeros_like(whole)])
    return replace(
        search,
        samples=search.samples[kept],
        directions=search.directions[kept],
        status=torch.cat([torch.full_like(pairs, BROKEN), search.status[whole]]),
        start=torch.cat([starts, none]),
        stop=torch.cat([stops, none]),
        queries=search.queries[kept],
        found={name: torch.cat([outcome[name] for outcome in outcomes])[rows] for name in outcomes[0]},
        non_monotone=_recovering(search, broken, failed)[search.samples[kept]],
    )


def _recovering(search: Search, broken: Tensor, failed: Tensor) -> Tensor:
    """Return which samples have an answer that is right at a stronger change than one that breaks, in any direction."""
    indices = torch.arange(broken.shape[1])
    before = torch.nn.functional.pad(broken, (1, 0))[:, :-1]
    answered = (indices < search.lengths[search.directions, None]) & ~failed
    last_answer = torch.where(answered, indices, -1).amax(1)
    last_break = torch.where(broken, indices, -1).amax(1)
    recovering = (broken & ~before).sum(1).gt(1) | ((last_break >= 0) & (last_break < last_answer))
    samples = torch.zeros(search.shard.count, dtype=torch.bool)
    samples[search.samples[recovering]] = True
    return samples


def _broken_before(broken: Tensor, failed: Tensor) -> Tensor:
    """Return, for each point, whether the last point up to it that has an answer is a break."""
    indices = torch.arange(broken.shape[1]).expand_as(broken)
    return broken.gather(1, torch.where(failed, 0, indices).cummax(1).values)


SEARCHES: dict[str, Callable[[Search, Tensor], Searching]] = {"exact": exact, "bracket": bracket, "bands": bands}


def _evaluate(outcome: Outcome) -> tuple[Tensor, Tensor]:
    """Return which trials broke the model, and which got no answer."""
    failed = outcome.verdict.confidence.isnan().cpu()
    return outcome.broken.cpu() & ~failed, failed
