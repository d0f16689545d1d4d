"""The profile lens (Swingler 2022): query every sample at every level of degradation, 0 to L."""

from __future__ import annotations

import inspect
from dataclasses import dataclass

import torch
from torch import Tensor

from brinell.boxes import Detections
from brinell.errors import ConfigError
from brinell.lenses.entry import Entry
from brinell.lenses.method import Columns, Measuring, Method, Outcome, Shard, Size, Trials
from brinell.lenses.outcomes import ANSWERS, join_causes, join_fields, join_overlaps
from brinell.lenses.profile.options import ProfileOptions
from brinell.masks import Overlap
from brinell.perturb.change import Change
from brinell.perturb.families import expand_names
from brinell.perturb.operator import OPERATORS, Operator, find_operator, operator_names
from brinell.perturb.property import property_names
from brinell.registry import VariantId, list_variants, select_variants
from brinell.runs.schema import DISTANCES


def measure(shard: Shard, operator: Operator, options: ProfileOptions) -> Measuring:
    """Query every sample at every level, or those that a budget chooses; one row per answer, the clean one included."""
    chosen = shard.choose(operator, min(options.levels, operator.facts.levels))
    # level by level, all of them at once, so that the engine may overlap the batches of one level with those of the next
    levels, samples = (index.flatten() for index in chosen.cells.T.nonzero(as_tuple=True))
    parts = [] if shard.resumed else [_part(shard.clean, torch.arange(shard.count), 0, torch.ones(shard.count))]
    if len(samples):
        outcome = yield Trials(samples, operator, (levels + 1)[:, None].to(torch.float64))
        parts.append(_part(outcome, samples, levels + 1, chosen.inclusion[samples]))
    return _columns(shard, operator, parts) if parts else {"sample": samples}


@dataclass(frozen=True)
class _Part:
    """Outcomes of samples at levels, and the probability with which a budget includes each."""

    outcome: Outcome
    samples: Tensor
    levels: Tensor
    inclusion: Tensor


def _part(outcome: Outcome, samples: Tensor, levels: Tensor | int, inclusion: Tensor) -> _Part:
    return _Part(outcome, samples, levels + torch.zeros_like(samples), inclusion.to(torch.float64))


def _columns(shard: Shard, operator: Operator, parts: list[_Part]) -> Columns:
    """Return outcomes as columns, in the order of the parts."""
    levels, outcomes = torch.cat([part.levels for part in parts]), [part.outcome for part in parts]
    amounts = [operator.facts.amount(level, shard.height, shard.width) for level in range(int(levels.max()) + 1)]
    columns: Columns = {
        "sample": torch.cat([part.samples for part in parts]),
        "level": levels,
        "amount": torch.tensor(amounts, dtype=torch.float64).to(torch.float32)[levels],
        "correct": ~torch.cat([outcome.broken for outcome in outcomes]),
    }
    if shard.sampling is not None:
        columns["inclusion"] = torch.cat([part.inclusion for part in parts])
    for name in ANSWERS:
        columns[name] = torch.cat([getattr(outcome.verdict, name) for outcome in outcomes])
    for name in DISTANCES:
        columns[name] = torch.cat([getattr(outcome.difference, name) for outcome in outcomes])
    columns |= join_causes(outcomes) | join_overlaps(outcomes)
    for name in operator.measures:
        columns[name] = torch.cat([getattr(outcome, name) for outcome in outcomes])
    overlaps = [outcome.overlap for outcome in outcomes if outcome.overlap is not None]
    if overlaps:
        columns["overlap"] = join_fields(overlaps)
    found = [outcome.detections for outcome in outcomes if outcome.detections is not None]
    if found:
        columns["detections"] = join_fields(found)
    return _answered(columns)


def _answered(columns: Columns) -> Columns:
    """Return the rows that have an answer; a service may fail for some images, which don't count at that level."""
    confidence = columns["confidence"]
    assert isinstance(confidence, Tensor)
    valid = ~confidence.isnan()
    if bool(valid.all()):
        return columns
    kept: Columns = {}
    for name, column in columns.items():
        if isinstance(column, Detections | Overlap):
            kept[name] = column.at(valid)
        elif isinstance(column, Tensor):
            kept[name] = column[valid.to(column.device)]
    return kept


def select_operators(options: ProfileOptions) -> list[Operator]:
    """Return the operators that the options name, each once."""
    names = expand_names(OPERATORS, options.operators, operator_names())
    for name in names:
        known = name in OPERATORS or f"{name}:{options.variant}" in OPERATORS
        if VariantId.parse(name).name in property_names() and not known:
            raise ConfigError(f"{name} is a property with a severity; use it with --lens knob")
    return select_variants(OPERATORS, names, options.variant)


def count_trials(options: ProfileOptions, change: Change, image: Size, model_input: Size) -> int:
    """Return the number of levels."""
    assert isinstance(change, Operator)
    return min(options.levels, change.facts.levels)


def replay(options: ProfileOptions, name: str, size: Size) -> Operator:
    """Return an operator by its id."""
    return find_operator(name)


def catalogue() -> list[Entry]:
    """Return all operators, each with its variants."""
    return [
        Entry(
            operator.name if find_operator(operator.name) is operator else f"  :{operator.variant}",
            (*operator.tags, *(("white box",) if operator.white_box else ())),
            (inspect.getdoc(operator.function) or "").partition("\n")[0],
        )
        for operator in list_variants(OPERATORS)
        if operator.function.__module__.startswith("brinell.")  # others are listed by their entry points
    ]


METHOD = Method(changes=select_operators, measure=measure, trials=count_trials, replay=replay, catalogue=catalogue)
