"""How well a model knows when it is wrong, at every level: calibration error, Brier score and log loss from rows.

Rows have the probability of the prediction and of the true class. ECE and the Brier score are therefore those of the
prediction: is a model that is 80 % sure right in 80 % of cases?
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from brinell.runs.run import Run
from brinell.runs.statistics import Estimate, mean

BINS = 15  # of confidence
UNCALIBRATED = ("segmentation", "embedding")  # tasks of models whose confidence is no probability
_LEAST = 1e-12  # probability that counts in a logarithm

# the answers of rows: the gap between confidence and being right, the log loss, and the bin of the confidence
ANSWERS = f"""
    select model, operator, level, image, confidence::double - correct::int as gap,
           -ln(greatest(probability, {_LEAST})) as loss, least(floor(confidence * {BINS}), {BINS - 1})::int as bin
    from rows where lens = 'profile' and confidence between 0 and 1
"""
# the gaps of a bin have one sign, so ECE is a mean over images of signed differences, whose squares need no sign
_CALIBRATION = f"""
    with answers as ({ANSWERS}),
    bins as (
        select model, operator, level, bin, count(*) as images, sum(gap) as gaps, sum(gap ** 2) as squares,
               sum(gap ** 4) as fourth, sum(loss) as losses, sum(loss ** 2) as square_losses
        from answers group by all)
    select model, operator, level, sum(images)::bigint, sum(abs(gaps)), sum(squares), sum(fourth), sum(losses),
           sum(square_losses)
    from bins group by all order by all
"""


@dataclass(frozen=True)
class Calibration:
    """Calibration of a model at a level of an operator: the lower, the better."""

    model: str
    operator: str
    level: int
    ece: Estimate
    brier: Estimate
    nll: Estimate


def compute_calibration(run: Run) -> list[Calibration]:
    """Return the calibration of every model at every level of every operator."""
    found = []
    for model, operator, level, count, gaps, squares, fourth, losses, square_losses in run.query(_CALIBRATION):
        if run.models[model].task in UNCALIBRATED:
            continue
        ece, brier = _mean(gaps, squares, count, most=1), _mean(squares, fourth, count, most=1)
        found.append(Calibration(model, operator, level, ece, brier, _mean(losses, square_losses, count)))
    return found


def _mean(total: float, squares: float, count: int, most: float = math.inf) -> Estimate:
    """Return a mean with its interval, from the sums of numbers and of their squares."""
    value = total / count
    variance = max(0.0, squares - count * value**2) / max(count - 1, 1)
    return mean(value, math.sqrt(variance), count, most=most)
