"""Searches over a grid of severities: for every sample and direction, where does the model break?

All pairs of a sample and a direction advance together, and those that are done leave. When few are left, several points
of each are asked at once, so that batches stay full to the end.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from brinell.lenses.method import Outcome, Shard, Trials
from brinell.lenses.outcomes import BROKEN, FAILED, SKIPPED, SURVIVED, flatten, wrong_when_clean
from brinell.perturb.property import Property

AHEAD = 8  # as many points of a pair are asked at once, at most: what lies behind the first break is asked for nothing


@dataclass
class Search:
    """Pairs of a sample and a direction, and what is known of each so far, (pairs,) each.

    `place` is the breaking point among its direction's points, `until` the last one of the breaking interval (told apart
    where the whole grid is asked); `found` holds the answers and distances at `place`. `uneven` are pairs of a sample that
    recovers from a break as the change grows, which only the whole grid can tell.
    """

    shard: Shard
    change: Property
    resample: bool
    points: Tensor  # severities (directions, K, P)
    lengths: Tensor  # how many of them a direction has
    samples: Tensor
    directions: Tensor
    status: Tensor
    place: Tensor
    until: Tensor
    queries: Tensor
    found: dict[str, Tensor] = field(default_factory=dict)
    uneven: Tensor | None = None

    @staticmethod
    def of(shard: Shard, change: Property, points: Tensor, lengths: Tensor, *, resample: bool) -> Search:
        """Before anything is asked: samples that are wrong when clean, or broken by the criterion, are skipped; of those
        that got no answer when clean nothing more is asked.
        """
        directions = torch.arange(len(points)).repeat_interleave(shard.count)
        samples = torch.arange(shard.count).repeat(len(points))
        status = torch.where(wrong_when_clean(shard)[samples], SKIPPED, SURVIVED)
        status[shard.clean.verdict.confidence.isnan().cpu()[samples]] = FAILED
        place, until = torch.full_like(samples, -1), torch.full_like(samples, -1)
        queries = torch.zeros_like(samples)
        return Search(shard, change, resample, points, lengths, samples, directions, status, place, until, queries)

    @property
    def alive(self) -> Tensor:
        """The pairs that are asked about."""
        return (self.status == SURVIVED).nonzero()[:, 0]

    def ask(self, pairs: Tensor, places: Tensor) -> Generator[Trials, Outcome, Outcome]:
        """The outcome of each pair at a point of its direction."""
        self.queries.index_add_(0, pairs, torch.ones_like(pairs))
        fields = places + 1 if self.resample and self.change.stochastic else None
        severities = self.points[self.directions[pairs], places]
        return (yield Trials(self.samples[pairs], self.change, severities, fields, may_fail=True))

    def keep(self, pairs: Tensor, places: Tensor, outcome: Outcome, rows: Tensor) -> None:
        """Note that pairs broke at their places, as the outcome's rows say."""
        self.status[pairs] = BROKEN
        self.place[pairs] = places
        self.until[pairs] = places
        for name, values in flatten(outcome).items():
            kept = self.found.setdefault(name, torch.zeros(len(self.samples), dtype=values.dtype))
            kept[pairs] = values[rows]

    def give_up(self, pairs: Tensor) -> None:
        """Note that the model gave no answer for these pairs; what is known to break stays known."""
        self.status[pairs] = torch.where(self.status[pairs] == BROKEN, BROKEN, FAILED)


Searching = Generator[Trials, Outcome, Search]


