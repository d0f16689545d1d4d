"""What runs can be compared by: measures, each of which turns rows into one number per image, model and operator.

A lens adds measures through its reader (`Reader.measures`); the measure of clean images is here.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np
import pyarrow as pa

from brinell.comparison.resampling import Array
from brinell.errors import UnknownName
from brinell.lenses.lens import LENSES
from brinell.lenses.reader import AVERAGE, Measure, Statistic
from brinell.registry import nearest
from brinell.runs.run import Run
from brinell.runs.statistics import Estimate

CLEAN_IMAGES = "clean"
TITLES = {CLEAN_IMAGES: "clean images", AVERAGE: "average"}  # of what stands in the place of an operator

CLEAN = Measure(
    name="clean",
    lens=None,
    what="share of clean images that are right",
    better="higher",
    unit="points",
    sql="select model, 'clean' as operator, image, correct::int as value from clean join samples using (index)",
    yes_or_no=True,
)

Figure = Measure | Statistic  # what a rule can limit
Column = tuple[str, int | None]  # an operator, and a level where the measure goes by levels


def measures_of(lenses: Iterable[str]) -> list[Measure]:
    """Return what runs of these lenses can be compared by."""
    names = set(lenses)
    return [CLEAN, *(measure for lens in LENSES.values() if lens.name in names for measure in lens.reader.measures)]


def all_measures() -> dict[str, Measure]:
    """Return the measures of all lenses by name."""
    return {name: figure for name, figure in all_figures().items() if isinstance(figure, Measure)}


def all_figures() -> dict[str, Figure]:
    """Return everything that a rule can limit, by name: measures, and statistics such as failure points."""
    figures: dict[str, Figure] = {}
    known: list[Figure] = [*measures_of(LENSES), *(one for lens in LENSES.values() for one in lens.reader.statistics)]
    for figure in known:
        if figure.name in figures:
            raise ValueError(
                f"measure {figure.name!r} is defined by the lenses {figures[figure.name].lens} and {figure.lens}"
            )
        figures[figure.name] = figure
    return figures


def find_measure(name: str) -> Measure:
    """Return a measure by name, or raise with the nearest names."""
    figure = find_figure(name)
    if not isinstance(figure, Measure):
        known = ", ".join(all_measures())
        raise UnknownName(f"{name} is not measured image by image and can't be compared; compare one of {known}")
    return figure


def find_figure(name: str) -> Figure:
    """Return a measure or statistic by name, or raise with the nearest names."""
    figures = all_figures()
    if name not in figures:
        raise UnknownName(f"there is no measure {name!r}; {nearest(name, list(figures))}")
    return figures[name]


# ---- values ----

_VALUES = """
    with measured as ({sql}),
    named as (
        select operator, {level} as level, position, value from measured join image_positions using (image)
        where model = $model),
    columns as (select *, row_number() over (order by operator, level) - 1 as column
                from (select distinct operator, level from named))
"""


def image_values(run: Run, measure: Measure, model: str, images: list[str]) -> dict[Column, Array]:
    """Return a model's values by column, float64 (images,) in the order of the images, NaN where there is none.

    A run without the measure's lens has no columns.
    """
    if measure.lens is not None and measure.lens not in run.lenses:
        return {}
    sql = measure.sql.format(**run.lens(measure.lens)) if measure.lens else measure.sql
    values_sql = _VALUES.format(sql=sql, level="level" if measure.by_level else -1)
    given = {"model": model}
    run.connection.register("image_positions", pa.table({"image": images, "position": np.arange(len(images))}))
    columns = run.query(f"{values_sql} select operator, level from columns order by 1, 2", given)
    found = run.connection.execute(
        f"{values_sql} select columns.column::int as number, position, avg(value)::double as value from named "
        "join columns using (operator, level) where value is not null group by all",
        given,
    ).fetchnumpy()
    run.connection.unregister("image_positions")
    values = np.full((len(columns), len(images)), np.nan)
    values[found["number"], found["position"]] = found["value"]
    return {(operator, level if measure.by_level else None): values[row] for row, (operator, level) in enumerate(columns)}


def averaged_operators(measure: Measure, run: Run, operators: Iterable[str]) -> list[str]:
    """Return the operators that count in a measure's average: those that need gradients may not."""
    return [name for name in operators if measure.with_white_box or not run.facts(name).get("white_box")]


# ---- text ----


def describe_measure(measure: Measure, having: str = "a value in both") -> str:
    """Return what a measure is; where not all images have a value, it is over those `having` one."""
    return f"{measure.what}, over images with {having}" if measure.unit == "percent" else measure.what


def format_value(measure: Measure, value: float) -> str:
    """Return a mean in the measure's unit."""
    if math.isnan(value):
        return "–"
    return f"{value:.1%}" if measure.unit == "points" else f"{value:.3g}"


def format_estimate(measure: Measure, value: Estimate) -> str:
    """Return a mean with its interval in the measure's unit."""
    if math.isnan(value.value):
        return "–"
    return f"{value:.1%}" if measure.unit == "points" else f"{value:.2g}"
