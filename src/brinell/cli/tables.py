"""Findings as tables on a terminal."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from rich.table import Table

from brinell.criteria.criterion import CRITERIA
from brinell.datasets.sources import SOURCES as DATASETS
from brinell.engine.manifest import priced
from brinell.engine.plan import Plan
from brinell.errors import UnknownName
from brinell.lenses.analysis import Findings
from brinell.lenses.fragility.findings import Fragility, Share
from brinell.lenses.fragility.fragile import KINDS
from brinell.lenses.fragility.human import Comparison
from brinell.lenses.fragility.lens import LOOKS
from brinell.lenses.geometry.findings import Motions
from brinell.lenses.highlights.findings import Highlights
from brinell.lenses.highlights.lens import HIGHLIGHT_VARIANTS
from brinell.lenses.knob.findings import Hardness, Knobs
from brinell.lenses.lens import LENSES
from brinell.lenses.photographs.findings import Photographs
from brinell.lenses.profile.findings import Profiles
from brinell.models.sources import SOURCES as MODELS
from brinell.motion.names import GROUP_FACTS
from brinell.perturb.operator import OPERATORS, find_operator
from brinell.perturb.property import PROPERTIES, find_property
from brinell.registry import nearest
from brinell.runs.names import title
from brinell.saliency.findings import Attention


def summary_table(found: Findings) -> list[Any]:
    """What a lens found, as a table and a sentence for each model."""
    return _TABLES[type(found)](found)


def _fragility_table(found: Fragility) -> list[Any]:
    """Shares of fragile windows, size by size."""
    tables: list[Any] = []
    for model in found.models:
        table = Table(title=f"\n{model}", title_justify="left", title_style="bold")
        table.add_column("windows", no_wrap=True)
        for kind in KINDS:
            table.add_column(f"{kind} (95 %)", justify="right", overflow="fold")
        table.add_column("recognised", justify="right")
        table.add_column("images", justify="right")
        for operator in found.operators:
            shares = [found.share(model, operator, kind) for kind in KINDS]
            one = next((share for share in shares if share is not None), None)
            if one is not None:
                recognised = f"{one.recognised.value:.1%}" if one.images else "–"
                table.add_row(title(operator), *map(_share, shares), recognised, str(one.images))
        tables += [*([table] if table.row_count else []), found.verdict(model)]
    if found.stride > 1:
        tables.append(
            f"One window in {found.stride}² was judged, by its neighbours one pixel away; the others are not seen."
        )
    tables += [f"{count} images are too small for {title(operator)}." for operator, count in found.too_small.items()]
    return tables


def _share(one: Share | None) -> str:
    if one is None or not one.images:
        return "–"
    interval = f" ({one.share.low:.1%}–{one.share.high:.1%})" if one.images > 1 else ""
    return f"{one.share.value:.2%}{interval}"


def comparison_table(found: dict[str, list[Comparison]]) -> list[Any]:
    """People's minimal images beside a model's."""
    tables: list[Any] = []
    for model, images in found.items():
        table = Table(title=f"\n{model}", title_justify="left", title_style="bold")
        for head in ("image", "people's", "the model's", "IoU of places", "IoU of areas"):
            table.add_column(head, justify="left" if head == "image" else "right")
        for one in images:
            table.add_row(one.image, str(one.people), str(one.model), _number(one.places), _number(one.area))
        people, own = (sum(getattr(one, name) for one in images) / len(images) for name in ("people", "model"))
        tables += [table, f"{people:.1f} minimal images an image for people, {own:.1f} for {model}."]
    return tables


def _number(value: float) -> str:
    return "–" if value != value else f"{value:.1%}"


def _highlight_table(found: Highlights) -> list[Any]:
    """Accuracy with and without spots of light, by how many variants may fail; and the least light."""
    tables: list[Any] = []
    for operator in found.grids:
        own = [one for model in found.models for one in [found.glare.get((model, operator))] if one is not None]
        table = Table(title=f"\n{title(operator)}", title_justify="left", title_style="bold")
        counts = list(own[0].at_least)
        for head in ("model", "top-1", "S-average", *(f"S ≥ {k}" for k in counts), *(f"S ≥ {k}*" for k in counts)):
            table.add_column(head)
        table.add_column("failing", no_wrap=True)
        for one in own:
            figures = [one.top1, one.average, *one.at_least.values(), *one.over_right.values()]
            shares = (f"{each.value:.1%}\n{100 * each.low:.0f}–{100 * each.high:.0f}" for each in figures)
            table.add_row(one.model, *shares, f"{one.failing} of\n{one.failing_images} images")
        tables += [table, "* over images whose original is right"]
    if found.least:
        table = Table(title=f"\n{title('highlight:least')}", title_justify="left", title_style="bold")
        for head in (
            "model",
            "mean light, grey levels (95 %)",
            "median",
            "broken / survived / skipped / failed",
            "queries",
        ):
            table.add_column(head)
        for least in found.least.values():
            light = f"{least.light.value:.2g} ({least.light.low:.2g}–{least.light.high:.2g})" if least.broken else "–"
            median = "–" if least.middle is None else f"{least.middle:.2g}"
            counted = " / ".join(map(str, (least.broken, least.survived, least.skipped, least.failed)))
            table.add_row(least.model, light, median, counted, f"{least.queries:.0f}")
        tables.append(table)
    return [*tables, *(found.verdict(model) for model in found.models)]


def _photograph_table(found: Photographs) -> list[Any]:
    """Accuracy on originals and their variants."""
    table = Table(title="\nphotographed variants", title_justify="left", title_style="bold")
    counts = list(next(iter(found.scenes.values())).at_least)
    heads = ("model", "scenes", "top-1", "S-average", *(f"S ≥ {k}" for k in counts), *(f"S ≥ {k}*" for k in counts))
    for head in heads:
        table.add_column(head)
    for model in found.models:
        one = found.scenes[model]
        figures = [one.top1, one.average, *one.at_least.values(), *one.over_right.values()]
        shares = (f"{each.value:.1%}\n{100 * each.low:.0f}–{100 * each.high:.0f}" for each in figures)
        table.add_row(model, str(one.scenes), *shares)
    return [table, "* over scenes whose original is right", *(found.verdict(model) for model in found.models)]


def _attention_table(found: Attention) -> list[Any]:
    """How often attention moved, where the model fails and where it doesn't."""
    table = Table(title="\nattention", title_justify="left", title_style="bold")
    for head in ("model", "under", "fails", "pairs", "moved", "moved (equal cells)", "overlap", "distance"):
        table.add_column(head)
    for one in found.moves:
        shares = [f"{each.value:.0%} ({each.low:.0%}–{each.high:.0%})" for each in (one.moved, one.equal_moved)]
        failed = "yes" if one.failed else "no"
        means = (f"{one.overlap.value:.2f}", f"{one.distance.value:.3f}")
        table.add_row(one.model, title(one.operator), failed, str(one.pairs), *shares, *means)
    return [table, *(found.verdict(model) for model in found.models)]


