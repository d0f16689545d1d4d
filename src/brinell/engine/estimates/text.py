"""The estimate of a run's cost, in words."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from statistics import NormalDist

from brinell.engine.estimates.plan import Cost, Plan, plan, plan_run, under_budget
from brinell.engine.setup import RunSetup
from brinell.errors import BrinellError
from brinell.run_config import RunConfig
from brinell.runs.queries import format_cost

BUDGETS = (0.03, 0.1, 0.3)  # shares of the queries that a plan shows
SPREAD, WITHIN = 0.25, 0.1  # standard deviation of shares over images, and variance of answers within one, as measured
HOUR = 3600.0  # seconds; longer runs are not started without a warning
SERVICE_TIME = "as long as the service takes"


HEADS = ("lens", "model", "images ×\noperators", "forward passes", "per\nsecond", "time")


def plan_rows(plan: Plan) -> list[tuple[str, ...]]:
    """Return the cost of each lens and model, in the order of `HEADS`."""
    return [
        (cost.lens, cost.model, f"{cost.images:,} × {cost.operators}", _work(cost), _rate(cost), _time(cost))
        for cost in plan.costs
    ]


def plan_totals(plan: Plan) -> list[str]:
    """Return the total in lines."""
    total = _total(plan)
    stored = f"{plan.rows:,} rows, about {_megabytes(plan)}, in {plan.folder}."
    return [f"{total[0].upper()}{total[1:]}. Nothing was run.", stored]


BUDGET_NOTE = (
    "The last columns are about what the interval of a headline share will be, in points, if images differ by "
    f"{100 * SPREAD:.0f} points (standard deviation)."
)


def budget_table(plan: Plan) -> list[tuple[str, ...]]:
    """Return what some budgets cost, and how wide intervals will be: a row of heads, and one for each budget."""
    if not any(cost.trials for cost in plan.costs):
        return []
    first = {cost.lens: cost for cost in reversed(plan.costs)}  # models have the same width
    lenses = list(dict.fromkeys(cost.lens for cost in plan.costs))
    rows = [("budget", "time", "passes", *lenses)]
    for share in (*BUDGETS, 1.0):
        costs = tuple(cost.under(share) for cost in plan.costs)
        time, passes = _time_and_passes(replace(plan, costs=costs))
        widths = [f"±{100 * expected_width(first[lens], share):.2g}" for lens in lenses]
        rows.append((f"{share:g}" if share < 1 else "all", time, passes, *widths))
    return rows


def _time_and_passes(plan: Plan) -> tuple[str, str]:
    """Return the time of a plan, and its forward passes or the queries of services."""
    passes = sum(cost.queries or cost.forward_passes for cost in plan.costs)
    return _about(plan) if plan.seconds else SERVICE_TIME, f"{rounded(passes):,}"


def expected_width(cost: Cost, share: float) -> float:
    """Return about half the width of the interval of a mean share over images, under a budget.

    Images differ by `SPREAD`, and answers within an image by `WITHIN`: a sample of its cells adds that, divided by their
    number. Where images are chosen instead, there are fewer of them.
    """
    cells = share * cost.cells
    if not cost.cells:
        images, spread = share * cost.images, SPREAD**2
    else:
        images = min(1.0, cells) * cost.images
        spread = SPREAD**2 + WITHIN * (1 - share) / (max(1.0, cells) * cost.operators)
    return float(NormalDist().inv_cdf(0.975) * (spread / max(1.0, images)) ** 0.5)


def estimate_line(plan: Plan) -> str:
    """Return the estimate that is printed before a run."""
    queries = [_queries(cost) for cost in plan.costs if cost.queries]
    parts = [_total(plan), *queries, _megabytes(plan)]
    if len(plan.costs) > 1 and not queries:
        parts[0] += f" ({', '.join(f'{cost.lens} {format_time(cost.seconds)}' for cost in plan.costs)})"
    return f"Estimate: {', '.join(parts)}."


@dataclass(frozen=True)
class CostLines:
    """What is printed before a run, and whether it takes more than an hour."""

    lines: list[str]
    long: bool = False


def describe_cost(setup: RunSetup, quick: Callable[[], RunConfig], words: Mapping[str, str]) -> CostLines:
    """Return what is left of a run in a line; if a new run takes more than an hour, also a cheaper way.

    `quick` returns the config under the preset quick; `words` say how that preset and a limit of images are given.
    """
    estimate = plan_run(setup)
    if estimate is None:
        return CostLines([])
    if estimate.seconds <= HOUR or estimate.resumed:
        return CostLines([estimate_line(estimate)])
    shorter = None
    with suppress(BrinellError):  # a lens of another package may have no such preset
        shorter = under_budget(plan(RunSetup(quick(), setup.models, setup.dataset), known=estimate), setup.config.budget)
    return CostLines([estimate_line(estimate), cheaper_line(estimate, shorter, **words)], long=True)


def cheaper_line(plan: Plan, quick: Plan | None, *, preset: str, limit: str) -> str:
    """Return how a run of more than an hour can be made shorter: by the preset quick, or by fewer images.

    `preset` and `limit` say how these are given; `limit` holds {} for the number of images.
    """
    ways = []
    if quick is not None and quick.seconds < plan.seconds / 2:
        ways.append(f"{preset} ({_about(quick)})")
    images = max(cost.images for cost in plan.costs)
    fewer = int(images * HOUR / plan.seconds)
    if 0 < fewer < images:
        ways.append(f"{limit.format(fewer)} (about {format_time(plan.seconds * fewer / images)})")
    return f"That is more than an hour. Cheaper: {' or '.join(ways)}." if ways else "That is more than an hour."


def _about(estimate: Plan | Cost) -> str:
    """Return a time, and how well it is known."""
    how = "at most" if estimate.most else "roughly" if estimate.rough else "about"
    return f"{how} {format_time(estimate.seconds)}"


def _work(cost: Cost) -> str:
    if cost.queries:
        return _queries(cost)
    gradients = f"\n{cost.gradients:,} gradients" if cost.gradients else ""
    most = cost.trials + 2 * cost.images
    if cost.most:
        return f"at most {cost.forward_passes:,}{gradients}"
    if cost.forward_passes == most:
        return f"{cost.forward_passes:,}{gradients}"
    return f"about {rounded(cost.forward_passes):,}\nat most {most:,}{gradients}"


def _rate(cost: Cost) -> str:
    return f"{cost.images_per_second:,.0f}" if cost.images_per_second and not cost.queries else "–"


def _queries(cost: Cost) -> str:
    return f"at most {cost.queries:,} queries{format_cost(cost.queries, cost.price, cost.currency)}"


def _time(cost: Cost) -> str:
    return _about(cost) if cost.seconds else SERVICE_TIME


def _total(plan: Plan) -> str:
    """Return the time and the forward passes of a plan."""
    local = [cost for cost in plan.costs if not cost.queries]
    unknown = any(not cost.seconds for cost in plan.costs)
    if not plan.seconds:
        return SERVICE_TIME
    time = f"{_about(plan)}{' plus the time that services take' if unknown else ''}"
    passes = sum(cost.forward_passes for cost in local)
    exact = all(cost.forward_passes == cost.trials + 2 * cost.images for cost in local)
    return f"{time}, {passes if exact else rounded(passes):,} forward passes" if local else time


def _megabytes(plan: Plan) -> str:
    return f"{max(plan.bytes / 1e6, 0.1):,.1f} MB"


def rounded(count: int) -> int:
    """Return a count to two significant digits: an estimate is not known better."""
    digits = max(0, len(str(count)) - 2)
    return round(count, -digits)


def format_time(seconds: float) -> str:
    """Return a duration for people."""
    if seconds < 90:
        return f"{max(seconds, 1):.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h" if seconds < 172_800 else f"{seconds / 86_400:.0f} days"
