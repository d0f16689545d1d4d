"""The faintest spots that break each model, from the rows of the search."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from brinell.lenses.highlights.glare import LEAST
from brinell.runs.names import MEDIAN
from brinell.runs.run import Run
from brinell.runs.statistics import Estimate, mean, proportion


@dataclass(frozen=True)
class LeastLight:
    """One model under the search for the faintest spot that breaks it.

    Over the images that broke: `light` is the mean of the grey levels that the spot adds per pixel, `median` its median
    over images, and `sigma` the median size in pixels of the original. `queries` is the mean per image.
    """

    model: str
    broken: int
    survived: int
    skipped: int
    failed: int
    light: Estimate
    median: float | None
    sigma: float | None
    queries: float
    survived_share: Estimate


_SEARCH = f"from rows where lens = 'highlights' and operator = '{LEAST}'"
_LIGHT = f"""
    select model, count(*) filter (status = 'broken'), count(*) filter (status = 'survived'),
           count(*) filter (status = 'skipped'), count(*) filter (status = 'failed'),
           avg(255 * mae) filter (status = 'broken'), stddev_samp(255 * mae) filter (status = 'broken'),
           median(255 * mae) filter (status = 'broken'), median(sigma) filter (status = 'broken'),
           avg(queries) filter (status != 'skipped')
    {_SEARCH} group by all order by all
"""
_FAINTEST = f"""
    select model, operator, image, 0, spot_x, spot_y, sigma, strength, 255 * mae, label, prediction, confidence, null,
           case when number > $most then '{MEDIAN}' else '' end
    from (select *, row_number() over (partition by model order by mae, image) as number,
                 count(*) over (partition by model) as breaks {_SEARCH} and status = 'broken')
    where number <= $most or number = (breaks + 1) // 2
    order by model, mae, image
"""


def read_least_light(run: Run) -> dict[str, LeastLight]:
    """Return each model's result; none if the search was not part of the run."""
    found = {}
    for model, broken, survived, skipped, failed, light, spread, median, sigma, queries in run.query(_LIGHT):
        found[model] = LeastLight(
            model=model,
            broken=broken,
            survived=survived,
            skipped=skipped,
            failed=failed,
            light=mean(math.nan if light is None else light, spread, broken),
            median=median,
            sigma=sigma,
            queries=queries or 0.0,
            survived_share=proportion(survived, broken + survived),
        )
    return found


def read_faintest_breaks(run: Run, most: int) -> list[tuple[Any, ...]]:
    """Return, per model, the images that break with the least light; columns as in `glare.read_faintest_failures`."""
    return run.query(_FAINTEST, {"most": most})
