"""What the profile lens found: how accuracy falls with the level of degradation, and where a model fails."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from brinell.errors import RunError
from brinell.lenses.profile.calibration import Calibration, compute_calibration
from brinell.lenses.profile.comparison import compare_failure_points
from brinell.lenses.profile.curves import (
    AREA_BY_IMAGE,
    DETECTION_METRICS,
    METRICS,
    SEGMENTATION_METRICS,
    STRONGEST,
    FailurePoint,
    Key,
    Metrics,
    Point,
    compute_areas,
    compute_averages,
    compute_curves,
    find_failure_point,
    select_averaged,
)
from brinell.lenses.profile.exhibits import select_exhibits
from brinell.lenses.profile.groups import Affected, find_affected, list_slices
from brinell.lenses.profile.limits import STATISTICS
from brinell.lenses.profile.measures import MEASURES
from brinell.lenses.profile.overall import compare_overall, read_overall
from brinell.lenses.profile.overlap import ClassOverlap, compute_class_iou
from brinell.lenses.profile.robustness import Robustness, compute_robustness, list_figures
from brinell.lenses.reader import (
    ANSWER,
    AVERAGE,
    Failures,
    Figures,
    PrintedFindings,
    Reader,
    parameter_list,
)
from brinell.runs.hardness import Scale
from brinell.runs.plain import to_plain
from brinell.runs.ranking import Extremes, find_extremes
from brinell.runs.run import Run
from brinell.runs.schema import Schema
from brinell.runs.statistics import THRESHOLDS, Estimate
from brinell.runs.weights import weighted_mean
from brinell.runs.words import format_share, list_tied, note_few

COLUMNS: Schema = {
    "grey": "float32",  # mean grey value, 0 to 255, for operators whose levels are reported by it
    "colours": "int32",  # number of distinct colours, for operators whose levels are reported by it
}


@dataclass(frozen=True, repr=False)
class ProfileFindings(PrintedFindings):
    """All findings of the profile lens. `curves` and `areas` are by (model, operator), `averages` by model.

    `titles` are the operators' names for people; operators in `white_box` are attacks, which count in no average.
    `extremes` are the operators with the smallest and the largest area of a model, and those that tie with them. Curves and
    failure points of a sample are `smoothed`. `robustness` and `affected` are by model: figures over all operators, and
    the classes and images that suffer most; a sample has none of these. `class_iou` is the IoU of a segmenter's classes.
    """

    curves: dict[Key, list[Point]]
    averages: dict[str, list[Metrics]]
    areas: dict[Key, Estimate]
    average_areas: dict[str, Estimate]
    failure_points: list[FailurePoint]
    titles: Mapping[str, str]
    white_box: frozenset[str] = frozenset()
    extremes: Mapping[str, Extremes] = field(default_factory=dict)
    robustness: Mapping[str, Robustness] = field(default_factory=dict)
    calibration: Sequence[Calibration] = ()
    affected: Mapping[str, Affected] = field(default_factory=dict)
    smoothed: bool = False
    class_iou: Mapping[str, Sequence[ClassOverlap]] = field(default_factory=dict)

    @property
    def models(self) -> list[str]:
        """Models by their mean area, the most robust first."""
        return sorted(self.average_areas, key=lambda model: -round(self.average_areas[model].value, 9))

    @property
    def operators(self) -> list[str]:
        """Operators, the most damaging first; attacks last."""
        names = {operator for _, operator in self.areas}
        return sorted(names, key=lambda name: (name in self.white_box, round(self.mean_area(name), 9), name))

    @property
    def metrics(self) -> tuple[str, ...]:
        """Metrics that have curves."""
        first = [points[0] for points in self.curves.values()]
        more = DETECTION_METRICS if any(point.map is not None for point in first) else ()
        return METRICS + more + (SEGMENTATION_METRICS if any(point.miou is not None for point in first) else ())

    @property
    def averaged_operators(self) -> list[str]:
        """Operators that averages are over."""
        return select_averaged(self.areas, self.white_box)

    def title(self, operator: str) -> str:
        """Return an operator's name for people."""
        return self.titles.get(operator, operator)

    def precision(self, model: str, metric: str = "map") -> tuple[float, float] | None:
        """Return a detector's average precision on clean images, and its mean over all levels and averaged operators; or a
        segmenter's `miou`.
        """
        values = [metrics[metric].value for metrics in self.averages[model] if metric in metrics]
        return (values[0], sum(values) / len(values)) if values else None

    def mean_area(self, operator: str) -> float:
        """Return an operator's area, averaged over the models that have it."""
        areas = [area.value for (_, name), area in self.areas.items() if name == operator]
        return sum(areas) / len(areas)

    def failure_point(self, model: str, operator: str, threshold: float) -> FailurePoint:
        """Return where a model's accuracy drops below a threshold."""
        return find_failure_point((model, operator), self.curves[model, operator], threshold)

    def verdict(self, model: str) -> str:
        """Return the finding about a model in a sentence."""
        every = [operator for owner, operator in self.areas if owner == model]
        own = [operator for operator in every if operator not in self.white_box] or every
        clean = self.curves[model, own[0]][0]
        start = (
            f"{model} is right on {format_share(clean.accuracy)} of the clean images and on "
            f"{format_share(self.average_areas[model])} on average over all"
        )
        precision = self.precision(model)
        end = note_few(clean.images)
        if precision is not None:
            end = f" Its mAP is {precision[0]:.1%} on clean images, {precision[1]:.1%} on average (without intervals).{end}"
        if (overlap := self.precision(model, "miou")) is not None:
            end = f" Its mIoU is {overlap[0]:.1%} on clean images, {overlap[1]:.1%} on average (without intervals).{end}"
        if len(own) == 1:
            return f"{start} levels of {self.title(own[0])}: {self._describe_drop(model, own[0])}.{end}"
        return f"{start} degradations. {self._describe_extremes(model)}{end}"

    def _describe_extremes(self, model: str) -> str:
        """Return what does the most and the least damage, or that nothing clearly does."""
        extremes = self.extremes[model]
        ends = extremes.separate()
        if ends is None:
            low, high = extremes.lowest[0], extremes.highest[0]
            shares = (f"{format_share(self.areas[model, name])} ({self.title(name)})" for name in (low, high))
            return f"No degradation is clearly worse than another: averages go from {' to '.join(shares)}."
        worst, best = ([self.title(name) for name in names] for names in ends)
        lowest, highest = (format_share(self.areas[model, names[0]]) for names in ends)
        drop = self._describe_drop(model, ends[0][0])
        return (
            f"It is most sensitive to {list_tied(worst, f'{lowest} on average; {drop}')}; it is least sensitive to "
            f"{list_tied(best, f'{highest} on average')}."
        )

    def _describe_drop(self, model: str, operator: str) -> str:
        half = self.failure_point(model, operator, 0.5)
        if half.level is None:
            return "accuracy never drops below 50%"
        if half.level == 0:
            return "accuracy is below 50% even on clean images"
        return f"accuracy drops below 50% at {'' if half.latest == half.level else 'about '}{half.caption}"

    def table(self) -> list[dict[str, Any]]:
        """Return the curves as flat records, one per model, operator, level and metric."""
        records = []
        for (model, operator), points in self.curves.items():
            for point in points:
                for metric in self.metrics:
                    estimate: Estimate | None = getattr(point, metric)
                    if estimate is not None:
                        records.append(_record(model, operator, point.level, metric, estimate, point.caption))
        for model, levels in self.averages.items():
            for level, metrics in enumerate(levels):
                records += [_record(model, AVERAGE, level, metric, estimate) for metric, estimate in metrics.items()]
        return records

    def figures(self) -> Iterator[Figures]:
        """Yield areas, failure points and the metrics of every level, and averages over operators."""
        for (model, operator), points in self.curves.items():
            yield model, operator, 0, {"area": self.areas[model, operator]}
            for point in points:
                yield model, operator, point.level, point
        for one in self.failure_points:
            yield one.model, one.operator, 0, {f"level_below_{one.threshold:g}": one.level}
        for model, levels in self.averages.items():
            for level, metrics in enumerate(levels):
                yield model, AVERAGE, level, metrics
        yield from list_figures(self.robustness, self.calibration)
        yield from list_slices(self.affected)

    def to_json(self) -> dict[str, Any]:
        """Return everything as plain data."""
        content: dict[str, Any] = to_plain(
            {
                "verdicts": {model: self.verdict(model) for model in self.models},
                "models": {model: self.average_areas[model] for model in self.models},
                "areas": [
                    {"model": model, "operator": operator, **vars(area)} for (model, operator), area in self.areas.items()
                ],
                "smoothed": self.smoothed,
                "failure_points": self.failure_points,
                "robustness": self.robustness,
                "affected": self.affected,
                "calibration": self.calibration,
                "class_iou": self.class_iou,
                "profiles": self.table(),
            }
        )
        return content


