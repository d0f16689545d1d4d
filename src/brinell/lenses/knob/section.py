"""The knob lens's section of the report."""

from __future__ import annotations

from brinell.lenses.knob import LENS
from brinell.lenses.knob.breaks import Hardness, compute_amount_curves
from brinell.lenses.knob.findings import KnobFindings
from brinell.report.exhibits import pair_groups
from brinell.report.panels import model_colours
from brinell.report.section import Block, Cell, Figure, Gallery, Section, Table, number, share
from brinell.report.show import Context, hardness_by_operator, lazy_chart

robustness_bars = lazy_chart("brinell.lenses.knob.charts:robustness_bars")


def make_section(context: Context, findings: KnobFindings) -> Section:
    """Return the section: the share of images that each amount breaks, the smallest breaking changes, and distances."""
    return Section(
        question=LENS.question,
        topic="smallest breaking changes",
        findings=findings,
        options=context.options,
        blocks=[_amounts(context, findings), _distances(findings), _counts(findings)],
        galleries=[
            Gallery(
                "The smallest changes that break it",
                "For each property, the image that the smallest change breaks.",
                pair_groups(context, LENS.name, findings),
            )
        ],
        method=_method(context, findings),
    )


def _amounts(context: Context, findings: KnobFindings) -> Block:
    from brinell.lenses.knob.charts import amount_panels  # altair is slow to import, and a table needs none

    def describe(model: str, operator: str) -> str:
        one = findings.hardness.get((model, operator))
        if one is None:
            return "not measured"
        known = any(amount is not None for amount in one.median.values())
        return f"half break at {one.half_broken_at}" if known else one.half_broken_at

    curves = compute_amount_curves(context.run)
    names = ", ".join(findings.title(operator) for operator in findings.operators)
    return Block(
        title="",
        figure=Figure(
            name="broken-by-amount",
            alt=f"Share of images that break up to each amount of {names}: one small chart for each. The table below "
            "has the amounts at which half of the images are broken.",
            panels=amount_panels(findings, curves),
            records=[{**record, "title": findings.title(record["operator"])} for record in curves],
            legend=list(model_colours(findings.models).items()),
        ),
        sentence="Share of images that a change of this amount, or a smaller one, breaks. The later a line rises, the "
        "harder the model.",
        table=hardness_by_operator(context, findings, describe, what="property", best=findings.best_model),
    )


def _distances(findings: KnobFindings) -> Block:
    return Block(
        title=f"The same as distances ({findings.distance})",
        figure=Figure(
            name="robustness",
            alt="Mean distance of the smallest breaking changes from the clean image for each property and model, with "
            "95 % intervals. The table below has the numbers.",
            panels=[robustness_bars(findings)],
            records=findings.table(),
            legend=_legend(findings),
        ),
        sentence="Mean distance of the smallest breaking changes from the clean image, over the images that broke, "
        "with 95 % intervals. T is the mean over all models: a common threshold, below which changes break the given "
        "share of images.",
        table=Table(
            ["property", *("mean", "T", "broken below T") * len(findings.models)],
            [
                [
                    Cell(findings.title(operator)),
                    *(cell for model in findings.models for cell in _row(findings, model, operator)),
                ]
                for operator in findings.operators
            ],
            [("", 1), *((model, 3) for model in findings.models)],
        ),
        folded=True,
    )


def _legend(findings: KnobFindings) -> list[tuple[str, str]]:
    return list(model_colours(findings.models).items())


def _row(findings: KnobFindings, model: str, operator: str) -> list[Cell]:
    one = findings.hardness.get((model, operator))
    if one is None:
        return [Cell("–")] * 3
    return [_mean(one), number(one.threshold, ".2e"), share(one.fooled)]


def _mean(one: Hardness) -> Cell:
    if not one.broken:
        return Cell("never broken" if one.tested else "–")
    value = one.robustness
    interval = f"{value.low:.1e} – {value.high:.1e}" if one.broken > 1 else ""
    return Cell(f"{value.value:.2e}", value.value, interval)


def _counts(findings: KnobFindings) -> Block:
    whole = findings.search == "bands"
    heads = ["property", "model", "broken", "survived", "skipped", "failed", "queries per image", *["recover"] * whole]
    rows = []
    for operator in findings.operators:
        for model in findings.models:
            one = findings.hardness.get((model, operator))
            if one is not None:
                counts = [number(count, "d") for count in (one.broken, one.survived, one.skipped, one.failed)]
                row = [Cell(findings.title(operator)), Cell(model), *counts, number(one.queries, ".0f")]
                rows.append([*row, share(one.non_monotone) if one.non_monotone else Cell("–")] if whole else row)
    note = (
        "Skipped: wrong, or broken by the criterion, when clean. Survived: no point of the grid breaks it. Failed: the "
        "model returned no answer."
    )
    if whole:
        note += " Recover: share of images that are right again under a stronger change than one that breaks them."
    return Block("Images and queries", note, table=Table(heads, rows), folded=True)


def _method(context: Context, findings: KnobFindings) -> list[str]:
    how = {
        "exact": "The search tried a fine grid in increasing order, in both directions where a property has two, and "
        "stopped at the first point that breaks the model.",
        "bracket": "The search used doubling, bisection and a few further probes, which needs few queries. Where the model "
        "recovers as the change grows, a smaller breaking change may exist, and an image that survives may break "
        "somewhere.",
    }
    random = (
        "Random properties were drawn afresh at every grid point, as in the paper: the result is the first draw that "
        "breaks the model, and a finer grid has more draws."
        if findings.resample
        else "A random property has one random field per image, which is scaled: the result is the smallest strength "
        "at which this field breaks the model."
    )
    paragraphs = [
        "Each image was resized to the model's input size. Then one property of the scene (light, motion, blur, noise, "
        "weather) was changed step by step until the model broke.",
        how.get(findings.search, "The whole grid was queried, so every interval in which the model fails is known."),
        random,
    ]
    if findings.rounding == "none":
        paragraphs.append(
            "The model was queried with float images, as in the paper; cameras and files give whole grey levels, to "
            "which the pictures here are rounded."
        )
    return paragraphs
