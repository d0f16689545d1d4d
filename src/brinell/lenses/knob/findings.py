"""What the knob lens found: the smallest change that breaks a model, property by property."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from brinell.errors import RunError
from brinell.lenses.knob.breaks import (
    BreakingRange,
    Hardness,
    Key,
    compute_curves,
    compute_hardness,
    compute_ranges,
    find_contenders,
    rank_properties,
)
from brinell.lenses.knob.exhibits import select_exhibits
from brinell.lenses.knob.limits import STATISTICS, broken_within
from brinell.lenses.reader import (
    ANSWER,
    Failures,
    Figures,
    Measure,
    PrintedFindings,
    Reader,
    parameter_list,
)
from brinell.runs.hardness import Scale
from brinell.runs.plain import to_plain
from brinell.runs.ranking import Extremes
from brinell.runs.run import Run
from brinell.runs.schema import Schema
from brinell.runs.statistics import Estimate
from brinell.runs.words import format_share, join_names, list_tied, note_few

COLUMNS: Schema = {  # one row per image and direction, or per breaking interval where the whole grid was queried
    "direction": "name",
    "smallest": "bool",  # whether the row stands for its image: the smallest breaking change
    "severity": "float64",
    "severity_x": "float64",  # of a property with several parameters
    "severity_y": "float64",
    "until": "float64",  # the last severity of a breaking interval, where the whole grid was queried
    "non_monotone": "bool",  # whether the image recovers as the change grows, where the whole grid was queried
}


@dataclass(frozen=True, repr=False)
class KnobFindings(PrintedFindings):
    """All findings of the knob lens. `hardness` is by (model, operator); `distance` measures the size of changes.

    `titles` are the properties' names for people, in the order in which properties are shown, and `neutral` the amounts
    at which they change nothing. `extremes` are, by model, the properties with the smallest and the largest breaking
    changes and those that tie with them; `contenders` are, by property, the models with the largest ones.
    """

    distance: str
    hardness: dict[Key, Hardness]
    ranges: list[BreakingRange]
    curves: list[dict[str, Any]]
    titles: Mapping[str, str]
    neutral: Mapping[str, float]
    search: str = "exact"
    resample: bool = False
    rounding: str = "whole"
    extremes: Mapping[str, Extremes] = field(default_factory=dict)
    contenders: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def models(self) -> list[str]:
        """Models by their mean rank over all properties, the most robust first."""
        ranks: dict[str, list[int]] = {model: [] for model, _ in self.hardness}
        for operator in self.operators:
            for rank, hardness in enumerate(self.rank_models(operator)):
                if hardness.tested:
                    ranks[hardness.model].append(rank)
        return sorted(
            ranks, key=lambda model: round(sum(ranks[model]) / len(ranks[model]), 9) if ranks[model] else math.inf
        )

    @property
    def operators(self) -> list[str]:
        """Properties, in the order of their categories."""
        return list(self.titles)

    def title(self, operator: str) -> str:
        """Return a property's name for people."""
        return self.titles.get(operator, operator)

    def rank_models(self, operator: str) -> list[Hardness]:
        """Return the models under one property, the most robust first and those without tested images last."""
        own = [hardness for (_, name), hardness in self.hardness.items() if name == operator]
        return sorted(own, key=lambda one: (not one.tested, one.broken > 0, -one.robustness.value if one.broken else 0))

    def best_model(self, operator: str) -> str | None:
        """Return the most robust model under one property, if it clearly is."""
        first, *others = self.rank_models(operator)
        tested = [one for one in others if one.tested]
        if not first.tested or not tested:
            return None
        if first.broken:
            return first.model if self.contenders[operator] == (first.model,) else None
        surviving = max(one.survived_share.high for one in tested)
        return first.model if first.survived_share.low > surviving else None

    def verdict(self, model: str) -> str:
        """Return the finding about a model in a sentence or two."""
        own = {operator: hardness for (owner, operator), hardness in self.hardness.items() if owner == model}
        if not any(one.tested for one in own.values()):
            return f"{model} could not be tested: no clean image was both right and answered."
        few = note_few(max(one.tested for one in own.values()))
        if not any(one.broken for one in own.values()):
            properties = "the property" if len(own) == 1 else f"all {len(own)} properties"
            return f"{model} never broke: every image that it gets right survived {properties}.{few}"
        return f"{model} {self._describe_breaks(model, own)}{self._describe_survivors(own)}.{few}"

    def _describe_breaks(self, model: str, own: Mapping[str, Hardness]) -> str:
        """Return under what a model breaks most easily, and what it takes the most of."""
        extremes = self.extremes[model]
        ends = extremes.separate()
        if ends is None:
            easiest = f"{self.title(extremes.lowest[0])} ({_describe_half(own[extremes.lowest[0]])})"
            count = sum(one.broken > 0 for one in own.values())
            if count == 1:
                return f"breaks under {easiest}"
            return f"breaks under {count} properties, none clearly more easily; the mean change is smallest for {easiest}"
        weakest, strongest = (
            list_tied([self.title(name) for name in names], _describe_half(own[names[0]])) for names in ends
        )
        return f"breaks most easily under {weakest}; it needs the largest change under {strongest}"

    def _describe_survivors(self, own: Mapping[str, Hardness]) -> str:
        """Return how many images survive the properties that the most of them do; empty if none survives."""
        most = max((one.survived_share for one in own.values() if one.tested), key=lambda share: share.value)
        if not most.value:
            return ""
        safest = [self.title(operator) for operator, one in own.items() if one.survived_share == most]
        return f"; {format_share(most)} of the images survive the full range of {join_names(safest)}"

    def table(self) -> list[dict[str, Any]]:
        """Return one flat record per model and property."""
        return [
            {
                "model": one.model,
                "operator": one.operator,
                "broken": one.broken,
                "survived": one.survived,
                "skipped": one.skipped,
                "failed": one.failed,
                **_prefix("robustness", one.robustness),
                **_prefix("survived", one.survived_share),
                "threshold": one.threshold,
                **_prefix("fooled", one.fooled),
                "median": one.median,
                "queries": one.queries,
                "non_monotone": None if one.non_monotone is None else one.non_monotone.value,
            }
            for one in self.hardness.values()
        ]

    def figures(self) -> Iterator[Figures]:
        """Yield the hardness of every model and property."""
        for one in self.hardness.values():
            yield one.model, one.operator, 0, one

    def to_json(self) -> dict[str, Any]:
        """Return everything as plain data."""
        content: dict[str, Any] = to_plain(
            {
                "distance": self.distance,
                "search": self.search,
                "resample": self.resample,
                "rounding": self.rounding,
                "verdicts": {model: self.verdict(model) for model in self.models},
                "hardness": self.table(),
                "ranges": [{**vars(one), "mean": one.mean.value} for one in self.ranges],
                "curves": self.curves,
            }
        )
        return content


