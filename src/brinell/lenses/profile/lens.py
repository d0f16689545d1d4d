"""The profile lens (Swingler 2022): query every sample at every level of degradation, 0 to L."""

from __future__ import annotations

import inspect

import torch
from torch import Tensor

from brinell.boxes import Detections
from brinell.errors import ConfigError
from brinell.lenses.entry import Entry
from brinell.lenses.method import Columns, Measuring, Method, Outcome, Shard, Size, Trials
from brinell.lenses.outcomes import ANSWERS, join_causes
from brinell.lenses.profile.options import ProfileOptions
from brinell.perturb.change import Change
from brinell.perturb.operator import OPERATORS, Operator, find_operator, operator_names
from brinell.perturb.property import property_names
from brinell.registry import list_variants, select_variants
from brinell.runs.schema import DISTANCES


def measure(shard: Shard, operator: Operator, options: ProfileOptions) -> Measuring:
    """Query every sample at every level; one row per answer, the clean one included."""
    levels = torch.arange(1, options.levels + 1).repeat_interleave(shard.count)
    # all levels at once, so that the engine may overlap the batches of one level with those of the next
    samples = torch.arange(shard.count).repeat(options.levels)
    outcome = yield Trials(samples, operator, levels[:, None].to(torch.float64))
    return _columns(shard, operator, options.levels, (shard.clean, outcome))


def _columns(shard: Shard, operator: Operator, last: int, outcomes: tuple[Outcome, Outcome]) -> Columns:
    """Return the outcomes of levels 0 to L, level by level."""
    levels = torch.arange(last + 1)
    amounts = torch.tensor([operator.facts.amount(level, shard.height, shard.width) for level in levels.tolist()])
    columns: Columns = {
        "sample": torch.arange(shard.count).repeat(last + 1),
        "level": levels.repeat_interleave(shard.count),
        "amount": amounts.to(torch.float32).repeat_interleave(shard.count),
        "correct": ~torch.cat([outcome.broken for outcome in outcomes]),
    }
    for name in ANSWERS:
        columns[name] = torch.cat([getattr(outcome.verdict, name) for outcome in outcomes])
    for name in DISTANCES:
        columns[name] = torch.cat([getattr(outcome.difference, name) for outcome in outcomes])
    columns |= join_causes(outcomes)
    for name in operator.measures:
        columns[name] = torch.cat([getattr(outcome, name) for outcome in outcomes])
    found = [outcome.detections for outcome in outcomes if outcome.detections is not None]
    if found:
        fields = ([getattr(each, name) for each in found] for name in ("boxes", "labels", "scores"))
        columns["detections"] = Detections(*(torch.cat(each) for each in fields))
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
        if isinstance(column, Detections):
            kept[name] = column.at(valid)
        elif isinstance(column, Tensor):
            kept[name] = column[valid.to(column.device)]
    return kept


def select_operators(options: ProfileOptions) -> list[Operator]:
    """Return the operators that the options name, each once."""
    names = [name for given in options.operators for name in (operator_names() if given == "all" else [given])]
    for name in names:
        if name.partition(":")[0] in property_names():
            raise ConfigError(f"{name} is a property with a severity; use it with --lens knob")
    return select_variants(OPERATORS, names, options.variant)


def count_trials(options: ProfileOptions, change: Change, image: Size, model_input: Size) -> int:
    """Return the number of levels."""
    return options.levels


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
