"""Findings as tables on a terminal."""

from __future__ import annotations

import inspect
from typing import Any

from rich.table import Table

from brinell.criteria import CRITERIA
from brinell.datasets import SOURCES as DATASETS
from brinell.engine.manifest import priced
from brinell.engine.plan import Plan
from brinell.errors import UnknownName
from brinell.geometry import GROUPS
from brinell.lenses import LENSES
from brinell.models import SOURCES as MODELS
from brinell.perturb import OPERATORS, PROPERTIES, find_operator, find_property
from brinell.registry import nearest
from brinell.results import Findings, Hardness, Knobs, Motions, Profiles, title


def summary_table(found: Findings) -> list[Any]:
    """What a lens found, as a table and a sentence for each model."""
    if isinstance(found, Motions):
        return _motion_table(found)
    return _profile_table(found) if isinstance(found, Profiles) else _knob_table(found)


def _motion_table(found: Motions) -> list[Any]:
    """The smallest motions of every group and method, and what random ones do."""
    tables: list[Any] = []
    for model in found.models:
        table = Table(title=f"\n{model}", title_justify="left", title_style="bold")
        for head in ("group", "mean score (95 %)", "fooled / not / skipped", "seconds", "queries", "gradients"):
            table.add_column(head, no_wrap=head == "group")
        for operator in found.operators:
            one = found.smallest.get((model, operator))
            if one is not None:
                counts = f"{one.fooled} / {one.failed + one.silent} / {one.skipped}"
                score = (
                    f"{one.score.value:.2f} ({one.score.low:.2f}–{one.score.high:.2f})" if one.fooled else "never fooled"
                )
                costs = (f"{one.seconds:.2f}", f"{one.queries:.0f}", f"{one.gradients:.0f}")
                table.add_row(title(operator), score, counts, *costs)
            elif (model, operator) in found.rates:
                middle = found.middle(model, operator)
                reach = "more than was tried" if middle is None else f"{middle:.2f}"
                table.add_row(title(operator), f"{found.threshold:.0%} changed at {reach}", "", "", "", "")
        tables += [table, found.verdict(model)]
    return tables


def _knob_table(found: Knobs) -> list[Any]:
    """The smallest breaking changes of every property."""
    tables: list[Any] = []
    for model in found.models:
        table = Table(title=f"\n{model}", title_justify="left", title_style="bold")
        table.add_column("property", no_wrap=True)
        table.add_column(f"mean {found.distance} (95 %)")
        table.add_column("half lost by")
        table.add_column("broken / survived / skipped / failed")
        for operator in found.operators:
            one = found.hardness.get((model, operator))
            if one is not None:
                counts = (one.broken, one.survived, one.skipped, one.failed)
                table.add_row(
                    title(operator),
                    _robustness(one) + (" *" if found.best(operator) == model else ""),
                    one.told,
                    " / ".join(map(str, counts)),
                )
        tables += [table, found.verdict(model)]
    if any(found.best(operator) for operator in found.operators):
        tables.append("* the hardest model under a property")
    if found.search == "bracket":
        tables.append("Searched by bracketing, which assumes that a model that broke stays broken when the change grows.")
    return tables


def _robustness(one: Hardness) -> str:
    """The mean smallest breaking change, with its interval where there is one."""
    if not one.broken:
        return "never broken" if one.asked else "–"
    mean = one.robustness
    return f"{mean.value:.2g}" + (f" ({mean.low:.2g}–{mean.high:.2g})" if one.broken > 1 else "")


