"""The geometry lens's section of the report."""

from __future__ import annotations

import math
from collections.abc import Iterator

from brinell.lenses.geometry import LENS
from brinell.lenses.geometry.findings import GeometryFindings
from brinell.lenses.geometry.rows import SCORE_LIMIT
from brinell.report.exhibits import pair_groups
from brinell.report.panels import model_colours
from brinell.report.section import Block, Cell, Figure, Gallery, Section, Table, number, share
from brinell.report.show import Context, hardness_by_operator
from brinell.runs.words import format_share


def make_section(context: Context, findings: GeometryFindings) -> Section:
    """Return the section: the smallest motions, random motions, pictures, coordinates and costs."""
    options = dict(context.options)
    if findings.against == "answer":
        options["criterion"] = "another label than on the clean image"
    blocks = [*_smallest(context, findings), *_random(context, findings), *_coordinates(findings)]
    return Section(
        question=LENS.question,
        topic="smallest motions",
        findings=findings,
        options=options,
        blocks=[*blocks, *_label_changes(context, findings), *_costs(findings)],
        galleries=[
            Gallery(
                "The smallest motions as pictures",
                "Left: the clean image, with the outline of the part that the moved image shows. Right: the moved image.",
                pair_groups(context, LENS.name, findings),
            )
        ],
        method=_method(findings),
    )


def _legend(findings: GeometryFindings) -> list[tuple[str, str]]:
    return list(model_colours(findings.models).items())


def _describe(findings: GeometryFindings, model: str, operator: str) -> str:
    """Return what motions of one group do to a model."""
    one = findings.smallest.get((model, operator))
    if one is not None:
        sizes = describe_sizes(findings, model, operator)
        fooled = f"{one.fooled} of {one.images} images change their label"
        return f"{fooled}; on average {sizes}" if sizes else fooled
    rates = findings.rates.get((model, operator))
    if not rates:
        return "not measured"
    last = rates[-1]
    return f"{format_share(last.changed)} of labels changed at score {last.score:g}"


def describe_sizes(findings: GeometryFindings, model: str, operator: str) -> str:
    """Return the mean size of each coordinate of the smallest motions, "12.1°, 3 px sideways"; empty where not known."""
    words = []
    for one in findings.shares:
        if (one.model, one.operator) == (model, operator):
            if one.coordinate == "rotation":
                words.append(f"{math.degrees(one.size):.1f}°")
            elif one.coordinate in ("x", "y"):
                words.append(f"{one.size:.1f} px {'sideways' if one.coordinate == 'x' else 'up or down'}")
            elif one.coordinate == "scale":
                words.append(f"{100 * math.expm1(one.size):.0f} % in size")
    return ", ".join(words)


def _smallest(context: Context, findings: GeometryFindings) -> Iterator[Block]:
    if not any(one.images for one in findings.smallest.values()):
        return
    from brinell.lenses.geometry.charts import invariance_bars

    yield Block(
        title="",
        figure=Figure(
            name="invariance",
            alt="Mean geodesic score of the smallest motions for each group and model, with 95 % intervals. The table "
            "below has the numbers.",
            panels=[invariance_bars(findings)],
            records=findings.table(),
            legend=_legend(findings),
        ),
        sentence="Mean geodesic score of the smallest motion that changes the label: how far the image travels, as a "
        f"share of its norm. Scores above {SCORE_LIMIT:g}, and images that no motion fools, count as {SCORE_LIMIT:g}.",
        table=hardness_by_operator(
            context, findings, lambda model, operator: _describe(findings, model, operator), what="motions"
        ),
    )


def _random(context: Context, findings: GeometryFindings) -> Iterator[Block]:
    if not findings.rates:
        return
    from brinell.lenses.geometry.charts import rate_panels

    raw = context.options.get("directions") == "raw"
    directions = (
        "in raw units, as published: one radian weighs as much as one pixel"
        if raw
        else "by each image's metric: all directions change the image equally"
    )
    records = [
        {
            "model": rate.model,
            "operator": rate.operator,
            "score": rate.score,
            "changed": rate.changed.value,
            "low": rate.changed.low,
            "high": rate.changed.high,
            "worst": rate.worst.value,
            "rejected": rate.rejected,
        }
        for rates in findings.rates.values()
        for rate in rates
    ]
    heads = ["motions", "score", *("changed", "worst of draws") * len(findings.models)]
    yield Block(
        title="Random motions" if findings.smallest else "",
        figure=Figure(
            name="random-motions",
            alt="Share of random motions that change the label over their score, one small chart for each group of "
            "motions. The table below has the numbers.",
            panels=rate_panels(findings),
            records=records,
            legend=_legend(findings),
        ),
        sentence="Share of random motions of a given score that change the label, with 95 % intervals over images. "
        f"Directions are drawn {directions}. “Worst of draws” is the share of images that at least one of "
        f"{context.options.get('draws', 'the')} draws breaks.",
        table=Table(heads, _rate_rows(findings), [("", 2), *((model, 2) for model in findings.models)]),
    )


