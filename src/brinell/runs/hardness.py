"""Hardness: how much of what a model gets right it keeps when images change, from 0 to 100, lens by lens.

Every lens defines a share in [0, 1] for each image and operator (`Scale.sql`). A model's hardness is the mean over images
of the mean over operators, with its 95 % interval over images.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from brinell.runs.ranking import find_extremes
from brinell.runs.run import Run
from brinell.runs.statistics import Estimate, mean
from brinell.runs.words import format_mean, join_names


@dataclass(frozen=True)
class Scale:
    """What hardness means for a lens.

    `sql` selects model, operator, image and value, a share in [0, 1]: 1 if nothing that the lens does changes the answer.
    `what` names what the lens does to images, in a word or two, and `among` its operators; `meaning` says in a sentence
    what the value is.
    """

    what: str
    meaning: str
    sql: str
    among: str = "operators"


@dataclass(frozen=True)
class Hardness:
    """A model's hardness under one lens, from 0 to 100, over `images`.

    `by_operator` is the same for each operator. `weakest` are the operators with the lowest value and those that are not
    clearly higher; empty where that is more than half of them.
    """

    model: str
    what: str
    value: Estimate
    images: int
    by_operator: Mapping[str, Estimate]
    weakest: tuple[str, ...] = ()

    def __str__(self) -> str:
        return format_mean(self.value, ".0f")


_MEANS = """
    select model, avg(value), stddev_samp(value), count(*) from (
        select model, image, avg(value) as value from ({values}) where list_contains($operators, operator) group by all)
    group by all order by all
"""
_BY_OPERATOR = """
    select model, operator, avg(value), stddev_samp(value), count(*) from (
        select model, operator, image, avg(value) as value from ({values}) group by all)
    group by all order by all
"""


def measure_hardness(run: Run, scale: Scale) -> dict[str, Hardness]:
    """Return each model's hardness under a lens; models without an image that counts have none.

    Models are compared over the operators that all of them have. Attacks that need gradients don't count, unless there is
    nothing else.
    """
    by_operator: dict[str, dict[str, Estimate]] = {}
    for model, operator, *moments in run.query(_BY_OPERATOR.format(values=scale.sql)):
        by_operator.setdefault(model, {})[operator] = _percent(*moments)
    counted = _select_operators(run, by_operator)
    weakest = find_extremes(
        run,
        f"select model as owner, operator as name, image, value from ({scale.sql}) "
        "where list_contains($operators, operator)",
        {"operators": counted},
    )
    return {
        model: Hardness(
            model=model,
            what=scale.what,
            value=_percent(*moments),
            images=moments[-1],
            by_operator=by_operator[model],
            weakest=weakest[model].lowest if 2 * len(weakest[model].lowest) <= len(counted) else (),
        )
        for model, *moments in run.query(_MEANS.format(values=scale.sql), {"operators": counted})
    }


def _select_operators(run: Run, by_operator: Mapping[str, Mapping[str, Estimate]]) -> list[str]:
    every = list(dict.fromkeys(operator for own in by_operator.values() for operator in own))
    common = [operator for operator in every if all(operator in own for own in by_operator.values())] or every
    return [operator for operator in common if not run.facts(operator).get("white_box")] or common


def _percent(value: float, deviation: float | None, images: int) -> Estimate:
    share = mean(value, deviation, images, most=1)
    return Estimate(100 * share.value, 100 * share.low, 100 * share.high)


def describe_weakest(run: Run, hardness: Hardness) -> str:
    """Return what a model is weakest against, "local blur and white fog"; empty where nothing is clearly weaker."""
    return join_names([run.title(operator) for operator in hardness.weakest], 2) if hardness.weakest else ""
