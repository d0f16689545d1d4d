"""The motions that the geometry lens found, for pictures and for training data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from brinell.errors import ConfigError
from brinell.motion.names import GROUP_FACTS, GroupFacts, describe
from brinell.registry import VariantId, nearest
from brinell.report.exhibits import Exhibit
from brinell.runs.names import MEDIAN
from brinell.runs.run import Run

EXHIBITS = 3  # images shown for each model, group and method
SCORE_TOLERANCE = 0.05  # scores this close count as the same


def group_of(operator: str) -> GroupFacts:
    """Return the group of an operator such as "affine:manifool"."""
    return GROUP_FACTS[VariantId.parse(operator).name]


@dataclass(frozen=True)
class SmallestMotion:
    """An image with the smallest motion found that changes its label."""

    model: str
    operator: str
    image: str
    label: int
    clean_prediction: int
    prediction: int
    score: float
    motion: tuple[float, ...]
    clean_confidence: float | None
    tag: str = ""

    @property
    def description(self) -> str:
        """The motion in words."""
        return describe(group_of(self.operator), self.motion)


# A search has one row per image. Of random draws, the weakest that breaks an image counts, if the clean one is right.
_SMALLEST_MOTIONS = f"""
    select model, operator, image, label, clean_prediction, prediction, score, motion, clean_confidence,
           case when number > $count then '{MEDIAN}' else '' end
    from (select *, row_number() over (partition by model, operator order by score, image) as number,
                 count(*) over (partition by model, operator) as breaks
          from (select rows.*, clean.prediction as clean_prediction, clean.confidence as clean_confidence
                from rows join samples using (image) join clean on clean.model = rows.model and clean.index = samples.index
                where lens = 'geometry' and status = 'broken' and (draw is null or clean.correct)
                qualify row_number() over (partition by rows.model, operator, rows.image order by score, draw) = 1))
    where number <= $count or number = (breaks + 1) // 2
    order by model, operator, number
"""


def smallest_motions(run: Run, count: int) -> list[SmallestMotion]:
    """Return, for each model, group and method, the images that the smallest motions fool, and the median one."""
    return [
        SmallestMotion(model, operator, image, label, clean, prediction, score, tuple(motion), confidence, tag)
        for model, operator, image, label, clean, prediction, score, motion, confidence, tag in run.query(
            _SMALLEST_MOTIONS, {"count": count}
        )
    ]


def exhibits(run: Run, options: Mapping[str, Any]) -> list[Exhibit]:
    """Return the pictures for the report: the smallest motions of each model, group and method."""
    return [
        Exhibit(
            lens="geometry",
            model=found.model,
            operator=found.operator,
            image=found.image,
            parameters=found.motion,
            label=found.label,
            prediction=found.prediction,
            confidence=None,
            clean_confidence=found.clean_confidence,
            caption=found.description,
            clean_prediction=found.clean_prediction,
            detail=f"score {found.score:.2f}",
            tag=found.tag,
        )
        for found in smallest_motions(run, EXHIBITS)
    ]


def training_motions(run: Run, operator: str, score: float | None = None) -> tuple[dict[str, list[float]], float | None]:
    """Return the motion of each image for augmented training data, and the score of random motions.

    A search gives the motion that it found. Random motions are those of the first draw at `score`, by default the median
    score of the smallest motions, as in the paper.
    """
    known = [name for (name,) in run.query("select distinct operator from rows where lens = 'geometry'")]
    if not known:
        raise ConfigError("the run has no motions; run it with the geometry lens: brinell run --lens geometry")
    if operator not in known:
        raise ConfigError(f"the run has no {operator!r}; {nearest(operator, sorted(known))}")
    if not operator.endswith(":random"):
        sql = "select image, any_value(motion) from rows where operator = $operator and status = 'broken' group by image"
        return dict(run.query(sql, {"operator": operator})), None
    if run.sampled:
        raise ConfigError(
            "a sample of each image's random motions may lack the first one of a score; rerun without --budget to export it"
        )
    sql = "select distinct amount from rows where operator = $operator order by 1"
    scores = [amount for (amount,) in run.query(sql, {"operator": operator})]
    wanted = _median_score(run) if score is None else score
    closest = min(scores, key=lambda each: abs(each - wanted))
    if abs(closest - wanted) > SCORE_TOLERANCE:
        raise ConfigError(
            f"the run has no random motions of score {wanted:.3g}; run it with --radius {wanted:.3g}, or use "
            f"--score {closest:g}"
        )
    found = run.query(
        """select image, any_value(motion) from rows
           where operator = $operator and amount = $amount and draw = 0 and motion is not null group by image""",
        {"operator": operator, "amount": closest},
    )
    return dict(found), float(closest)


def _median_score(run: Run) -> float:
    [(median,)] = run.query("select median(score) from rows where lens = 'geometry' and draw is null and status = 'broken'")
    if median is None:
        raise ConfigError(
            "the run has no smallest motions to take the median score from; give one with --score, as in 1.04"
        )
    return float(median)
