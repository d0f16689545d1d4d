"""The rows of the geometry lens: its columns, measures and failures, and the queries of its findings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from brinell.lenses.reader import NO_ANSWER, Failures, Measure
from brinell.runs.schema import NAME

COLUMNS = pa.schema(
    [
        ("score", pa.float64()),  # geodesic score of the motion
        ("motion", pa.list_(pa.float64())),  # its coordinates in the group: radians, pixels, log-scale
        ("parts", pa.list_(pa.float64())),  # what each coordinate would add to the score alone, to first order
        ("target", pa.int32()),  # the class that ManiFool went towards
        ("steps", pa.int32()),  # ManiFool steps; those beyond `max_steps` belong to the retry
        ("draw", pa.int16()),  # number of a random motion; null for a search
        ("reason", NAME),  # why there is no motion, or none of this score; empty where there is one
        ("gradients", pa.int32()),  # number of gradients
        ("seconds", pa.float32()),  # per image, averaged over the unit of work
    ]
)
MOST_LABEL_CHANGES = 5  # shown for each model, group and method


# ---- measures and failures ----

MEASURES = (
    Measure(
        name="motion",
        lens="geometry",
        what="mean score of the smallest motion that changes the label",
        better="higher",
        unit="percent",
        sql="""select model, operator, image, score as value from rows
               where lens = 'geometry' and draw is null and status = 'broken'""",
    ),
    Measure(
        name="random_motion",
        lens="geometry",
        what="share of random motions that change the label",
        better="lower",
        unit="points",
        sql="""select model, operator, image, avg((status = 'broken')::int) as value from rows
               where lens = 'geometry' and draw is not null and status in ('broken', 'survived') group by all""",
    ),
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


# ---- queries of the findings ----

SMALLEST = """
    select model, operator, count(*) filter (status = 'broken'), count(*) filter (status = 'survived'),
           count(*) filter (status = 'skipped'), count(*) filter (status = 'failed'),
           avg(score) filter (status = 'broken'), stddev_samp(score) filter (status = 'broken'),
           count(*) filter (status = 'broken' and steps > $max_steps),
           avg(score) filter (status = 'broken' and steps <= $max_steps),
           stddev_samp(score) filter (status = 'broken' and steps <= $max_steps),
           median(score) filter (status = 'broken'), avg(seconds), avg(queries), avg(gradients), avg(steps)
    from rows where lens = 'geometry' and draw is null group by all order by all
"""
REASONS = """
    select model, operator, reason, count(*) from rows
    where lens = 'geometry' and draw is null and status != 'broken' group by all order by 4 desc, 3
"""
RATES = """
    select model, operator, amount, count(*) filter (status in ('broken', 'survived')),
           count(*) filter (status = 'broken'), count(*) filter (status = 'skipped' and reason != 'wrong when clean'),
           count(*) filter (reason != 'wrong when clean')
    from rows where lens = 'geometry' and draw is not null group by all order by all
"""
# draws of one image are not independent images, so intervals are over images
RATES_OVER_IMAGES = """
    select model, operator, amount, stddev_samp(own), count(*), count(*) filter (own > 0) from (
        select model, operator, amount, image, avg((status = 'broken')::int) as own
        from rows where lens = 'geometry' and draw is not null and status in ('broken', 'survived') group by all)
    group by all
"""
LABEL_CHANGES = f"""
    select rows.model, operator, clean.prediction, rows.prediction, count(*) as images from rows
    join samples using (image) join clean on clean.model = rows.model and clean.index = samples.index
    where lens = 'geometry' and draw is null and status = 'broken'
    group by rows.model, operator, clean.prediction, rows.prediction
    qualify row_number() over (
        partition by rows.model, operator order by images desc, clean.prediction, rows.prediction) <= {MOST_LABEL_CHANGES}
    order by 1, 2, 5 desc, 3, 4
"""
SHARES = """
    select model, operator, coordinate, avg(share), avg(size) from (
        select model, operator, unnest(range(1, len(motion) + 1)) as coordinate,
               unnest([x * x / greatest(list_sum([y * y for y in parts]), 1e-300) for x in parts]) as share,
               unnest([abs(x) for x in motion]) as size
        from rows where lens = 'geometry' and draw is null and status = 'broken')
    group by all order by all
"""
