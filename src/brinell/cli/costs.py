"""The estimate of a run's cost, in words."""

from __future__ import annotations

from brinell.engine.plan import Cost, Plan
from brinell.runs.queries import format_cost


def plan_lines(plan: Plan) -> list[str]:
    """Return a line per lens and model, and the total."""
    lines = [_line(cost) for cost in plan.costs]
    services = "" if all(cost.images_per_second for cost in plan.costs) else " plus the time that services take"
    most = "at most " if any(cost.searching for cost in plan.costs) else ""
    lines.append(
        f"total: {most}{plan.forward_passes:,} forward passes, about {format_time(plan.seconds)}{services}; {plan.rows:,} "
        f"rows, about {plan.bytes / 1e6:.1f} MB in {plan.folder}. Nothing was run."
    )
    return lines


def _line(cost: Cost) -> str:
    most = "at most " if cost.searching else ""
    if cost.queries:
        work = f"at most {cost.queries:,} queries{format_cost(cost.queries, cost.price)}"
    else:
        gradients = f" and {cost.gradients:,} gradients" if cost.gradients else ""
        work = f"{cost.forward_passes:,} forward passes (at {cost.images_per_second or 0:,.0f}/s here){gradients}"
    about = most or "about "
    time = f"{about}{format_time(cost.seconds)}" if cost.images_per_second else "as fast as the service answers"
    return (
        f"{cost.lens}, {cost.model}: {cost.images:,} images × {cost.operators} operators, {most}{cost.trials:,} trials; "
        f"{work}; {time}"
    )


def format_time(seconds: float) -> str:
    """Return a duration for people."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
