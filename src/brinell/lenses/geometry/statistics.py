"""Statistics of the geometry lens's rows: the smallest motions, rates of random motions, coordinates and label changes."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from brinell.lenses.geometry.motions import group_of
from brinell.lenses.geometry.reasons import AT_EDGE
from brinell.lenses.geometry.rows import RESTRICTED, SCORE_LIMIT
from brinell.runs.run import Run
from brinell.runs.statistics import Estimate, mean, proportion
from brinell.runs.weights import WEIGHT

MOST_LABEL_CHANGES = 5  # shown for each model, group and method


@dataclass(frozen=True)
class Invariance:
    """One model under one group, searched by one method.

    `restricted_mean` is what models are ranked by: the mean geodesic score of the smallest motions up to `SCORE_LIMIT`, at
    which images without a motion count, too. `rho_hat` is the paper's ρ̂, the mean over fooled images alone; `median` and
    `steps` are over these, too. `by_retry` images were fooled by ManiFool's second try alone, which the paper doesn't have;
    `first_try` is ρ̂ without them. For `failed` images no motion was found, for these `reasons`; `skipped` ones were wrong
    when clean; `no_answer` ones got no answer. For `at_edge` images Manitest reached the edge of its grid.
    """

    model: str
    operator: str
    fooled: int
    failed: int
    skipped: int
    no_answer: int
    restricted_mean: Estimate
    rho_hat: Estimate
    by_retry: int
    first_try: Estimate
    median: float | None
    seconds: float
    queries: float
    gradients: float
    steps: float | None
    reasons: dict[str, int]
    at_edge: int = 0

    @property
    def images(self) -> int:
        """The number of images that were searched."""
        return self.fooled + self.failed

    @property
    def edge_note(self) -> str:
        """Where a smaller motion may exist; empty if nowhere."""
        if not self.at_edge:
            return ""
        return f"for {self.at_edge} of {self.fooled} fooled images a smaller motion may lie beyond the edge of the grid"

    @property
    def fooled_share(self) -> Estimate:
        """Share of the tested images that were fooled."""
        return proportion(self.fooled, self.fooled + self.failed)

    @property
    def retry_note(self) -> str:
        """What the second try found; empty if nothing."""
        if not self.by_retry:
            return ""
        without = f"; without them, rho-hat is {self.first_try.value:.2f}" if self.by_retry < self.fooled else ""
        return f"{self.by_retry} of {self.fooled} fooled by a second try, whose longer steps find larger motions{without}"


@dataclass(frozen=True)
class Rate:
    """What random motions of one score do: `changed` is the share of motions that change the label, `worst` the share of
    images for which at least one of the draws does, which a sample of an image's draws doesn't say.

    `rejected` is the share of draws that have no motion of this score; it may bias the rate.
    """

    model: str
    operator: str
    score: float
    changed: Estimate
    worst: Estimate
    draws: int
    rejected: float
    images: int = 0


@dataclass(frozen=True)
class CoordinateShare:
    """How much one coordinate contributes to the smallest motions: its mean share of the squared change of the image.

    `size` is its mean absolute value, in raw units.
    """

    model: str
    operator: str
    coordinate: str
    mean: float
    size: float


_SMALLEST = f"""
    select model, operator, count(*) filter (status = 'broken'), count(*) filter (status = 'survived'),
           count(*) filter (status = 'skipped'), count(*) filter (status = 'failed'),
           avg({RESTRICTED}), stddev_samp({RESTRICTED}),
           avg(score) filter (status = 'broken'), stddev_samp(score) filter (status = 'broken'),
           count(*) filter (status = 'broken' and steps > $max_steps),
           avg(score) filter (status = 'broken' and steps <= $max_steps),
           stddev_samp(score) filter (status = 'broken' and steps <= $max_steps),
           median(score) filter (status = 'broken'), avg(seconds), avg(queries), avg(gradients), avg(steps),
           count(*) filter (status = 'broken' and reason = '{AT_EDGE}')
    from rows where lens = 'geometry' and draw is null group by all order by all
"""
_REASONS = """
    select model, operator, reason, count(*) from rows
    where lens = 'geometry' and draw is null and status != 'broken' group by all order by 4 desc, 3
"""
_RATES = f"""
    select model, operator, amount, count(*) filter (status in ('broken', 'survived')),
           sum({WEIGHT}) filter (status = 'broken') / sum({WEIGHT}) filter (status in ('broken', 'survived')),
           count(*) filter (status = 'skipped' and reason != 'wrong when clean'),
           count(*) filter (reason != 'wrong when clean')
    from rows where lens = 'geometry' and draw is not null group by all order by all
