"""What a ranking may claim: which value is the lowest and which the highest, and which can't be told apart from it.

Values are paired by image. The lowest is clearly lower than another one if the mean difference is significant at 5 % by
Student's t. As in Bonett and Price's interval, the error counts two more images, one in each direction as far out as the
farthest: a few images that all agree are not certainty. A claim of the lowest needs every test against it to be
significant, so the tests need no correction for their number.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from brinell.runs.quantiles import student_quantile
from brinell.runs.run import Run
from brinell.runs.statistics import CONFIDENCE


@dataclass(frozen=True)
class Extremes:
    """The name with the lowest mean and the names that are not clearly higher; and the same for the highest."""

    lowest: tuple[str, ...]
    highest: tuple[str, ...]

    def separate(self) -> tuple[tuple[str, ...], tuple[str, ...]] | None:
        """Return both without the names that are in both; None if not even the first ones can be told apart."""
        if self.highest[0] in self.lowest or self.lowest[0] in self.highest:
            return None
        low, high = set(self.lowest), set(self.highest)
        return tuple(name for name in self.lowest if name not in high), tuple(
            name for name in self.highest if name not in low
        )


_DIFFERENCES = """
    with given as materialized (select owner, name, image, avg(value) as value from ({values}) group by all),
    means as (select owner, name, round(avg(value), 9) as mean from given group by all),
    ends as (
        select owner, name as own, true as lowest from means
        qualify row_number() over (partition by owner order by mean, name) = 1
        union all
        select owner, name, false from means qualify row_number() over (partition by owner order by mean desc, name) = 1),
    pairs as (
        select ends.owner, ends.lowest, other.name, other.value - own.value as difference
        from ends join given own on own.owner = ends.owner and own.name = ends.own
        join given other on other.owner = own.owner and other.image = own.image)
    select means.owner, ends.lowest, means.name, ends.own = means.name, count(difference), avg(difference),
           stddev_samp(difference), max(abs(difference))
    from means join ends using (owner) left join pairs using (owner, lowest, name)
    group by means.owner, ends.lowest, means.name, ends.own, mean
    order by means.owner, ends.lowest, case when ends.lowest then mean else -mean end, means.name
"""


def find_extremes(run: Run, values: str, given: Mapping[str, Any] | None = None) -> dict[str, Extremes]:
    """Return the extremes by owner; `values` is SQL for owner, name, image and value, with parameters `given`."""
    tied: dict[tuple[str, bool], list[str]] = {}
    rows = run.query(_DIFFERENCES.format(values=values), dict(given) if given else None)
    for owner, lowest, name, itself, count, difference, deviation, reach in rows:
        names = tied.setdefault((owner, lowest), [])
        if itself:
            names.insert(0, name)
        elif not (count > 1 and (difference > 0) == lowest and is_clear(count, difference, deviation, reach)):
            names.append(name)
    owners = dict.fromkeys(owner for owner, _ in tied)
    return {owner: Extremes(tuple(tied[owner, True]), tuple(tied[owner, False])) for owner in owners}


def is_clear(count: int, difference: float, deviation: float, reach: float) -> bool:
    """Whether a mean difference over two images or more is significant; `reach` is the largest absolute difference."""
    error = math.sqrt((deviation**2 * (count - 1) / count + 2 * reach**2 / count) / count)
    return abs(difference) > student_quantile(count - 1, (1 + CONFIDENCE) / 2) * error
