"""Which images the profile section shows: an example at every failure point, and the images that break first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from brinell.lenses.profile.curves import Key, Point, compute_curves, find_failure_point
from brinell.report.exhibits import Exhibit
from brinell.runs.names import MEDIAN
from brinell.runs.run import Run
from brinell.runs.statistics import THRESHOLDS

SHOWN = 3  # images for each model and operator


@dataclass(frozen=True)
class FirstFailure:
    """An image that a model gets right when clean, and the first level at which it doesn't."""

    model: str
    operator: str
    image: str
    level: int
    label: int
    prediction: int
    confidence: float | None
    clean_confidence: float | None
    tag: str = ""


_FIRST_FAILURES = f"""
    with clean as (select model, operator, image, label, confidence from rows
                   where lens = 'profile' and level = 0 and correct),
    failed as (select model, operator, image, min(level) as level from rows
               where lens = 'profile' and not correct group by all),
    ranked as (
        select failed.model, failed.operator, failed.image, failed.level, clean.label, clean.confidence as clean_confidence,
               row_number() over (partition by failed.model, failed.operator
                                  order by failed.level, clean.confidence desc, failed.image) as number,
               count(*) over (partition by failed.model, failed.operator) as failures
        from failed join clean using (model, operator, image))
    select ranked.model, ranked.operator, ranked.image, ranked.level, ranked.label, any_value(rows.prediction),
           any_value(rows.confidence), any_value(ranked.clean_confidence),
           case when any_value(number) > $most then '{MEDIAN}' else '' end
    from ranked join rows using (model, operator, image, level)
    where (number <= $most or number = (failures + 1) // 2) and lens = 'profile'
    group by all order by ranked.model, ranked.operator, any_value(number)
"""
# the first image that all models get right when clean; one with all answers, if a service left some out
_EXAMPLE = """
    select image from rows join samples using (image) where lens = 'profile' group by image
    order by bool_and(correct) filter (level = 0) desc nulls last, count(distinct (model, operator, level)) desc,
             min(index) limit 1
"""
_ANSWERS = """
    select model, operator, level, label, prediction, confidence, correct from rows
    where lens = 'profile' and image = $image
"""


def find_first_failures(run: Run, most: int) -> list[FirstFailure]:
    """Return, for each model and operator, the images that break at the lowest level, and the median one.

    Of those that break at the same level, the ones that the model is most confident about come first.
    """
    return [FirstFailure(*row) for row in run.query(_FIRST_FAILURES, {"most": most})]


def select_exhibits(run: Run, options: Mapping[str, Any]) -> list[Exhibit]:
    """Return all exhibits of the section; a sample of an image's levels doesn't say where it fails first."""
    curves = compute_curves(run)
    failures = [] if run.sampled else find_first_failures(run, SHOWN)
    return _failure_points(run, curves) + [_first_failure(failure, curves) for failure in failures]


def _failure_points(run: Run, curves: Mapping[Key, Sequence[Point]]) -> list[Exhibit]:
    """Return one example image at every failure point of every model."""
    example = run.query(_EXAMPLE)
    if not example:
        return []
    [(image,)] = example
    rows = run.query(_ANSWERS, {"image": image})
    answers = {(model, operator, level): answer for model, operator, level, *answer in rows}
    exhibits = []
    for (model, operator), points in curves.items():
        for threshold in THRESHOLDS:
            failure = find_failure_point((model, operator), points, threshold)
            answer = answers.get((model, operator, failure.level or 0))
            if failure.level and answer is not None:  # a service may owe the answer to this image
                label, prediction, confidence, correct = answer
                clean = answers.get((model, operator, 0))
                exhibit = Exhibit(
                    lens="profile",
                    model=model,
                    operator=operator,
                    image=image,
                    parameters=(float(failure.level),),
                    label=label,
                    prediction=prediction,
                    confidence=confidence,
                    clean_confidence=None if clean is None else clean[2],
                    caption=f"level {failure.level}: {failure.caption}",
                    correct=correct,
                    group=threshold,
                    level=failure.level,
                )
                exhibits.append(exhibit)
    return exhibits


def _first_failure(failure: FirstFailure, curves: Mapping[Key, Sequence[Point]]) -> Exhibit:
    points = {point.level: point for point in curves[failure.model, failure.operator]}
    return Exhibit(
        lens="profile",
        model=failure.model,
        operator=failure.operator,
        image=failure.image,
        parameters=(float(failure.level),),
        label=failure.label,
        prediction=failure.prediction,
        confidence=failure.confidence,
        clean_confidence=failure.clean_confidence,
        caption=points[failure.level].caption,
        level=failure.level,
        detail=f"level {failure.level}",
        tag=failure.tag,
    )