def _record(model: str, operator: str, level: int, metric: str, estimate: Estimate, caption: str = "") -> dict[str, Any]:
    key = {"model": model, "operator": operator, "level": level, "metric": metric}
    return {**key, **vars(estimate), "caption": caption}


_RANKED_AREAS = f"""
    select model as owner, operator as name, image, value from ({AREA_BY_IMAGE}) where list_contains($operators, operator)
"""


def find(run: Run, options: Mapping[str, Any], summary: Mapping[str, Any]) -> ProfileFindings:
    """Compute the findings; `summary` may give other `thresholds` for failure points."""
    curves = compute_curves(run)
    if not curves:
        raise RunError(f"the run in {run.folder} has no rows of the profile lens yet; rerun its command to finish it")
    areas = compute_areas(run)
    white_box = frozenset(operator for _, operator in areas if run.facts(operator).get("white_box"))
    ranked = [name for _, name in areas if name not in white_box] or [name for _, name in areas]
    averaged = select_averaged(areas, white_box)
    averages, average_areas = compute_averages(run, averaged)
    return ProfileFindings(
        curves=curves,
        averages=averages,
        areas=areas,
        average_areas=average_areas,
        failure_points=[
            find_failure_point(key, points, threshold)
            for key, points in curves.items()
            for threshold in summary.get("thresholds", THRESHOLDS)
        ],
        titles={operator: run.title(operator) for _, operator in areas},
        white_box=white_box,
        extremes=find_extremes(run, _RANKED_AREAS, {"operators": sorted(set(ranked))}),
        smoothed=run.sampled,
        robustness={} if run.sampled else compute_robustness(run, averaged),
        calibration=[] if run.sampled else compute_calibration(run),
        affected={} if run.sampled else find_affected(run, averaged),
        class_iou=compute_class_iou(run, averaged),
    )