def _rate_rows(findings: GeometryFindings) -> list[list[Cell]]:
    rows = []
    for operator in findings.operators:
        by_model = {
            model: {rate.score: rate for rate in findings.rates.get((model, operator), ())} for model in findings.models
        }
        for score in sorted({score for own in by_model.values() for score in own}):
            row = [Cell(findings.title(operator)), number(score, ".2g")]
            for model in findings.models:
                rate = by_model[model].get(score)
                row += [Cell("–")] * 2 if rate is None else [share(rate.changed), share(rate.worst)]
            rows.append(row)
    return rows


def _coordinates(findings: GeometryFindings) -> Iterator[Block]:
    if not findings.shares:
        return
    from brinell.lenses.geometry.charts import coordinate_legend, coordinate_shares

    yield Block(
        title="Which coordinates the smallest motions use",
        figure=Figure(
            name="generators",
            alt="Mean share of each coordinate in the squared change of the image, for each group and model.",
            panels=[coordinate_shares(findings)],
            records=[vars(one) for one in findings.shares],
            legend=coordinate_legend(findings),
        ),
        sentence="Mean share of each coordinate in the squared change of the image, if it acted alone.",
        folded=True,
    )


def _label_changes(context: Context, findings: GeometryFindings) -> Iterator[Block]:
    if not findings.label_changes:
        return
    rows = []
    for change in findings.label_changes:
        name = context.names[change["model"]]
        texts = (findings.title(change["operator"]), change["model"], name(change["from"]), name(change["to"]))
        rows.append([*map(Cell, texts), number(change["images"], "d")])
    heads = ["motions", "model", "clean label", "label after the motion", "images"]
    yield Block("Most common label changes", "Under the smallest motions.", table=Table(heads, rows), folded=True)


def _costs(findings: GeometryFindings) -> Iterator[Block]:
    if not findings.smallest:
        return
    heads = ["motions", "model", f"mean up to {SCORE_LIMIT:g}", "ρ̂", "median of fooled", "fooled", "not fooled", "skipped"]
    rows = []
    for operator in findings.operators:
        for model in findings.models:
            one = findings.smallest.get((model, operator))
            if one is None:
                continue
            mean = one.restricted_mean
            interval = f"{mean.low:.2f}–{mean.high:.2f}" if one.images > 1 else ""
            score = Cell(f"{mean.value:.3f}", mean.value, interval) if one.images else Cell("–")
            published = number(one.rho_hat.value if one.fooled else None, ".3f")
            counts = [number(count, "d") for count in (one.fooled, one.failed, one.skipped, one.no_answer)]
            costs = [number(one.seconds, ".2f"), number(one.queries, ".0f"), number(one.gradients, ".0f")]
            median = number(one.median if one.fooled else None, ".3f")
            rows.append([Cell(findings.title(operator)), Cell(model), score, published, median, *counts, *costs])
    yield Block(
        title="Scores, images and costs",
        sentence="ρ̂ is the paper's mean, over fooled images alone: other images for every model. Seconds, queries and "
        "gradients are per image.",
        table=Table([*heads, "no answer", "seconds", "queries", "gradients"], rows),
        folded=True,
        notes=_notes(findings),
    )


def _notes(findings: GeometryFindings) -> list[str]:
    """Return what to know about searches that found nothing, or perhaps not the smallest motion."""
    notes = []
    for one in findings.smallest.values():
        start = f"{one.model}, {findings.title(one.operator)}:"
        notes += [f"{start} {note}." for note in (one.retry_note, one.edge_note) if note]
        notes += [
            f"{start} {count} image{'s' * (count > 1)} without a motion: {reason}." for reason, count in one.reasons.items()
        ]
    return notes


def _method(findings: GeometryFindings) -> list[str]:
    counts = (
        "What counts is a change of the label, whether or not the model was right before."
        if findings.against == "answer"
        else "What counts is a wrong label; images that are wrong when clean are skipped."
    )
    return [
        "Each image was rotated, shifted, scaled, sheared or seen in perspective, as the group of motions allows. The "
        "size of a motion is its geodesic score: how much the image changes along the direct path, divided by the "
        "image's norm. " + counts,
        "ManiFool follows the gradient of the scores; Manitest searches a grid of motions by fast marching; models without "
        "gradients are searched by random motions or a fixed grid. The whole image moves; a model that sees a crop "
        "sees the crop of the moved image.",
    ]
