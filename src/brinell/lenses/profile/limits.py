"""What rules can limit besides the profile's measures: accuracy at an amount, and the level at which a model fails."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from brinell.lenses.profile.curves import compute_curves, find_failure_point
from brinell.lenses.reader import Reading, Statistic
from brinell.runs.run import Run
from brinell.runs.statistics import Estimate


def accuracy_at(run: Run, amount: float) -> str:
    """Return the SQL for accuracy at the first level whose amount reaches the given one.

    Amounts grow with the level, or shrink (the quality of JPEG); the clean image, level 0, has none.
    """
    return f"""
        with amounts as (
            select operator, level, avg(amount) as reached from rows where lens = 'profile' and level > 0 group by all),
        signs as (
            select operator, sign(arg_max(reached, level) - arg_min(reached, level)) as direction
            from amounts group by all),
        levels as (
            select operator, min(level) as level from amounts join signs using (operator)
            where direction * (reached - {amount!r}) >= -1e-6 and (direction != 0 or abs(reached - {amount!r}) <= 1e-6)
            group by all)
        select model, operator, image, correct::int as value from rows semi join levels using (operator, level)
        where lens = 'profile'"""


def _read_failure_levels(run: Run, options: Mapping[str, Any], share: float) -> list[Reading]:
    """Return the first level at which accuracy, and each bound of its interval, is below a share."""
    readings = []
    for key, points in compute_curves(run).items():
        point = find_failure_point(key, points, share)
        bounds = (math.inf if level is None else float(level) for level in (point.level, point.earliest, point.latest))
        readings.append(Reading(*key, Estimate(*bounds), points[0].images, unit="level"))
    return readings


STATISTICS = (
    Statistic(
        name="failure_level",
        lens="profile",
        what="first level at which accuracy is below {threshold:g} %",
        better="higher",
        unit="level",
        read=_read_failure_levels,
    ),
)
