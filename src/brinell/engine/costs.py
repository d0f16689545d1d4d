"""The estimate of a run's cost, in words."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass

from brinell.engine.plan import Cost, Plan, plan, plan_run
from brinell.engine.setup import RunSetup
from brinell.errors import BrinellError
from brinell.run_config import RunConfig
from brinell.runs.queries import format_cost

HOUR = 3600.0  # seconds; longer runs are not started without a warning
SERVICE_TIME = "as long as the service takes"


def plan_lines(plan: Plan) -> list[str]:
    """Return a line per lens and model, and the total."""
    rows = f"{plan.rows:,} rows, about {_megabytes(plan)} in {plan.folder}"
    return [*(_line(cost) for cost in plan.costs), f"total: {_total(plan)}; {rows}. Nothing was run."]


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
        shorter = plan(RunSetup(quick(), setup.models, setup.dataset), known=estimate)
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


def _about(plan: Plan) -> str:
    return f"{'at most' if plan.most else 'about'} {format_time(plan.seconds)}"


def _line(cost: Cost) -> str:
    operators = f"{cost.operators} operator{'s' if cost.operators != 1 else ''}"
    images = f"{cost.images:,} image{'s' if cost.images != 1 else ''}"
    return f"{cost.lens}, {cost.model}: {images} × {operators}; {_work(cost)}; {_time(cost)}"


def _work(cost: Cost) -> str:
    if cost.queries:
        return _queries(cost)
    gradients = f" and {cost.gradients:,} gradients" if cost.gradients else ""
    rate = f"at {cost.images_per_second:,.0f}/s here" if cost.images_per_second else ""
    most = cost.trials + 2 * cost.images
    if cost.most:
        return f"at most {cost.forward_passes:,} forward passes ({rate}){gradients}"
    if cost.forward_passes == most:
        return f"{cost.forward_passes:,} forward passes ({rate}){gradients}"
    return f"about {rounded(cost.forward_passes):,} forward passes ({rate}; at most {most:,}){gradients}"


def _queries(cost: Cost) -> str:
    return f"at most {cost.queries:,} queries{format_cost(cost.queries, cost.price, cost.currency)}"


def _time(cost: Cost) -> str:
    if not cost.seconds:
        return SERVICE_TIME
    return f"{'at most' if cost.most else 'about'} {format_time(cost.seconds)}"


def _total(plan: Plan) -> str:
    """Return the time and the forward passes of a plan."""
    local = [cost for cost in plan.costs if not cost.queries]
    unknown = any(not cost.seconds for cost in plan.costs)
    if not plan.seconds:
        return SERVICE_TIME
    about = "at most" if plan.most else "about"
    time = f"{about} {format_time(plan.seconds)}{' plus the time that services take' if unknown else ''}"
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
