"""What two runs can be compared by: each measure turns rows into one number an image, model and operator.

To add one is an entry in `MEASURES`: a question in SQL over a run's tables.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import duckdb
import numpy as np
import pyarrow as pa

from brinell.comparison.paired import Array
from brinell.registry import Registry

CLEAN_IMAGES = "clean"
AVERAGE = "average"


@dataclass(frozen=True)
class Measure:
    """One number an image, of a `lens`, or of the clean answers where that is None.

    `sql` asks for model, operator, image and value, and for level where it is `by_level`; words in braces are the lens's
    options. Images without a row have no value. Changes are told in `unit`: percentage points, or percent of what it was.
    Values of `yes_or_no` are 0 or 1. What only says in detail what another measure says is not `ranked`.
    """

    name: str
    lens: str | None
    what: str
    better: Literal["higher", "lower"]
    unit: Literal["points", "percent"]
    sql: str
    yes_or_no: bool = False
    by_level: bool = False
    ranked: bool = True

    @property
    def sign(self) -> int:
        """1 where more is better, -1 where less is."""
        return 1 if self.better == "higher" else -1


MEASURES: Registry[Measure] = Registry("measure")
Column = tuple[str, int | None]  # an operator, and a level where the measure goes by them


def _add(measure: Measure) -> None:
    MEASURES.add(measure.name, measure)


_add(
    Measure(
        name="clean",
        lens=None,
        what="share of clean images that are right",
        better="higher",
        unit="points",
        sql="select model, 'clean' as operator, image, correct::int as value from clean join samples using (index)",
        yes_or_no=True,
    )
)
_add(
    Measure(
        name="area",
        lens="profile",
        what="mean accuracy over all levels",
        better="higher",
        unit="points",
        sql="select model, operator, image, avg(correct::int) as value from rows where lens = 'profile' group by all",
    )
)
_add(
    Measure(
        name="accuracy",
        lens="profile",
        what="accuracy at one level",
        better="higher",
        unit="points",
        sql="select model, operator, level, image, correct::int as value from rows where lens = 'profile'",
        yes_or_no=True,
        by_level=True,
        ranked=False,
    )
)
# of images that were right when clean and got answers; a survivor needs more than there is
_KNOB = "from rows where lens = 'knob' and status in ('broken', 'survived')"
_add(
    Measure(
        name="broken",
        lens="knob",
        what="share of images that some change breaks",
        better="lower",
        unit="points",
        sql=f"select model, operator, image, max((status = 'broken')::int) as value {_KNOB} group by all",
        yes_or_no=True,
    )
)
_add(
    Measure(
        name="robustness",
        lens="knob",
        what="mean smallest breaking change (R), of images that broke in both",
        better="higher",
        unit="percent",
        sql="select model, operator, image, {distance} as value from rows "
        "where lens = 'knob' and smallest and status = 'broken'",
    )
)
_add(
    Measure(
        name="severity",
        lens="knob",
        what="mean share of a property's range that is survived",
        better="higher",
        unit="points",
        sql="""select model, operator, image, min(case when status = 'survived' then 1.0
                   else greatest(abs(severity), abs(severity_x), abs(severity_y)) end) as value """
        + _KNOB
        + " group by all",
    )
)
for _change in ("shift", "shrink"):
    _add(
        Measure(
            name=f"fragile_{_change}",
            lens="fragility",
            what=f"share of windows that a small {_change} turns right or wrong",
            better="lower",
            unit="points",
            sql=f"""select model, operator, image, fragile / windows as value from rows where lens = 'fragility'
                    and status = 'measured' and kind = 'loose {_change}' and judged_by = 'correct' and windows > 0""",
        )
    )
_add(
    Measure(
        name="glare",
        lens="highlights",
        what="share of spots of light under which the answer is right",
        better="higher",
        unit="points",
        sql="""select model, operator, image, avg(correct::int) as value from rows
               where lens = 'highlights' and level > 0 group by all""",
    )
)
_add(
    Measure(
        name="motion",
        lens="geometry",
        what="mean score of the motions that change a label, of images that broke in both",
        better="higher",
        unit="percent",
        sql="""select model, operator, image, score as value from rows
               where lens = 'geometry' and draw is null and status = 'broken'""",
    )
)
_add(
    Measure(
        name="random_motion",
        lens="geometry",
        what="share of random motions that change the label",
        better="lower",
        unit="points",
        sql="""select model, operator, image, avg((status = 'broken')::int) as value from rows
               where lens = 'geometry' and draw is not null and status in ('broken', 'survived') group by all""",
    )
)


_PLACED = """
    with asked as ({sql}),
    named as (select operator, {level} as level, place, value from asked join places using (image) where model = $model),
    columns as (select *, row_number() over (order by operator, level) - 1 as column
                from (select distinct operator, level from named))
"""


def image_values(
    connection: duckdb.DuckDBPyConnection,
    measure: Measure,
    options: Mapping[str, Any],
    model: str,
    images: list[str],
) -> dict[Column, Array]:
    """By column the values of one model, float64 (images,) in the order of the images, NaN where there is none."""
    connection.register("places", pa.table({"image": images, "place": np.arange(len(images))}))
    sql = measure.sql.format(**options) if measure.lens else measure.sql
    placed = _PLACED.format(sql=sql, level="level" if measure.by_level else -1)
    given = {"model": model}
    columns = connection.execute(f"{placed} select operator, level from columns order by 1, 2", given).fetchall()
    found = connection.execute(
        f"{placed} select columns.column::int as number, place, avg(value)::double as value from named "
        "join columns using (operator, level) where value is not null group by all",
        given,
    ).fetchnumpy()
    values = np.full((len(columns), len(images)), np.nan)
    values[found["number"], found["place"]] = found["value"]
    connection.unregister("places")
    return {
        (operator, level if measure.by_level else None): values[place] for place, (operator, level) in enumerate(columns)
    }


def measures_of(lenses: list[str]) -> list[Measure]:
    """What runs of these lenses can be compared by."""
    return [measure for measure in MEASURES.values() if measure.lens is None or measure.lens in lenses]
