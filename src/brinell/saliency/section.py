"""The section about saliency of the report."""

from __future__ import annotations

from collections.abc import Iterator

from brinell.report.section import Block, Cell, Figure, Gallery, Picture, PictureGroup, Section, Table, number, share
from brinell.report.show import Context, inline, to_source
from brinell.saliency import ANALYSIS
from brinell.saliency.findings import SaliencyFindings
from brinell.saliency.pairs import SaliencyPair, read_pairs
from brinell.saliency.sheets import draw_boxes

_METHODS = {
    "auto": "Grad-CAM++ (for detectors, ODAM)",
    "gradcam++": "Grad-CAM++",
    "gradcam": "Grad-CAM",
    "odam": "ODAM",
}


def make_section(context: Context, findings: SaliencyFindings) -> Section:
    """Return how often saliency shifts, and pairs of maps."""
    return Section(
        question=ANALYSIS.question,
        topic="saliency",
        findings=findings,
        options={"criterion": "", **findings.options},
        blocks=list(_shifts(findings)),
        galleries=[
            Gallery(
                "Saliency before and after",
                "Top row: the image before the change. Bottom row: the changed image, which the model gets wrong. From "
                "left to right: the image, its saliency map, and its hot pixels with the hottest cell.",
                _pictures(context, findings),
                pairs=False,
                wide=True,
            )
        ],
        method=_method(findings),
    )


def _pictures(context: Context, findings: SaliencyFindings) -> list[PictureGroup]:
    groups: dict[tuple[str, str], list[Picture]] = {}
    for pair in read_pairs(context.run):
        if pair.model in findings.models:
            groups.setdefault((pair.model, pair.operator), []).append(_picture(context, findings, pair))
    return [
        PictureGroup(model, operator, findings.titles.get(operator, operator), own)
        for (model, operator), own in groups.items()
    ]


def _picture(context: Context, findings: SaliencyFindings, pair: SaliencyPair) -> Picture:
    name, boxed = context.names[pair.model], bool(pair.marks or pair.clean_marks)
    if boxed:
        sheet = context.run.store.read(*pair.file.split("/"))
        source = to_source(draw_boxes(sheet, (pair.clean_marks, pair.marks)))
    else:
        source = inline(context.run, pair.file)
    return Picture(
        source=source,
        boxed=boxed,
        heading=findings.titles.get(pair.operator, pair.operator),
        lines=(f"overlap of hot pixels: {pair.overlap:.2f}",),
        after=f"{name(pair.label)} → {name(pair.prediction)}",
        image=f"saliency maps of {context.image_name(pair.image)}",
    )


def _shifts(findings: SaliencyFindings) -> Iterator[Block]:
    if not findings.shifts:
        return
    from brinell.saliency.charts import OUTCOMES, shift_panels

    rows = []
    for one in findings.shifts:
        title = findings.titles.get(one.operator, one.operator)
        shares = [share(one.equal_shifted), share(one.shifted)]
        means = [number(one.overlap.value, ".2f"), number(one.distance.value, ".3f")]
        counts = [number(one.pairs, "d"), number(one.images, "d")]
        rows.append(
            [Cell(title), Cell(one.model), Cell("fails" if one.failed else "does not fail"), *shares, *means, *counts]
        )
    heads = ["change", "model", "the model", "shifted", "shifted (paper's rule)", "overlap", "distance", "pairs", "images"]
    yield Block(
        title="",
        figure=Figure(
            "saliency-shifted",
            "Share of pairs whose hottest cell changes, for changed images that fail and for those that don't, one "
            "small chart for each change. The table below has the numbers.",
            shift_panels(findings),
            findings.table(),
            list(OUTCOMES.items()),
        ),
        sentence="Share of pairs whose hottest cell changes, with 95 % intervals over images. Saliency shifts a little "
        "whenever an image changes, so changed images that fail are shown next to changed images that don't.",
        table=Table(heads, rows),
    )


def _method(findings: SaliencyFindings) -> list[str]:
    options = findings.options
    name = _METHODS[options["method"]]
    target = "the class that the model predicts" if options["target"] == "prediction" else "the correct class"
    cells = f"{options['cells']} × {options['cells']}"
    return [
        f"{name} maps show which parts of an image support {target}; those of a detector, the score of the label's box. "
        "The map of the clean image, which for detectors moves with the image, was compared with that "
        f"of the changed one. Pixels above a map's third quartile are hot; the hottest of {cells} cells is the one "
        "with the most hot pixels, and saliency has shifted if another cell is the hottest. If several cells have as many "
        "(“tied”), the paper's rule takes the first; with cells of equal size, the one with the highest values counts. "
        "“Overlap” is the intersection over union of the hot pixels, “distance” the distance between the maps' centres "
        "of mass as a share of the diagonal.",
        *(f"{model}: maps of the layer {layer}." for model, layer in findings.layers.items()),
    ]