"""
# draws of one image are not independent images, so intervals are over images
_RATES_OVER_IMAGES = """
    select model, operator, amount, stddev_samp(own), count(*), count(*) filter (own > 0) from (
        select model, operator, amount, image, avg((status = 'broken')::int) as own
        from rows where lens = 'geometry' and draw is not null and status in ('broken', 'survived') group by all)
    group by all
"""
_LABEL_CHANGES = f"""
    select rows.model, operator, clean.prediction, rows.prediction, count(*) as images from rows
    join samples using (image) join clean on clean.model = rows.model and clean.index = samples.index
    where lens = 'geometry' and draw is null and status = 'broken'
    group by rows.model, operator, clean.prediction, rows.prediction
    qualify row_number() over (
        partition by rows.model, operator order by images desc, clean.prediction, rows.prediction) <= {MOST_LABEL_CHANGES}
    order by 1, 2, 5 desc, 3, 4
"""
_SHARES = """
    select model, operator, coordinate, avg(share), avg(size) from (
        select model, operator, unnest(range(1, len(motion) + 1)) as coordinate,
               unnest([x * x / greatest(list_sum([y * y for y in parts]), 1e-300) for x in parts]) as share,
               unnest([abs(x) for x in motion]) as size
        from rows where lens = 'geometry' and draw is null and status = 'broken')
    group by all order by all
"""


def find_smallest(run: Run, max_steps: int) -> dict[tuple[str, str], Invariance]:
    """Return the smallest motions by model and operator; steps beyond `max_steps` belong to the second try."""
    reasons: dict[tuple[str, str], dict[str, int]] = {}
    for model, operator, reason, count in run.query(_REASONS):
        reasons.setdefault((model, operator), {})[reason] = count
    smallest = {}
    for model, operator, fooled, failed, skipped, no_answer, *figures in run.query(_SMALLEST, {"max_steps": max_steps}):
        restricted, spread, value, deviation, by_retry, first, first_deviation, *others = figures
        median, seconds, queries, gradients, steps, at_edge = others
        smallest[model, operator] = Invariance(
            model=model,
            operator=operator,
            fooled=fooled,
            failed=failed,
            skipped=skipped,
            no_answer=no_answer,
            restricted_mean=_restricted_mean(restricted, spread, fooled + failed),
            rho_hat=mean(math.nan if value is None else value, deviation, fooled),
            by_retry=by_retry,
            first_try=mean(math.nan if first is None else first, first_deviation, fooled - by_retry),
            median=median,
            seconds=seconds,
            queries=queries,
            gradients=gradients,
            steps=steps,
            reasons=reasons.get((model, operator), {}),
            at_edge=at_edge,
        )
    return smallest


def _restricted_mean(value: float | None, deviation: float | None, images: int) -> Estimate:
    """Return a mean of scores up to the limit with its interval; if no image is fooled, it has a width as a share does."""
    if value is None:
        return Estimate(math.nan, math.nan, math.nan)
    share = mean(value / SCORE_LIMIT, None if deviation is None else deviation / SCORE_LIMIT, images, most=1)
    return Estimate(*(SCORE_LIMIT * bound for bound in (share.value, share.low, share.high)))


def find_rates(run: Run) -> dict[tuple[str, str], list[Rate]]:
    """Return what random motions do by model and operator, in increasing score."""
    over_images = {row[:3]: row[3:] for row in run.query(_RATES_OVER_IMAGES)}
    rates: dict[tuple[str, str], list[Rate]] = {}
    for model, operator, score, answered, broken, rejected, drawn in run.query(_RATES):
        deviation, images, fooled = over_images.get((model, operator, score), (None, 0, 0))
        changed = mean(broken or 0.0, deviation, images, most=1) if answered else proportion(0, 0)
        rates.setdefault((model, operator), []).append(
            Rate(
                model=model,
                operator=operator,
                score=score,
                changed=changed,
                worst=proportion(0, 0) if run.sampled else proportion(fooled, images),
                draws=answered,
                rejected=rejected / max(1, drawn),
                images=images,
            )
        )
    return rates


def find_shares(run: Run) -> list[CoordinateShare]:
    """Return how much each coordinate contributes to the smallest motions."""
    return [
        CoordinateShare(model, operator, group_of(operator).parts[number - 1], share, size)
        for model, operator, number, share, size in run.query(_SHARES)
    ]


def find_label_changes(run: Run) -> list[dict[str, Any]]:
    """Return the most common changes of label under the smallest motions."""
    return [
        {"model": model, "operator": operator, "from": before, "to": after, "images": images}
        for model, operator, before, after, images in run.query(_LABEL_CHANGES)
    ]
