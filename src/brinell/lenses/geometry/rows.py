"""The rows of the geometry lens: its columns, measures and failures."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from brinell.lenses.reader import NO_ANSWER, Failures, Measure
from brinell.runs.hardness import Scale
from brinell.runs.schema import Schema
from brinell.runs.weights import weighted_mean

# where models are compared, scores count up to this one, and so does an image without a motion: a path of twice the
# image's norm
SCORE_LIMIT = 2.0

COLUMNS: Schema = {
    "score": "float64",  # geodesic score of the motion
    "motion": "float64[]",  # its coordinates in the group: radians, pixels, log-scale
    "parts": "float64[]",  # what each coordinate would add to the score alone, to first order
    "target": "int32",  # the class that ManiFool went towards
    "steps": "int32",  # ManiFool steps; those beyond `max_steps` belong to the retry
    "draw": "int16",  # number of a random motion; null for a search
    "reason": "name",  # why there is no motion, none of this score, or perhaps a smaller one; else empty
    "gradients": "int32",  # number of gradients
    "seconds": "float32",  # per image, averaged over the unit of work
}


# the score of an image up to the limit; null where there is no answer, or where it was wrong when clean
RESTRICTED = f"case status when 'broken' then least(score, {SCORE_LIMIT}) when 'survived' then {SCORE_LIMIT} end"

MEASURES = (
    Measure(
        name="motion",
        lens="geometry",
        what=f"mean score of the smallest motion that changes the label, up to {SCORE_LIMIT:g}",
        better="higher",
        unit="percent",
        sql=f"""select model, operator, image, {RESTRICTED} as value from rows
               where lens = 'geometry' and draw is null and status in ('broken', 'survived')""",
        headline=True,
    ),
    Measure(
        name="rho_hat",
        lens="geometry",
        what="mean score of the smallest motions of fooled images (ρ̂, as published)",
        better="higher",
        unit="percent",
        sql="""select model, operator, image, score as value from rows
               where lens = 'geometry' and draw is null and status = 'broken'""",
        ranked=False,  # it leaves out the images that a model withstands, which are others for every model
    ),
    Measure(
        name="random_motion",
        lens="geometry",
        what="share of random motions that change the label",
        better="lower",
        unit="points",
        sql="""select model, operator, image, avg((status = 'broken')::int) as value from rows
               where lens = 'geometry' and draw is not null and status in ('broken', 'survived') group by all""",
        headline=True,
    ),
)


_SEARCHED = "from rows where lens = 'geometry' and draw is null and status in ('broken', 'survived')"
HARDNESS = Scale(
    what="motions",
    among="groups of motions",
    meaning=f"Over the images that were searched: the geodesic score of the smallest motion that changes the label, as a "
    f"share of {SCORE_LIMIT:g} (all of it for larger motions, and where none was found). In a run with random motions "
    "alone: the share of them that leave the label as it is.",
    sql=f"""
        select model, operator, image, {RESTRICTED} / {SCORE_LIMIT} as value {_SEARCHED}
        union all
        select model, operator, image, {weighted_mean("(status = 'survived')::int")} from rows
        where lens = 'geometry' and draw is not null and status in ('broken', 'survived')
              and not exists (select 1 {_SEARCHED}) group by all
    """,
)


def _failures(options: Mapping[str, Any]) -> str:
    # scores have no upper end; a score of 1, a path as long as the image's norm, becomes an intensity of 50
    return f"""
        select model, operator, image, label, motion, 0, null, 100 * score / (1 + score), score, {NO_ANSWER}
        from rows semi join (select model, image from clean where correct) using (model, image)
        where lens = 'geometry' and status = 'broken' and motion is not null
    """


# searches move images without rounding, and look at the label alone
FAILURES = Failures(_failures, parameters="motion", answers=False, criterion="misclassification")
