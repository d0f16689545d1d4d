"""The faintest spot that breaks: a continuous search over position and size, all samples side by side.

First the largest spot is tried in every cell. Where one breaks the model, smaller ones are tried around the one that adds
the least light, in rounds: whichever breaks with less light is the next to start from, and a round without one makes the
steps smaller. Where none does, the spot goes where the label is least probable, until one breaks or the budget is spent.

What is tried is no matter of chance: a spiral of golden angles around the best spot so far, each round turned further.
Light is the mean of the grey levels that the spot adds to the model input: 255 times `mae`.
"""

from __future__ import annotations

import math
from collections.abc import Generator
from dataclasses import dataclass

import torch
from torch import Tensor

from brinell.lenses.method import Categorical, Columns, Nullable, Outcome, Shard, Trials
from brinell.lenses.outcomes import BROKEN, FAILED, SKIPPED, STATUSES, SURVIVED, flatten, wrong_when_clean
from brinell.perturb.highlight import SPOT
from brinell.perturb.view import View

AROUND = 8  # spots tried in a round
GOLDEN = math.pi * (3 - math.sqrt(5))
FIRST, LAST = 0.5, 0.01  # the largest and the smallest share of its light that a step takes away
SMALLER_STEPS = 0.6  # after a round without a better spot
LEAST_SIGMA = 0.5  # pixels: smaller spots are gone after resizing


@dataclass
class _State:
    """The best spot of each sample so far, (N, 4); its light, infinite where none broke; how probable the label was under
    it; and how large the next step is.
    """

    spots: Tensor
    light: Tensor
    probability: Tensor
    step: Tensor
    status: Tensor
    queries: Tensor
    found: dict[str, Tensor]

    def learn(self, samples: Tensor, spots: Tensor, outcome: Outcome) -> None:
        """Take in what a round showed: samples (M,), and for each of them as many spots (M, K, 4)."""
        tried = spots.shape[1]
        self.queries[samples] += tried
        answered = ~outcome.verdict.confidence.isnan().cpu().view(-1, tried)
        light = outcome.difference.mae.cpu().to(torch.float64).view(-1, tried)
        light = light.masked_fill(~(outcome.broken.cpu().view(-1, tried) & answered), math.inf)
        probability = outcome.verdict.probability.cpu().to(torch.float64).view(-1, tried).masked_fill(~answered, math.inf)
        self.status[samples[~answered.any(1) & (self.status[samples] != BROKEN)]] = FAILED
        least, place = light.min(1)
        better = least < self.light[samples]
        self._move(samples, spots, least, place, better)
        self.status[samples[better]] = BROKEN
        for name, values in flatten(outcome).items():
            kept = self.found.setdefault(name, torch.zeros(len(self.spots), dtype=values.dtype))
            kept[samples[better]] = values.view(-1, tried)[better, place[better]]
        lowest, place = probability.min(1)
        closer = (lowest < self.probability[samples]) & self.light[samples].isinf()
        self._move(samples, spots, self.light[samples], place, closer)
        self.probability[samples[closer]] = lowest[closer]
        self.step[samples[~better & ~closer]] *= SMALLER_STEPS

    def _move(self, samples: Tensor, spots: Tensor, light: Tensor, place: Tensor, where: Tensor) -> None:
        self.spots[samples[where]] = spots[where, place[where]]
        self.light[samples[where]] = light[where]


def search_faintest(
    shard: Shard, view: View, starts: Tensor, budget: int, *, vary_strength: bool
) -> Generator[Trials, Outcome, Columns]:
    """The least light that breaks each sample, from spots to start with (N, K, 4); a row a sample."""
    assert shard.sizes is not None
    wrong = wrong_when_clean(shard)
    state = _State(
        spots=starts[:, 0].clone(),
        light=torch.full((shard.count,), math.inf, dtype=torch.float64),
        probability=torch.full((shard.count,), math.inf, dtype=torch.float64),
        step=torch.full((shard.count,), FIRST, dtype=torch.float64),
        status=torch.where(wrong, SKIPPED, SURVIVED),
        queries=torch.zeros(shard.count, dtype=torch.int64),
        found={},
    )
    alive = (~wrong).nonzero()[:, 0]
    proposed, turn = starts[:, :budget], 0
    while len(alive):
        spots = proposed[alive]
        outcome = yield Trials(alive.repeat_interleave(spots.shape[1]), view, spots.flatten(0, 1), may_fail=True)
        state.learn(alive, spots, outcome)
        spent = int(state.queries.max())
        alive = alive[(state.step[alive] > LAST) & (spent < budget) & (state.status[alive] != FAILED)]
        proposed = _around(state, shard.sizes, min(AROUND, budget - spent), turn, vary_strength) if len(alive) else proposed
        turn += 1
    return _columns(state)


def _around(state: _State, sizes: Tensor, count: int, turn: int, vary_strength: bool) -> Tensor:
    """Spots around the best ones (N, count, 4): beside them, and with less light where those broke."""
    places = torch.arange(count, dtype=torch.float64)
    angle = GOLDEN * (places + count * turn)
    far = torch.sqrt((places + 0.5) / count) * state.step[:, None]
    x, y, sigma, strength = state.spots.unbind(1)
    broke = state.light.isfinite()[:, None]
    # the share of the light that is left: the nearest give up the most of it
    left = torch.where(broke, 1 - state.step[:, None] * (1 - places / count), 1.0)
    shrunk, dimmed = (left**0.25, left**0.5) if vary_strength else (left**0.5, torch.ones_like(left))
    radius = 2 * sigma[:, None] * far
    most = (sizes - 1).to(torch.float64)
    return torch.stack(
        [
            (x[:, None] + radius * torch.cos(angle)).clamp(min=0).minimum(most[:, 1:]),
            (y[:, None] + radius * torch.sin(angle)).clamp(min=0).minimum(most[:, :1]),
            (sigma[:, None] * shrunk).clamp(min=LEAST_SIGMA),
            strength[:, None] * dimmed,
        ],
        -1,
    )


def _columns(state: _State) -> Columns:
    broke = state.status == BROKEN
    columns: Columns = {
        "sample": torch.arange(len(broke)),
        "correct": Nullable(state.status == SURVIVED, state.status != FAILED),
        "status": Categorical(state.status, STATUSES),
        "queries": state.queries,
    }
    for name, values in zip(SPOT, state.spots.unbind(1), strict=True):
        columns[name] = Nullable(values, broke)
    return columns | {name: Nullable(values, broke) for name, values in state.found.items()}