def _profile_table(found: Profiles) -> list[Any]:
    """Areas and failure points of every operator."""
    tables: list[Any] = []
    thresholds = list(dict.fromkeys(failure.threshold for failure in found.failures))
    middle = f"first below {thresholds[len(thresholds) // 2]:.0%} at"
    for model in found.models:
        table = Table(title=f"\n{model}", title_justify="left", title_style="bold")
        precise = ("mean mAP",) if found.precision(model) else ()
        for head in ("operator", "mean accuracy", *precise, *(f"< {threshold:.0%}" for threshold in thresholds), middle):
            table.add_column(head, justify="right" if head.startswith("<") else "left")
        for operator in found.operators:
            if (model, operator) in found.areas:
                area = found.areas[model, operator]
                points = [found.failure(model, operator, threshold) for threshold in thresholds]
                levels = ["never" if point.level is None else str(point.level) for point in points]
                share = f"{area.value:.0%} ({area.low:.0%}–{area.high:.0%})"
                maps = [point.map.value for point in found.curves[model, operator] if point.map is not None]
                means = [f"{sum(maps) / len(maps):.1%}"] if maps else [""] * len(precise)
                table.add_row(title(operator), share, *means, *levels, points[len(points) // 2].told)
        tables += [table, found.verdict(model)]
    return tables


def plan_lines(plan: Plan) -> list[str]:
    """What a run would cost."""
    lines = []
    for cost in plan.costs:
        gradients = f" and {cost.gradients:,} gradients" if cost.gradients else ""
        if cost.queries:
            asked = f"at most {cost.queries:,} queries{priced(cost.queries, cost.price)}"
        else:
            asked = f"{cost.forward_passes:,} forward passes (at {cost.images_per_second or 0:,.0f}/s here){gradients}"
        about = "at most" if cost.searching else "about"
        lines.append(
            f"{cost.lens} of {cost.model}: {cost.images:,} images × {cost.operators} operators, "
            f"{'at most ' if cost.searching else ''}{cost.trials:,} trials; {asked}; "
            f"{f'{about} {_time(cost.seconds)}' if cost.images_per_second else 'as fast as the service answers'}"
        )
    services = "" if all(cost.images_per_second for cost in plan.costs) else " and the time that services take"
    most = "at most " if any(cost.searching for cost in plan.costs) else ""
    lines.append(
        f"in all: {most}{plan.forward_passes:,} forward passes, about {_time(plan.seconds)}{services}; {plan.rows:,} rows, "
        f"about {plan.bytes / 1e6:.1f} MB in {plan.folder}. Nothing was done."
    )
    return lines


def _time(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def listing(what: str) -> Table:
    """What is registered under a kind."""
    kinds = {
        "lenses": _lenses,
        "operators": _operators,
        "models": lambda: _sources(MODELS.values()),
        "datasets": lambda: _sources(DATASETS.values()),
        "criteria": _criteria,
    }
    if what not in kinds:
        raise UnknownName(f"there is nothing to list under {what!r}; {nearest(what, list(kinds))}")
    return kinds[what]()


def _table(*heads: str) -> Table:
    table = Table(show_edge=False)
    for head in heads:
        table.add_column(head, overflow="fold")
    return table


def _lenses() -> Table:
    table = _table("lens", "what it measures")
    for lens in LENSES.values():
        table.add_row(lens.name, lens.what)
    return table


def _operators() -> Table:
    table = _table("operator", "tags", "what one more level does, or more severity")
    for operator in OPERATORS.values():
        usual = find_operator(operator.name) is operator
        white = ("white box",) if operator.white_box else ()
        doc = (inspect.getdoc(operator.function) or "").splitlines()[0]
        table.add_row(operator.name if usual else f"  :{operator.semantics}", ", ".join((*operator.tags, *white)), doc)
    table.add_section()
    for one in PROPERTIES.values():
        usual = find_property(one.name) is one
        tags = ("knob lens", one.facts.category, "stochastic" if one.stochastic else "deterministic")
        doc = (inspect.getdoc(one.function) or "").splitlines()[0]
        table.add_row(one.name if usual else f"  :{one.semantics}", ", ".join(tags), doc)
    table.add_section()
    for group in GROUPS.values():
        table.add_row(group.name, "geometry lens", f"motions of {group.dimension} coordinates: {', '.join(group.parts)}")
    return table


def _sources(sources: list[Any]) -> Table:
    table = _table("form", "what it is")
    for source in sources:
        table.add_row(source.form, source.what)
    return table


def _criteria() -> Table:
    table = _table("criterion", "an answer is broken when")
    for name, maker in zip(CRITERIA, CRITERIA.values(), strict=True):
        parameters = ", ".join(str(p.name) for p in inspect.signature(maker).parameters.values())
        table.add_row(f"{name}({parameters})" if parameters else name, inspect.getdoc(maker) or "")
    return table