def exact(search: Search, alive: Tensor) -> Searching:
    """The first breaking point of every pair, in increasing order."""
    position = torch.zeros_like(search.samples)
    while len(alive):
        window = min(AHEAD, max(1, search.shard.full // len(alive)))
        places = position[alive, None] + torch.arange(window)
        inside = places < search.lengths[search.directions[alive], None]
        rows = torch.full_like(places, -1)
        rows[inside] = torch.arange(int(inside.sum()))
        outcome = yield from search.ask(alive[:, None].expand_as(places)[inside], places[inside])
        broken, failed = _judged(outcome)
        stops = torch.zeros_like(inside)
        stops[inside] = broken | failed
        first = stops.to(torch.int8).argmax(1)
        stopped = stops.any(1)
        row = rows.gather(1, first[:, None])[stopped, 0]
        here = alive[stopped]
        hit = broken[row]
        search.keep(here[hit], places.gather(1, first[:, None])[stopped, 0][hit], outcome, row[hit])
        search.give_up(here[~hit])
        position[alive] += window
        alive = alive[~stopped & (position[alive] < search.lengths[search.directions[alive]])]
    return search


def bracket(search: Search, alive: Tensor) -> Searching:
    """Doubling until a pair breaks, then bisection: the first breaking point, if a model that broke stays broken."""
    low = torch.full_like(search.samples, -1)  # the strongest point that is known not to break
    high = search.lengths[search.directions].clone()  # the weakest that is known to
    while len(alive):
        seeking = high[alive] == search.lengths[search.directions[alive]]
        doubled = (2 * low[alive] + 1).clamp(min=0).minimum(high[alive] - 1)
        places = torch.where(seeking, doubled, (low[alive] + high[alive]) // 2)
        outcome = yield from search.ask(alive, places)
        broken, failed = _judged(outcome)
        rows = broken.nonzero()[:, 0]
        search.keep(alive[rows], places[rows], outcome, rows)
        high[alive[rows]] = places[rows]
        low[alive[~broken]] = places[~broken]
        search.give_up(alive[failed])
        alive = alive[~failed & (high[alive] - low[alive] > 1)]
    return search


def bands(search: Search, alive: Tensor) -> Searching:
    """Every point of the grid; the pairs are then one for each interval in which the model fails."""
    longest = int(search.lengths.max())
    asked: list[tuple[Tensor, Tensor]] = []
    outcomes: list[dict[str, Tensor]] = []
    broken, failed = (torch.zeros(len(search.samples), longest, dtype=torch.bool) for _ in range(2))
    window = max(1, search.shard.full // len(alive))
    for start in range(0, longest, window):
        places = torch.arange(start, min(start + window, longest)).expand(len(alive), -1)
        inside = places < search.lengths[search.directions[alive], None]
        pairs, points = alive[:, None].expand_as(places)[inside], places[inside]
        outcome = yield from search.ask(pairs, points)
        broken[pairs, points], failed[pairs, points] = _judged(outcome)
        asked.append((pairs, points))
        outcomes.append(flatten(outcome))
    return _as_bands(search, broken, failed, asked, outcomes)


def _as_bands(
    search: Search,
    broken: Tensor,
    failed: Tensor,
    asked: list[tuple[Tensor, Tensor]],
    outcomes: list[dict[str, Tensor]],
) -> Search:
    """The search with a pair for each breaking interval, and the others as they were."""
    # no answer between two breaks is no recovery
    broken |= failed & _carried(broken, failed) & _carried(broken.flip(1), failed.flip(1)).flip(1)
    before = torch.nn.functional.pad(broken, (1, 0))[:, :-1]
    after = torch.nn.functional.pad(broken, (0, 1))[:, 1:]
    pairs, starts = (broken & ~before).nonzero().unbind(1)
    _, stops = (broken & ~after).nonzero().unbind(1)
    places = torch.arange(broken.shape[1])
    answered = (places < search.lengths[search.directions, None]) & ~failed
    last = torch.where(answered, places, -1).amax(1)
    ends = torch.where(broken, places, -1).amax(1)
    recovering = (broken & ~before).sum(1).gt(1) | ((ends >= 0) & (ends < last))
    uneven = torch.zeros(search.shard.count, dtype=torch.bool)
    uneven[search.samples[recovering]] = True
    whole = (~broken.any(1)).nonzero()[:, 0]
    search.status[whole[failed[whole].any(1)]] = FAILED
    row = torch.full_like(broken, -1, dtype=torch.int64)
    count = 0
    for these, points in asked:
        row[these, points] = torch.arange(count, count + len(these))
        count += len(these)
    kept = torch.cat([pairs, whole])
    unknown = torch.full_like(whole, -1)
    rows = torch.cat([row[pairs, starts], torch.zeros_like(whole)])
    return replace(
        search,
        samples=search.samples[kept],
        directions=search.directions[kept],
        status=torch.cat([torch.full_like(pairs, BROKEN), search.status[whole]]),
        place=torch.cat([starts, unknown]),
        until=torch.cat([stops, unknown]),
        queries=search.queries[kept],
        found={name: torch.cat([outcome[name] for outcome in outcomes])[rows] for name in outcomes[0]},
        uneven=uneven[search.samples[kept]],
    )


def _carried(broken: Tensor, failed: Tensor) -> Tensor:
    """For each point, whether the last one before it that has an answer is a break."""
    places = torch.arange(broken.shape[1]).expand_as(broken)
    return broken.gather(1, torch.where(failed, 0, places).cummax(1).values)


SEARCHES: dict[str, Callable[[Search, Tensor], Searching]] = {"exact": exact, "bracket": bracket, "bands": bands}


def _judged(outcome: Outcome) -> tuple[Tensor, Tensor]:
    """Which trials broke the model, and for which it gave no answer."""
    failed = outcome.verdict.confidence.isnan().cpu()
    return outcome.broken.cpu() & ~failed, failed
