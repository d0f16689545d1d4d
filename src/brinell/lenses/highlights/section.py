"""The highlights lens's section of the report."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from brinell.lenses.highlights import LENS
from brinell.lenses.highlights.findings import HighlightFindings
from brinell.lenses.highlights.glare import Glare, sigma_names
from brinell.lenses.highlights.light import LeastLight
from brinell.report.exhibits import pair_groups
from brinell.report.panels import model_colours
from brinell.report.section import Block, Cell, Figure, Gallery, Section, Table, number, share
from brinell.report.show import Context

SAMPLED = (
    "Each image was queried about a sample of its spots, so S ≥ k, the number of failing variants and the images that "
    "break with the least light are not shown: they need all spots of an image."
)


def make_section(context: Context, findings: HighlightFindings) -> Section:
    """Return the section: accuracies, the images that break with the least light, sizes and positions."""
    blocks = [*(block for operator in findings.grids for block in _grid(context, findings, operator)), *_search(findings)]
    return Section(
        question=LENS.question,
        topic="highlights",
        findings=findings,
        options=context.options,
        blocks=blocks,
        galleries=[
            Gallery(
                "Images that a spot of light breaks",
                "The images that break with the least light.",
                pair_groups(context, LENS.name, findings),
            )
        ],
        method=_method(context, findings),
        notes=[SAMPLED] if any(one.sampled for one in findings.glare.values()) else [],
    )


def _legend(findings: HighlightFindings) -> list[tuple[str, str]]:
    return list(model_colours(findings.models).items())


def _grid(context: Context, findings: HighlightFindings, operator: str) -> Iterator[Block]:
    """Yield accuracies under a grid of spots, then which sizes and positions break."""
    from brinell.lenses.highlights import charts

    several = len(findings.grids) > 1
    under = f" under {context.run.title(operator)}" if several else ""
    results, suffix = findings.of_grid(operator), f"-{operator.replace(':', '-')}" if several else ""
    figures = charts.accuracies(results[0])
    legend = _legend(findings)
    records = [
        {"model": one.model, "figure": name, **vars(value)}
        for one in results
        for name, value in charts.accuracies(one).items()
    ]
    rows = [[Cell(name), *(share(charts.accuracies(one)[name]) for one in results)] for name in figures]
    rows += [[Cell(f"{name}, original right"), *cells] for name, cells in _over_right(results)]
    rows.append([Cell("failing variants"), *(_failing(one) for one in results)])
    yield Block(
        title=f"Accuracy{under}" if several else "",
        figure=Figure(
            f"highlight-accuracy{suffix}",
            "Accuracy on originals and on images with a spot of light, for each model, with 95 % intervals. The table "
            "below has the numbers.",
            [charts.accuracy_bars(findings, operator)],
            records,
            legend,
        ),
        sentence="“S-average” is the share of all variants that are right. “S ≥ k” counts an image as failed once k of "
        "its variants fail, or if its original is wrong; “original right” leaves out images whose original is wrong.",
        table=Table(["accuracy", *(one.model for one in results)], rows),
    )
    yield Block(
        title=f"Which positions break the model{under}",
        figure=Figure(
            f"highlight-cells{suffix}",
            "Share of spots in each cell of the image that break an image whose original is right, as a map for each "
            "model.",
            charts.cell_panels(findings, operator),
            [{"model": one.model, "cell": cell, "rate": rate} for one in results for cell, rate in enumerate(one.cells)],
        ),
        sentence="Share of spots in each cell that break an image whose original is right.",
    )
    yield _sizes(findings, operator, under, suffix)
    yield from _location(findings, operator, under, suffix)


def _over_right(results: list[Glare]) -> list[tuple[str, list[Cell]]]:
    return [(f"S ≥ {k}", [share(one.over_right[k]) for one in results]) for k in results[0].over_right]


def _failing(one: Glare) -> Cell:
    if one.sampled:
        return Cell("–")
    each = f"{one.failing_per_image.value:.1f} each" if one.failing else ""
    return Cell(f"{one.failing} in {one.failing_images} image{'s' * (one.failing_images != 1)}", one.failing, each)


def _sizes(findings: HighlightFindings, operator: str, under: str, suffix: str) -> Block:
    from brinell.lenses.highlights.charts import size_bars

    results = findings.of_grid(operator)
    names = [size.sigma for size in results[0].sizes]
    any_model = findings.any_model.get(operator)
    sentence = "Share of spots of each size that break an image whose original is right."
    if any_model is not None:
        shares = ", ".join(f"{value:.1%} have a σ of {sigma}" for sigma, value in any_model.share_by_sigma.items())
        sentence += f" Of the {any_model.variants} variants that break at least one model, {shares}."
    return Block(
        title=f"Which sizes break the model{under}",
        figure=Figure(
            f"highlight-sizes{suffix}",
            f"Share of spots that break, by their size ({', '.join(names)}), for each model.",
            [size_bars(findings, operator)],
            [{"model": one.model, "sigma": size.sigma, **vars(size.rate)} for one in results for size in one.sizes],
            _legend(findings),
        ),
        sentence=sentence,
        table=Table(
            ["σ", *(one.model for one in results)],
            [[Cell(name), *(share(one.sizes[index].rate) for one in results)] for index, name in enumerate(names)],
        ),
    )


def _location(findings: HighlightFindings, operator: str, under: str, suffix: str) -> Iterator[Block]:
    located = [one for one in findings.of_grid(operator) if one.location is not None and one.failing]
    if not located:
        return
    from brinell.lenses.highlights.charts import location_bars

    heads = ["model", "images with a box", "failing spots inside", "all spots inside", "break inside", "break outside"]
    rows = []
    for one in located:
        assert one.location is not None
        where = one.location
        shares = [share(value) for value in (where.failing, where.all, where.inside, where.outside)]
        rows.append([Cell(one.model), number(where.images, "d"), *shares])
    yield Block(
        title=f"On and off the object{under}",
        figure=Figure(
            f"highlight-location{suffix}",
            "Share of failing spots inside the object's box (bars) and of all spots (ticks), for each model.",
            [location_bars(findings, operator)],
            [
                {"model": one.model, **vars(one.location.failing), "all": one.location.all.value}
                for one in located
                if one.location
            ],
            _legend(findings),
        ),
        sentence="Share of failing spots whose centre lies inside a box of the object's class (bars), and the same for "
        "all spots (ticks). If the position did not matter, both would be equal.",
        table=Table(heads, rows),
    )


def _search(findings: HighlightFindings) -> Iterator[Block]:
    if not findings.least:
        return
    searched = [findings.least[model] for model in findings.models if model in findings.least]
    lines: list[tuple[str, Callable[[LeastLight], Cell]]] = [
        ("mean light, grey levels per pixel", _light),
        ("median light", lambda one: number(one.median, ".2g")),
        ("median σ of the spot", lambda one: number(one.sigma, ".3g", "px")),
        ("images that no spot broke", lambda one: share(one.survived_share)),
        ("broken / survived / skipped / failed", _counts),
        ("queries per image", lambda one: number(one.queries, ".0f")),
    ]
    yield Block(
        title="The least light that breaks an image" if findings.grids else "",
        sentence="The faintest spot that breaks each image, searched over all positions and all sizes up to the "
        "largest σ. Light is the mean number of grey levels that the spot adds per pixel of the model input. The "
        "result is an upper bound: fainter spots may exist.",
        table=Table(
            ["search", *(one.model for one in searched)],
            [[Cell(name), *(cell(one) for one in searched)] for name, cell in lines],
        ),
    )


def _light(one: LeastLight) -> Cell:
    interval = f"{one.light.low:.2g}–{one.light.high:.2g}" if one.broken > 1 else ""
    return Cell(f"{one.light.value:.2g}", one.light.value, interval) if one.broken else Cell("–")


def _counts(one: LeastLight) -> Cell:
    return Cell(" / ".join(map(str, (one.broken, one.survived, one.skipped, one.failed))))


def _method(context: Context, findings: HighlightFindings) -> list[str]:
    options, sigmas = context.options, sigma_names(context.run, context.options)
    brightest = max(options["colour"]) * options["strength"]
    paragraphs = [
        f"A spot of light is a Gaussian that adds up to {brightest:.0f} grey levels and saturates at white. It was "
        "added to each photograph at full resolution, before the model's own preprocessing."
    ]
    if findings.grids:
        side, cells, count = " of the shorter side" if "%" in sigmas[0] else "", options["cells"], len(options["sigmas"])
        paragraphs.append(
            f"Every cell of a {cells} × {cells} grid got a spot of each of {count} sizes (σ of {', '.join(sigmas)}{side}): "
            f"{cells**2 * count} variants of each image."
        )
    return paragraphs
