"""Search for the faintest spot that breaks the model: continuous in position and size, all samples side by side.

First the largest spot is tried in every cell. If one breaks the model, smaller spots around the one that adds the least
light are tried in rounds: whichever breaks with less light is the next starting point, and a round without improvement
makes the steps smaller. If none breaks, the spot moves to where the label is least probable, until one breaks or the
queries are used up.

The search is deterministic: each round tries a spiral of golden angles around the best spot so far, rotated further every
time. Light is the mean number of grey levels that the spot adds to the model input: 255 times `mae`.
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

SPOTS_PER_ROUND = 8
GOLDEN_ANGLE = math.pi * (3 - math.sqrt(5))
FIRST_STEP, LAST_STEP = 0.5, 0.01  # the largest and the smallest share of its light that a step takes away
STEP_DECAY = 0.6  # after a round without improvement
SMALLEST_SIGMA = 0.5  # pixels: smaller spots vanish when the image is resized


@dataclass
class _State:
    """The best spot of each sample so far, (N, 4); its light (infinite if none broke); the label's probability under it;
    and the size of the next step.
    """

    spots: Tensor
    light: Tensor
    probability: Tensor
    step: Tensor
    status: Tensor
    queries: Tensor
    found: dict[str, Tensor]

    def update(self, samples: Tensor, spots: Tensor, outcome: Outcome) -> None:
        """Take in the outcome of a round: samples (M,), and K spots for each of them (M, K, 4)."""
        count = spots.shape[1]
        self.queries[samples] += count
        answered = ~outcome.verdict.confidence.isnan().cpu().view(-1, count)
        light = outcome.difference.mae.cpu().to(torch.float64).view(-1, count)
        light = light.masked_fill(~(outcome.broken.cpu().view(-1, count) & answered), math.inf)
        probability = outcome.verdict.probability.cpu().to(torch.float64).view(-1, count).masked_fill(~answered, math.inf)
        self.status[samples[~answered.any(1) & (self.status[samples] != BROKEN)]] = FAILED
        least, index = light.min(1)
        fainter = least < self.light[samples]
        self._replace(samples, spots, least, index, fainter)
        self.status[samples[fainter]] = BROKEN
        for name, values in flatten(outcome).items():
            kept = self.found.setdefault(name, torch.zeros(len(self.spots), dtype=values.dtype))
            kept[samples[fainter]] = values.view(-1, count)[fainter, index[fainter]]
        lowest, index = probability.min(1)
        closer = (lowest < self.probability[samples]) & self.light[samples].isinf()
        self._replace(samples, spots, self.light[samples], index, closer)
        self.probability[samples[closer]] = lowest[closer]
        self.step[samples[~fainter & ~closer]] *= STEP_DECAY

    def _replace(self, samples: Tensor, spots: Tensor, light: Tensor, index: Tensor, where: Tensor) -> None:
        """Replace the best spot of some samples by the one at an index of their round."""
        self.spots[samples[where]] = spots[where, index[where]]
        self.light[samples[where]] = light[where]


def search_faintest(
    shard: Shard, view: View, starts: Tensor, queries: int, *, vary_strength: bool
) -> Generator[Trials, Outcome, Columns]:
    """Search the least light that breaks each sample, starting from spots (N, K, 4); one row per sample."""
    assert shard.sizes is not None
    wrong = wrong_when_clean(shard)
    state = _State(
        spots=starts[:, 0].clone(),
        light=torch.full((shard.count,), math.inf, dtype=torch.float64),
        probability=torch.full((shard.count,), math.inf, dtype=torch.float64),
        step=torch.full((shard.count,), FIRST_STEP, dtype=torch.float64),
        status=torch.where(wrong, SKIPPED, SURVIVED),
        queries=torch.zeros(shard.count, dtype=torch.int64),
        found={},
    )
    alive = (~wrong).nonzero()[:, 0]
    proposed, number = starts[:, :queries], 0
    while len(alive):
        spots = proposed[alive]
        outcome = yield Trials(alive.repeat_interleave(spots.shape[1]), view, spots.flatten(0, 1), may_fail=True)
        state.update(alive, spots, outcome)
        used = int(state.queries.max())
        alive = alive[(state.step[alive] > LAST_STEP) & (used < queries) & (state.status[alive] != FAILED)]
        if len(alive):
            count = min(SPOTS_PER_ROUND, queries - used)
            proposed = _propose(state, shard.sizes, count, number, vary_strength=vary_strength)
        number += 1
    return _columns(state)


def _propose(state: _State, sizes: Tensor, count: int, number: int, *, vary_strength: bool) -> Tensor:
    """Return the spots of a round around the best ones, (N, count, 4); with less light where those broke."""
    indices = torch.arange(count, dtype=torch.float64)
    angle = GOLDEN_ANGLE * (indices + count * number)
    distance = torch.sqrt((indices + 0.5) / count) * state.step[:, None]
    x, y, sigma, strength = state.spots.unbind(1)
    broke = state.light.isfinite()[:, None]
    # the share of the light that is kept: the nearest spots give up the most
    kept = torch.where(broke, 1 - state.step[:, None] * (1 - indices / count), 1.0)
    shrink, dim = (kept**0.25, kept**0.5) if vary_strength else (kept**0.5, torch.ones_like(kept))
    radius = 2 * sigma[:, None] * distance
    last = (sizes - 1).to(torch.float64)
    return torch.stack(
        [
            (x[:, None] + radius * torch.cos(angle)).clamp(min=0).minimum(last[:, 1:]),
            (y[:, None] + radius * torch.sin(angle)).clamp(min=0).minimum(last[:, :1]),
            (sigma[:, None] * shrink).clamp(min=SMALLEST_SIGMA),
            strength[:, None] * dim,
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