def _motion_table(found: Motions) -> list[Any]:
    """The smallest motions of every group and method, and what random ones do."""
    tables: list[Any] = []
    for model in found.models:
        table = Table(title=f"\n{model}", title_justify="left", title_style="bold")
        for head in ("group", "mean score (95 %)", "fooled / not / skipped", "seconds", "queries", "gradients"):
            table.add_column(head, no_wrap=head == "group", overflow="fold")
        for operator in found.operators:
            one = found.smallest.get((model, operator))
            if one is not None:
                counts = f"{one.fooled} / {one.failed + one.silent} / {one.skipped}"
                interval = f" ({one.score.low:.2f}–{one.score.high:.2f})" if one.fooled > 1 else ""
                score = f"{one.score.value:.2f}{interval}" if one.fooled else "never fooled"
                costs = (f"{one.seconds:.2f}", f"{one.queries:.0f}", f"{one.gradients:.0f}")
                table.add_row(title(operator), score, counts, *costs)
            elif (model, operator) in found.rates:
                middle = found.middle(model, operator)
                reach = "more than was tried" if middle is None else f"{middle:.2f}"
                table.add_row(title(operator), f"{found.threshold:.0%} changed at {reach}", "", "", "", "")
        own = [one for one in found.smallest.values() if one.model == model and one.again]
        tries = [f"{title(one.operator)}: {one.tries}." for one in own]
        tables += [table, *tries, found.verdict(model)]
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


_TABLES: dict[type[Findings], Callable[[Any], list[Any]]] = {
    Profiles: _profile_table,
    Knobs: _knob_table,
    Fragility: _fragility_table,
    Highlights: _highlight_table,
    Photographs: _photograph_table,
    Motions: _motion_table,
    Attention: _attention_table,
}


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
        table.add_row(operator.name if usual else f"  :{operator.variant}", ", ".join((*operator.tags, *white)), doc)
    table.add_section()
    for name, what in LOOKS.items():
        table.add_row(name, "fragility lens", what)
    table.add_section()
    for one in PROPERTIES.values():
        usual = find_property(one.name) is one
        tags = ("knob lens", one.facts.category, "stochastic" if one.stochastic else "deterministic")
        doc = (inspect.getdoc(one.function) or "").splitlines()[0]
        table.add_row(one.name if usual else f"  :{one.variant}", ", ".join(tags), doc)
    table.add_section()
    for name, what in HIGHLIGHT_VARIANTS.items():
        table.add_row(name, "highlight lens, deterministic", what)
    for group in GROUP_FACTS.values():
        table.add_row(group.name, "geometry lens", f"motions of {group.dimension} coordinates: {', '.join(group.parts)}")
    return table


def _sources(sources: list[Any]) -> Table:
    table = _table("form", "what it is")
    for source in sources:
        table.add_row(source.form, source.description)
    return table


def _criteria() -> Table:
    table = _table("criterion", "an answer is broken when")
    for name, maker in zip(CRITERIA, CRITERIA.values(), strict=True):
        parameters = ", ".join(str(p.name) for p in inspect.signature(maker).parameters.values())
        table.add_row(f"{name}({parameters})" if parameters else name, inspect.getdoc(maker) or "")
    return table
