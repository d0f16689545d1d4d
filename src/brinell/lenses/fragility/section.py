"""The fragility lens's section of the report."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from brinell.lenses.fragility import LENS
from brinell.lenses.fragility.exhibits import PairPicture, read_window_exhibits
from brinell.lenses.fragility.findings import HEADLINES, FragilityFindings
from brinell.lenses.fragility.names import KINDS
from brinell.lenses.fragility.photographs import make_maps
from brinell.lenses.fragility.queries import FragileShare
from brinell.report.panels import model_colours
from brinell.report.section import Block, Cell, Figure, Gallery, Picture, PictureGroup, Section, Table, number, share
from brinell.report.show import Context, format_confidence, hardness_by_operator, inline
from brinell.runs.words import format_share

FIT = {"pad": "padded with black", "own": "by the model's own preprocessing"}


def make_section(context: Context, findings: FragilityFindings) -> Section:
    """Return the section: shares of fragile windows, pairs of windows, maps, and minimal images."""
    exhibits = read_window_exhibits(context.run.store)
    blocks = [
        *_windows(context, findings),
        *_locations(context, findings),
        *_minimal(findings),
        *_positions(findings),
        *_recognised(findings),
        *_classes(context, findings),
    ]
    return Section(
        question=LENS.question,
        topic="fragile recognition",
        findings=findings,
        options=context.options,
        blocks=blocks,
        galleries=[
            Gallery(
                "Pairs of windows",
                "The windows with the largest drop in confidence, as the model saw them. Can you see the difference?",
                _pairs(context, findings, exhibits.pairs),
            )
        ],
        maps=make_maps(context, findings, exhibits.photos),
        method=_method(context, findings),
        notes=_notes(findings),
    )


def _legend(findings: FragilityFindings) -> list[tuple[str, str]]:
    return list(model_colours(findings.models).items())


def _windows(context: Context, findings: FragilityFindings) -> Iterator[Block]:
    """Yield the shares of fragile windows."""
    if not findings.windows:
        return
    from brinell.lenses.fragility.charts import kind_panels

    def describe(model: str, operator: str) -> str:
        flips = []
        for kind in HEADLINES:
            found = findings.share(model, operator, kind)
            if found is not None and found.images:
                flips.append(f"{format_share(found.share)} flip after a {kind.partition(' ')[2]}")
        return "; ".join(flips) or "not measured"

    yield Block(
        title="",
        figure=Figure(
            "fragile",
            "Share of windows that flip between right and wrong, by kind of change and size of the window. The table "
            "below has the numbers.",
            kind_panels(findings),
            findings.table(),
            _legend(findings),
        ),
        sentence="Share of windows that flip between right and wrong, the mean over images with its 95 % interval. "
        f"Shift: by one pixel, to {findings.neighbours} neighbours. Shrink: by two pixels inside the window, at nine "
        "positions. Loose: at least one of these changes flips the answer. Strict: all of them do; windows that a "
        "strict shrink makes wrong are minimal images.",
        table=hardness_by_operator(context, findings, describe, what="windows"),
    )


def _locations(context: Context, findings: FragilityFindings) -> Iterator[Block]:
    if not findings.locations:
        return
    from brinell.lenses.fragility.charts import location_curves

    found = {
        (model, operator): findings.share(model, operator, "loose shift", "label")
        for model in findings.models
        for operator in findings.locations
    }
    rows = [
        [Cell(findings.title(operator)), *(_share(found[model, operator]) for model in findings.models)]
        for operator in findings.locations
    ]
    yield Block(
        title="Shifts of the whole image" if findings.windows else "",
        figure=Figure(
            "location",
            "Share of positions of the whole image on black at which a one-pixel shift changes the label, by its size.",
            [location_curves(findings)],
            [{**vars(one), **vars(one.share)} for one in found.values() if one is not None],
            _legend(findings),
        ),
        sentence="The whole image, shrunk, at every position on black: the share of positions at which a one-pixel "
        "shift changes the label. Nothing enters or leaves the picture here: fragility of windows beyond this share is "
        "not due to position alone.",
        table=Table(["size", *findings.models], rows),
    )


def _share(found: FragileShare | None, part: str = "share") -> Cell:
    return Cell("–") if found is None or not found.images else share(getattr(found, part))


def _minimal(findings: FragilityFindings) -> Iterator[Block]:
    """Yield what the tree search found, and the smallest minimal images on the grid."""
    rows = []
    for model in findings.models:
        mine = [one for one in findings.minimal if one.model == model]
        if mine:
            some = [one for one in mine if one.windows]
            smallest = min((one.windows[0][0] for one in some), default=None)
            each = sum(len(one.windows) for one in mine) / len(mine)
            queries = sum(one.queries for one in mine) / len(mine)
            counts = [number(len(mine), "d"), number(len(mine) - len(some), "d"), number(each, ".1f")]
            rows.append([Cell(model), *counts, number(smallest, "d", "px"), number(queries, ".0f")])
    heads = ["model", "images", "without any", "minimal images per image", "smallest side", "queries per image"]
    if rows:
        cut = (
            [] if all(one.complete for one in findings.minimal) else ["Not all branches were searched: there may be more."]
        )
        sentence = (
            "Found by a tree search from the largest windows down, which follows smaller windows as long as they are "
            "recognised. The photographs above show them (map “minimal images”)."
        )
        yield Block("Minimal images", sentence, table=Table(heads, rows), notes=cut)


def _positions(findings: FragilityFindings) -> Iterator[Block]:
    """Yield in which direction windows flip, and whether they lie on the object."""
    parts = {
        "right → wrong": "lost",
        "wrong → right": "gained",
        "flips on the object": "inside",
        "flips off the object": "outside",
    }
    rows = []
    for operator in findings.windows:
        for kind in KINDS:
            for name, part in parts.items():
                cells = [_share(findings.share(model, operator, kind), part) for model in findings.models]
                if any(cell.sort is not None for cell in cells):
                    rows.append([Cell(name), Cell(findings.title(operator)), Cell(kind), *cells])
    if rows:
        sentence = (
            "Windows that become wrong and that become right; and, where the object's box is known, the share of "
            "fragile windows among those with their centre on the object and among the others."
        )
        table = Table(["what", "windows", "kind", *findings.models], rows)
        yield Block("Direction and position", sentence, table=table, folded=True)


def _recognised(findings: FragilityFindings) -> Iterator[Block]:
    if not findings.windows:
        return
    rows = [
        [
            Cell(findings.title(operator)),
            *(_share(findings.share(model, operator, "loose shrink"), "recognised") for model in findings.models),
        ]
        for operator in findings.windows
    ]
    notes = []
    for model in findings.models:
        sides = [side for (own, _), side in findings.smallest.items() if own == model]
        if sides:
            images = f"in {len(sides)} image{'s' * (len(sides) != 1)}"
            notes.append(
                f"Smallest minimal image of {model} among these windows: {min(sides)} px (minimal images {images})."
            )
    sentence = "How much of an image a model needs: the share of windows that are right, by their size."
    yield Block("Recognised windows", sentence, table=Table(["windows", *findings.models], rows), folded=True, notes=notes)


def _classes(context: Context, findings: FragilityFindings) -> Iterator[Block]:
    if not findings.windows or not findings.by_class:
        return
    from brinell.lenses.fragility.charts import class_records

    records = class_records(findings, context.names)
    rows = [[Cell(one["class"]), Cell(one["model"]), Cell(f"{one['share']:.1%}", one["share"])] for one in records]
    table = Table(["class", "model", "fragile windows (loose shift)"], rows)
    yield Block("By class", "The mean over sizes, for the classes with the most.", table=table, folded=True)


def _pairs(context: Context, findings: FragilityFindings, pairs: Sequence[PairPicture]) -> list[PictureGroup]:
    """Return the pairs of windows with their activations, by model, size and move."""
    groups = []
    for model in findings.models:
        for operator in findings.operators:
            for move in ("shift", "shrink"):
                own = [pair for pair in pairs if (pair.model, pair.operator, pair.move) == (model, operator, move)]
                if own:
                    title = f"{findings.title(operator)}, {move}"
                    groups.append(PictureGroup(model, operator, title, [_pair(context, pair) for pair in own]))
    return groups


def _pair(context: Context, pair: PairPicture) -> Picture:
    run, name, first, second = context.run, context.names[pair.model], pair.first, pair.second
    probabilities = f"{_percent(first.probability)} → {_percent(second.probability)}"
    lines = [f"probability of {name(pair.label)}: {probabilities}"]
    if pair.reason:
        lines.append(f"broken: {pair.reason}")
    return Picture(
        source=inline(run, second.file, second.marks),
        heading=pair.caption,
        lines=tuple(lines),
        correct=False,
        clean_source=inline(run, first.file, first.marks),
        boxed=bool(first.marks or second.marks),
        before=f"{name(first.prediction)}{format_confidence(first.confidence)}",
        after=f"{name(second.prediction)}{format_confidence(second.confidence)}",
        image=context.image_name(pair.image),
        tag=pair.tag,
        more=tuple(
            (f"activations of {layer}", inline(run, before), inline(run, after)) for layer, before, after in pair.layers
        ),
    )


def _percent(probability: float | None) -> str:
    return "–" if probability is None else f"{probability:.0%}"


def _method(context: Context, findings: FragilityFindings) -> list[str]:
    paragraphs = []
    if findings.windows:
        fit = context.options.get("fit", "")
        paragraphs.append(
            "Every square window of a size was cut out of each photograph at its original resolution and brought to "
            f"the model's input size ({FIT.get(fit, f'{fit} resizing')}), and so was every window that is two pixels "
            "smaller. A window is fragile if a change that people don't notice flips the answer: a shift by one pixel, "
            "or a shrink by two. P is a window's side as a share of the image's shorter side."
        )
    if findings.locations:
        paragraphs.append(
            "For locations, each photograph was shrunk to a square and put at every position on a black model input."
        )
    return paragraphs


def _notes(findings: FragilityFindings) -> list[str]:
    notes = []
    if findings.sampled:
        unknown = "; the smallest minimal image of a photograph is not reported" if findings.budget < 1 else ""
        notes.append(
            f"{findings.sampled} was judged, each against all its one-pixel neighbours. Shares are estimates for all "
            "windows. Nothing is known about the windows in between: maps are coarse, and larger drops and smaller minimal "
            f"images may exist there{unknown}."
        )
    notes += [f"Images too small for {findings.title(name)}: {count}." for name, count in findings.too_small.items()]
    return notes