def _describe_half(hardness: Hardness) -> str:
    known = any(amount is not None for amount in hardness.median.values())
    return f"half of the images break at {hardness.half_broken_at}" if known else hardness.half_broken_at


def _prefix(name: str, estimate: Estimate) -> dict[str, float]:
    return {f"{name}_{key}": value for key, value in vars(estimate).items()}


def find(run: Run, options: Mapping[str, Any], summary: Mapping[str, Any]) -> KnobFindings:
    """Compute the findings from the rows; the lens's options say how they were searched."""
    distance = options["distance"]
    hardness = compute_hardness(run, distance, whole_grid=options["search"] == "bands")
    if not hardness:
        raise RunError(f"the run in {run.folder} has no rows of the knob lens yet; rerun its command to finish it")
    operators = sorted({name for _, name in hardness}, key=lambda name: (run.facts(name).get("order", 0), name))
    return KnobFindings(
        distance=distance,
        hardness=hardness,
        ranges=compute_ranges(run),
        curves=compute_curves(run, distance),
        titles={operator: run.title(operator) for operator in operators},
        neutral={operator: run.facts(operator).get("neutral", 0.0) for operator in operators},
        search=options["search"],
        resample=options["resample"],
        rounding=options.get("rounding", "whole"),
        extremes=rank_properties(run, distance),
        contenders=find_contenders(run, distance),
    )


# images that are right when clean and got answers; one that survives would need a larger change than there is
_TESTED = "from rows where lens = 'knob' and status in ('broken', 'survived')"
_SURVIVED_RANGE = f"""
    select model, operator, image, min(case when status = 'survived' then 1.0
           else greatest(abs(severity), abs(severity_x), abs(severity_y)) end) as value {_TESTED} group by all
"""
HARDNESS = Scale(
    what="changes of the scene",
    among="properties of the scene",
    meaning="Of the images that the model gets right when clean: the share of a property's range below the smallest change "
    "that breaks it (all of it if nothing does), averaged over all properties.",
    sql=_SURVIVED_RANGE,
)
MEASURES = (
    Measure(
        name="broken",
        lens="knob",
        what="share of images that some change breaks",
        better="lower",
        unit="points",
        sql=f"select model, operator, image, max((status = 'broken')::int) as value {_TESTED} group by all",
        yes_or_no=True,
        by_amount=broken_within,
    ),
    Measure(
        name="robustness",
        lens="knob",
        what="mean smallest breaking change (R)",
        better="higher",
        unit="percent",
        sql="select model, operator, image, {distance} as value from rows "
        "where lens = 'knob' and smallest and status = 'broken'",
    ),
    Measure(
        name="severity",
        lens="knob",
        what="mean share of a property's range that is survived",
        better="higher",
        unit="points",
        sql=_SURVIVED_RANGE,
        headline=True,
    ),
)


def _random_field(options: Mapping[str, Any]) -> str:
    """Return the SQL for the random field of a row: every grid point has its own if fields are drawn afresh."""
    return "level" if options["resample"] else "0"


def _query_failures(options: Mapping[str, Any]) -> str:
    """Return the SQL for all breaking changes."""
    return f"""
        select model, operator, image, label, {READER.parameters}, {_random_field(options)}, direction,
               100 * greatest(abs(severity), abs(coalesce(severity_x, 0)), abs(coalesce(severity_y, 0))), amount, {ANSWER}
        from rows where lens = 'knob' and status = 'broken'
    """


READER = Reader(
    columns=COLUMNS,
    find=find,
    changed="status = 'broken'",
    parameters=parameter_list("severity", "severity_x", "severity_y"),
    order=("direction", "image"),
    field=_random_field,
    measures=MEASURES,
    statistics=STATISTICS,
    hardness=HARDNESS,
    failures=Failures(_query_failures, parameters="severities"),
    exhibits=select_exhibits,
)
