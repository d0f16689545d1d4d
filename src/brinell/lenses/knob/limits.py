"""What rules can limit besides the knob's measures: breaks up to an amount, failure points, and images fooled."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from brinell.lenses.knob.breaks import compute_hardness
from brinell.lenses.reader import Reading, Statistic
from brinell.runs.run import Run
from brinell.runs.statistics import Estimate, proportion
from brinell.units import format_amount

# by the level, of which the amount is a function: the first break of each image in each direction
_FIRST_BREAKS = """
    select model, operator, direction, count(*), list(abs(amount - neutral) order by abs(amount - neutral)) filter (broken)
    from (select model, operator, direction, image, bool_or(status = 'broken') as broken,
                 arg_min(amount, level) filter (status = 'broken') as amount
          from rows where lens = 'knob' and status in ('broken', 'survived') group by all) join ({neutral}) using (operator)
    group by all order by all
"""


def broken_within(run: Run, amount: float) -> str:
    """Return the SQL for whether a change of at most an amount breaks an image, in any direction.

    An amount may be a factor, at which 1 changes nothing: then only amounts on its own side of 1 count.
    """
    within = f"""case when neutral = 0 then abs(amount) <= {abs(amount)!r}
                      else (amount - neutral) * sign({amount!r} - neutral) between 0 and abs({amount!r} - neutral) end"""
    return f"""
        select model, operator, image, max((status = 'broken' and coalesce({within}, false))::int) as value
        from rows join ({_neutral(run)}) using (operator)
        where lens = 'knob' and status in ('broken', 'survived') group by all"""


def _neutral(run: Run) -> str:
    """Return the SQL for a table of operators and the amounts at which they change nothing."""
    facts = (
        (operator.replace("'", "''"), run.facts(operator).get("neutral") or 0.0) for operator in run.manifest["operators"]
    )
    rows = ", ".join(f"('{operator}', {neutral!r})" for operator, neutral in facts)
    return f"select * from (values {rows}) as facts(operator, neutral)"


def _first_reaching(values: Sequence[float], tested: int, share: float) -> Estimate:
    """Return the amount at which a share of the tested images is broken, from the sorted amounts of those that break.

    Its interval are the amounts at which the interval of the broken share includes that share; infinite: never.
    """
    shares = [proportion(number, tested) for number in range(1, len(values) + 1)]

    def first(bound: str) -> float:
        reached = (value for value, broken in zip(values, shares, strict=True) if getattr(broken, bound) >= share)
        return next(reached, math.inf)

    return Estimate(first("value"), first("high"), first("low"))


def _read_failure_amounts(run: Run, options: Mapping[str, Any], share: float) -> list[Reading]:
    """Return the amount at which a share of the images is broken, for each direction."""
    found = run.query(_FIRST_BREAKS.format(neutral=_neutral(run)))
    sides = [(model, operator) for model, operator, *_ in found]
    readings = []
    for model, operator, direction, tested, amounts in found:
        facts = run.facts(operator)
        unit, neutral = facts.get("unit") or "", facts.get("neutral") or 0.0
        unit = f"from {format_amount(neutral, unit)}" if neutral else unit
        detail = direction if sides.count((model, operator)) > 1 else ""
        readings.append(Reading(model, operator, _first_reaching(amounts or [], tested, share), tested, None, detail, unit))
    return readings


def _read_fooled(run: Run, options: Mapping[str, Any], share: float) -> list[Reading]:
    """Return the share of images that break below the property's common threshold."""
    hardness = compute_hardness(run, options["distance"], whole_grid=False)
    return [Reading(*key, one.fooled, one.tested) for key, one in hardness.items()]


STATISTICS = (
    Statistic(
        name="failure_amount",
        lens="knob",
        what="amount at which {threshold:g} % of the images are broken",
        better="higher",
        unit="amount",
        read=_read_failure_amounts,
    ),
    Statistic(
        name="fooled",
        lens="knob",
        what="share of images that a change below the mean breaking distance of all models breaks",
        better="lower",
        unit="points",
        read=_read_fooled,
    ),
)
