"""What the knob lens found: the smallest change that breaks a model, property by property."""

from __future__ import annotations

import html
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from brinell.errors import RunError
from brinell.lenses.knob.breaks import (
    BreakingRange,
    Hardness,
    Key,
    compute_curves,
    compute_hardness,
    compute_ranges,
    find_smallest_breaks,
)
from brinell.lenses.knob.limits import STATISTICS, broken_within
from brinell.lenses.reader import ANSWER, Failures, Figures, Measure, Reader, named_columns, parameter_list
from brinell.report.exhibits import Exhibit, clean_confidences
from brinell.runs.plain import to_plain
from brinell.runs.run import Run
from brinell.runs.schema import NAME
from brinell.runs.statistics import Estimate

SHOWN = 3  # images for each model and property

COLUMNS = named_columns(  # one row per image and direction, or per breaking interval where the whole grid was queried
    ("direction", NAME),
    ("smallest", pa.bool_()),  # whether the row stands for its image: the smallest breaking change
    ("severity", pa.float64()),
    ("severity_x", pa.float64()),  # of a property with several parameters
    ("severity_y", pa.float64()),
    ("until", pa.float64()),  # the last severity of a breaking interval, where the whole grid was queried
    ("non_monotone", pa.bool_()),  # whether the image recovers as the change grows, where the whole grid was queried
)


@dataclass(frozen=True)
class KnobFindings:
    """All findings of the knob lens. `hardness` is by (model, operator); `distance` measures the size of changes.

    `titles` are the properties' names for people, in the order in which properties are shown, and `neutral` the amounts
    at which they change nothing.
    """

    distance: str
    hardness: dict[Key, Hardness]
    ranges: list[BreakingRange]
    curves: list[dict[str, Any]]
    titles: Mapping[str, str]
    neutral: Mapping[str, float]
    search: str = "exact"
    resample: bool = False

    @property
    def models(self) -> list[str]:
        """Models by their mean rank over all properties, the most robust first."""
        ranks: dict[str, list[int]] = {model: [] for model, _ in self.hardness}
        for operator in self.operators:
            for rank, hardness in enumerate(self.rank_models(operator)):
                if hardness.tested:
                    ranks[hardness.model].append(rank)
        return sorted(ranks, key=lambda model: sum(ranks[model]) / len(ranks[model]) if ranks[model] else math.inf)

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
        """Return the most robust model under one property, if there are several."""
        first, *others = self.rank_models(operator)
        return first.model if others and first.tested else None

    def verdict(self, model: str) -> str:
        """Return the finding about a model in a sentence."""
        own = [hardness for (owner, _), hardness in self.hardness.items() if owner == model]
        broken = sorted((one for one in own if one.broken), key=lambda one: one.robustness.value)
        if not any(one.tested for one in own):
            return f"{model} could not be tested: no clean image was both right and answered."
        if not broken:
            properties = "the property" if len(own) == 1 else f"all {len(own)} properties"
            return f"{model} never broke: every image that it gets right survived {properties}."
        weakest, strongest = broken[0], broken[-1]
        sentence = f"{model} breaks most easily under {self.title(weakest.operator)} ({_describe_half(weakest)})"
        if strongest is not weakest:
            sentence += (
                f" and needs the largest change under {self.title(strongest.operator)} ({_describe_half(strongest)})"
            )
        safest = max(own, key=lambda one: one.survived_share.value)
        if safest.survived:
            sentence += (
                f"; {safest.survived_share.value:.0%} of the images survive the full range of {self.title(safest.operator)}"
            )
        return sentence + "."

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
                "verdicts": {model: self.verdict(model) for model in self.models},
                "hardness": self.table(),
                "ranges": [{**vars(one), "mean": one.mean.value} for one in self.ranges],
                "curves": self.curves,
            }
        )
        return content

    def _repr_html_(self) -> str:
        """Return the verdicts and the table of robustness, for notebooks."""
        verdicts = "".join(f"<p>{html.escape(self.verdict(model))}</p>" for model in self.models)
        heads = "".join(f"<th>{html.escape(model)}</th>" for model in self.models)
        rows = ""
        for operator in self.operators:
            cells = "".join(self._cell(model, operator) for model in self.models)
            rows += f"<tr><th>{html.escape(self.title(operator))}</th>{cells}</tr>"
        caption = f"mean smallest breaking change ({self.distance}), with 95 % intervals"
        return f"{verdicts}<table><caption>{caption}</caption><tr><th></th>{heads}</tr>{rows}</table>"

    def _cell(self, model: str, operator: str) -> str:
        one = self.hardness.get((model, operator))
        if one is None or not one.tested:
            return "<td>–</td>"
        mean = one.robustness
        text = f"{mean.value:.2e} <small>[{mean.low:.1e}, {mean.high:.1e}]</small>" if one.broken else "never broken"
        return f"<td><b>{text}</b></td>" if self.best_model(operator) == model else f"<td>{text}</td>"


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
    )


# images that are right when clean and got answers; one that survives would need a larger change than there is
_TESTED = "from rows where lens = 'knob' and status in ('broken', 'survived')"
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
        sql=f"""select model, operator, image, min(case when status = 'survived' then 1.0
                   else greatest(abs(severity), abs(severity_x), abs(severity_y)) end) as value {_TESTED} group by all""",
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


def _select_exhibits(run: Run, options: Mapping[str, Any]) -> list[Exhibit]:
    """Return, for each model and property, the images that the smallest changes break."""
    clean = clean_confidences(run)
    return [
        Exhibit(
            lens="knob",
            model=one.model,
            operator=one.operator,
            image=one.image,
            parameters=one.severities,
            label=one.label,
            prediction=one.prediction,
            confidence=one.confidence,
            clean_confidence=clean[one.model, one.image],
            caption=f"{run.format(one.operator, abs(one.amount))}, {options['distance']} {one.distance:.2g}",
            field=one.level if options["resample"] else 0,
            level=one.level,
        )
        for one in find_smallest_breaks(run, SHOWN, options["distance"])
    ]


READER = Reader(
    columns=COLUMNS,
    find=find,
    changed="status = 'broken'",
    parameters=parameter_list("severity", "severity_x", "severity_y"),
    field=_random_field,
    measures=MEASURES,
    statistics=STATISTICS,
    failures=Failures(_query_failures, parameters="severities"),
    exhibits=_select_exhibits,
)
