"""The profile lens (seed 1): the answer at every level of degradation, 0 to L."""

from __future__ import annotations

from typing import Literal

import torch
from pydantic import Field
from torch import Tensor

from brinell.boxes import Detections
from brinell.errors import ConfigError
from brinell.lenses.lens import LENSES, Again, Asking, Columns, Lens, LensOptions, Outcome, Shard, Trials
from brinell.perturb.operator import OPERATORS, Operator, find_operator, operator_names
from brinell.perturb.property import property_names
from brinell.registry import select_variants


class ProfileOptions(LensOptions):
    """Levels 0..`levels` of each operator."""

    name: Literal["profile"] = "profile"
    levels: int = Field(30, ge=1, le=30)


def profile(shard: Shard, operator: Operator, options: LensOptions) -> Asking:
    """Ask about every sample at every level; one row an answer, the clean one included."""
    assert isinstance(options, ProfileOptions)
    levels = torch.arange(1, options.levels + 1).repeat_interleave(shard.count)
    # all of it at once: the engine knows best how far batches of one level may go with those of the next
    outcome = yield Trials(torch.arange(shard.count).repeat(options.levels), operator, levels)
    return _columns(shard, operator, options.levels, (shard.clean, outcome))


def _columns(shard: Shard, operator: Operator, last: int, outcomes: tuple[Outcome, Outcome]) -> Columns:
    """The outcomes of levels 0..L one after the other."""
    levels = torch.arange(last + 1)
    amounts = torch.tensor([operator.facts.amount(level, shard.height, shard.width) for level in levels.tolist()])
    columns: Columns = {
        "sample": torch.arange(shard.count).repeat(last + 1),
        "level": levels.repeat_interleave(shard.count),
        "amount": amounts.to(torch.float32).repeat_interleave(shard.count),
        "correct": ~torch.cat([outcome.broken for outcome in outcomes]),
    }
    for name in ("prediction", "confidence", "rank", "probability"):
        columns[name] = torch.cat([getattr(outcome.verdict, name) for outcome in outcomes])
    for name in ("changed", "l0", "l1", "l2", "linf", "mae", "mse"):
        columns[name] = torch.cat([getattr(outcome.difference, name) for outcome in outcomes])
    if operator.facts.told in ("grey", "colours"):
        columns[operator.facts.told] = torch.cat([getattr(outcome, operator.facts.told) for outcome in outcomes])
    found = [outcome.detections for outcome in outcomes if outcome.detections is not None]
    if found:
        fields = ([getattr(each, name) for each in found] for name in ("boxes", "labels", "scores"))
        columns["detections"] = Detections(*(torch.cat(each) for each in fields))
    return _answered(columns)


def _answered(columns: Columns) -> Columns:
    """The rows that have an answer: a service may owe one for some images, which don't count at that level."""
    confidence = columns["confidence"]
    assert isinstance(confidence, Tensor)
    known = ~confidence.isnan()
    if bool(known.all()):
        return columns
    kept: Columns = {}
    for name, column in columns.items():
        if isinstance(column, Detections):
            kept[name] = column.at(known)
        elif isinstance(column, Tensor):
            kept[name] = column[known.to(column.device)]
    return kept


def chosen_operators(options: LensOptions) -> list[Operator]:
    """The operators that were asked for, each once; "all" are all of them in the preferred variant."""
    names = [name for asked in options.operators for name in (operator_names() if asked == "all" else [asked])]
    for name in names:
        if name.partition(":")[0] in property_names():
            raise ConfigError(f"{name} is a property with a severity, which the knob lens takes: --lens knob")
    return select_variants(OPERATORS, names, options.variant)


LENSES.add(
    "profile",
    Lens(
        name="profile",
        what="accuracy, rank and probability at every level of degradation (Swingler 2022)",
        options=ProfileOptions,
        ask=profile,
        operators=chosen_operators,
        trials=lambda options, *_: options.levels if isinstance(options, ProfileOptions) else 0,
        again=Again(lambda options, name, size: find_operator(name), ("level",)),
    ),
)
