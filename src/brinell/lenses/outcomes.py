"""What lenses keep of outcomes: statuses of a search, and the columns of answers and distances."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from brinell.lenses.method import Outcome, Shard
from brinell.runs.schema import DISTANCES

STATUSES = ("broken", "survived", "skipped", "failed")
BROKEN, SURVIVED, SKIPPED, FAILED = range(4)
ANSWERS = ("prediction", "confidence", "rank", "probability")


def flatten(outcome: Outcome) -> dict[str, Tensor]:
    """Return an outcome's answers and distances by column, on the host."""
    answers = {name: getattr(outcome.verdict, name).cpu() for name in ANSWERS}
    distances = {name: getattr(outcome.difference, name).cpu() for name in DISTANCES}
    return answers | distances | join_causes([outcome])


def join_causes(outcomes: Sequence[Outcome]) -> dict[str, Tensor]:
    """Return the column of why answers are broken, where outcomes say it."""
    causes = [outcome.cause.cpu() for outcome in outcomes if outcome.cause is not None]
    return {"cause": torch.cat(causes)} if len(causes) == len(outcomes) else {}


def wrong_when_clean(shard: Shard) -> Tensor:
    """Return which samples a search skips: wrong when clean, or broken by the criterion."""
    wrong = shard.clean.broken.cpu()
    if shard.clean.detections is None:  # a detector is right if it finds its object, whatever else it finds
        wrong = wrong | (shard.clean.verdict.rank > 0).cpu()
    return wrong