def _query_failures(options: Mapping[str, Any]) -> str:
    """Return the SQL for all levels at which an image that is right when clean is wrong."""
    return f"""
        select model, operator, image, label, {READER.parameters}, 0, null, 100 * level / {STRONGEST}, amount, {ANSWER}
        from rows semi join
             (select model, operator, image, label from rows where lens = 'profile' and level = 0 and correct)
             using (model, operator, image, label)
        where lens = 'profile' and level > 0 and not correct
    """


def _finish(run: Run) -> str | None:
    from brinell.lenses.profile.precision import write_precision  # imports numpy and pyarrow

    return write_precision(run)


HARDNESS = Scale(
    what="degradations",
    among="degradations",
    meaning="Of the images that the model gets right when clean: the share of levels at which it is still right, averaged "
    "over all degradations.",
    sql=f"""
        select model, operator, image, {weighted_mean("correct::int")} as value from rows
        semi join (select model, operator, image from rows where lens = 'profile' and level = 0 and correct)
             using (model, operator, image)
        where lens = 'profile' and level > 0 group by all
    """,
)

READER = Reader(
    columns=COLUMNS,
    find=find,
    changed="level > 0",
    parameters=parameter_list("level"),
    cells=lambda operator: "levels",
    order=("level", "image"),
    measures=MEASURES,
    statistics=STATISTICS,
    hardness=HARDNESS,
    compare=compare_failure_points,
    compare_overall=compare_overall,
    overall=read_overall,
    failures=Failures(_query_failures, parameters="level", complete=lambda operator: True),
    exhibits=select_exhibits,
    finish=_finish,
    tables=("precision",),
)
