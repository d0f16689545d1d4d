"""The profile lens's section of the report."""

from __future__ import annotations

from collections.abc import Iterator

from brinell.lenses.profile import LENS
from brinell.lenses.profile.curves import FailurePoint
from brinell.lenses.profile.findings import ProfileFindings
from brinell.lenses.profile.panels import metric_panels, operator_panels
from brinell.lenses.profile.robustness_blocks import robustness_blocks
from brinell.report.exhibits import Exhibit, describe_changed, describe_clean, pair_groups, read_exhibits
from brinell.report.panels import model_colours
from brinell.report.section import Block, Cell, Figure, Gallery, Picture, PictureGroup, Section, Table, share
from brinell.report.show import Context, hardness_by_operator, inline
from brinell.runs.statistics import THRESHOLDS

SMOOTHED = (
    "Curves and failure points are smoothed: each image was queried at a few levels only, and local fits over levels join "
    "them, without assuming that accuracy falls. The images that break first are not shown: a sample of an image's levels "
    "doesn't say where it fails first."
)
FEW_CLASSES = 12  # that are shown without a click
HALF = 0.5  # the threshold whose failure points are shown first


def make_section(context: Context, findings: ProfileFindings) -> Section:
    """Return the section: a small chart for each degradation, what breaks first, other metrics and failure points."""
    return Section(
        question=LENS.question,
        topic="degradation profiles",
        findings=findings,
        options=context.options,
        blocks=[
            _profiles(context, findings),
            *_precision(findings),
            *_overlap(findings),
            *robustness_blocks(findings),
            _metrics(findings),
            _failure_points(findings),
        ],
        galleries=[
            Gallery(
                "What breaks first",
                "For each degradation, the image that a model gets right when clean and loses at the lowest level. "
                "Would you have been right?",
                pair_groups(context, LENS.name, findings),
            ),
            *_sheets(context, findings),
        ],
        method=_method(findings),
        notes=[SMOOTHED] if findings.smoothed else [],
    )


def _profiles(context: Context, findings: ProfileFindings) -> Block:
    def describe(model: str, operator: str) -> str:
        if (model, operator) not in findings.areas:
            return "not measured"
        half = findings.failure_point(model, operator, HALF)
        if half.level is None:
            return "stays above 50 %"
        return "below 50 % when clean" if half.level == 0 else f"below 50 % at {half.caption}"

    names = ", ".join(findings.title(operator) for operator in findings.operators)
    records = [record for record in findings.table() if record["metric"] == "accuracy"]
    return Block(
        title="",
        figure=Figure(
            name="profiles",
            alt=f"Accuracy of {', '.join(findings.models)} at each level of {names}: one small chart for each, the most "
            "damaging first. The table below has the same in numbers.",
            panels=operator_panels(findings),
            records=[{**record, "title": findings.title(record["operator"])} for record in records],
            legend=list(model_colours(findings.models).items()),
        ),
        sentence=f"Accuracy at each level of degradation{', smoothed' if findings.smoothed else ''}, the most damaging "
        "first, with 95 % intervals. The slower a line falls, the harder the model.",
        table=hardness_by_operator(context, findings, describe, what="degradation"),
    )


def _metrics(findings: ProfileFindings) -> Block:
    known = {record["metric"] for record in findings.table() if record["value"] is not None}  # services may lack scores
    metrics = [metric for metric in findings.metrics if metric != "accuracy" and metric in known]
    return Block(
        title="What the accuracy doesn't show",
        figure=Figure(
            name="metrics",
            alt=f"Mean {', '.join(metrics)} at each level, averaged over all degradations, one small chart for each.",
            panels=metric_panels(findings, metrics),
            records=[record for record in findings.table() if record["metric"] in metrics and record["value"] is not None],
            legend=list(model_colours(findings.models).items()),
        ),
        sentence="Averaged over all degradations. High confidence at low accuracy: the model doesn't know that it is "
        "wrong. The rank is the number of classes that score above the true one.",
        folded=True,
    )


def _precision(findings: ProfileFindings) -> Iterator[Block]:
    """Yield a detector's average precision."""
    found = {model: findings.precision(model) for model in findings.models}
    if not any(found.values()):
        return
    rows = []
    for name, metric in (("mAP (IoU 0.5 to 0.95)", "map"), ("mAP50 (IoU 0.5)", "map50")):
        for place, when in enumerate(("on clean images", "on average over all levels")):
            values = [findings.precision(model, metric) for model in findings.models]
            cells = [Cell("–") if value is None else Cell(f"{value[place]:.1%}", value[place]) for value in values]
            rows.append([Cell(f"{name}, {when}"), *cells])
    sentence = "COCO's mean average precision, over all images at once; mPC and rPC below have intervals."
    yield Block("Average precision", sentence, table=Table(["metric", *findings.models], rows))


def _overlap(findings: ProfileFindings) -> Iterator[Block]:
    """Yield a segmenter's mean IoU, and that of its classes."""
    for model in findings.models:
        overlap = findings.precision(model, "miou")
        if overlap is None:
            continue
        rows = [[Cell("all classes (mIoU)"), *_overlap_cells(*overlap)]]
        rows += [[Cell(one.name), *_overlap_cells(one.clean, one.average)] for one in findings.class_iou.get(model, ())]
        yield Block(
            "Overlap of masks" + (f": {model}" if len(findings.models) > 1 else ""),
            "Intersection over union of the pixels of all images, so without intervals; classes that lose most come first.",
            table=Table(["class", "clean", "on average over all levels"], rows),
            folded=len(rows) > FEW_CLASSES,
        )


def _overlap_cells(*values: float | None) -> list[Cell]:
    return [Cell("–") if value is None else Cell(f"{value:.1%}", value) for value in values]


def _failure_points(findings: ProfileFindings) -> Block:
    rows = []
    for operator in findings.operators:
        row = [Cell(findings.title(operator))]
        for model in findings.models:
            measured = (model, operator) in findings.areas
            row.append(share(findings.areas[model, operator]) if measured else Cell("–"))
            row += [
                _failure_cell(findings.failure_point(model, operator, threshold), findings.smoothed)
                if measured
                else Cell("–")
                for threshold in THRESHOLDS
            ]
        rows.append(row)
    heads = ["mean accuracy", *(f"below {threshold:.0%}" for threshold in THRESHOLDS)]
    return Block(
        title="Failure points",
        sentence="Mean accuracy over all levels, and the level at which accuracy first drops below 90, 50 and 10 %, "
        "with what it does to the image. “of pixels” is the share of pixels that differ from the clean image.",
        table=Table(
            ["degradation", *heads * len(findings.models)],
            rows,
            [("", 1), *((model, len(heads)) for model in findings.models)],
        ),
        folded=True,
    )


def _failure_cell(failure: FailurePoint, interval: bool) -> Cell:
    """Return the level of a failure point, with its interval where it is smoothed."""
    latest = "" if failure.latest is None else failure.latest
    bounds = f" [{failure.earliest}–{latest}]" if interval and failure.earliest not in (None, failure.latest) else ""
    if failure.level is None:
        return Cell(f"never{bounds}")
    return Cell((f"level {failure.level}" if failure.level else "clean") + bounds, failure.level, failure.caption)


def _sheets(context: Context, findings: ProfileFindings) -> list[Gallery]:
    """Return, for each threshold, one image at every failure point (Figs. 7-9)."""
    exhibits = read_exhibits(context.run, LENS.name)
    galleries = []
    for threshold in (HALF, *(each for each in THRESHOLDS if each != HALF)):
        groups = []
        for model in findings.models:
            shown = [exhibit for exhibit in exhibits if (exhibit.model, exhibit.group) == (model, threshold)]
            shown.sort(key=lambda exhibit: exhibit.level)
            pictures = [*_clean_picture(context, shown), *(_example(context, findings, exhibit) for exhibit in shown)]
            groups += [PictureGroup(model, "", picture.heading, [picture]) for picture in pictures]
        title = f"One image where accuracy drops below {threshold:.0%}"
        sentence = "The same image at the level at which accuracy over the whole dataset drops below the threshold."
        galleries.append(Gallery(title, sentence, groups, pairs=False, folded=threshold != HALF))
    return galleries


def _example(context: Context, findings: ProfileFindings, exhibit: Exhibit) -> Picture:
    return Picture(
        source=inline(context.run, exhibit.file, exhibit.marks),
        heading=findings.title(exhibit.operator),
        lines=tuple(line for line in (exhibit.caption, exhibit.reason) if line),
        correct=exhibit.correct,
        boxed=exhibit.boxed,
        after=describe_changed(exhibit, context.names[exhibit.model]),
        image=context.image_name(exhibit.image),
    )


def _clean_picture(context: Context, shown: list[Exhibit]) -> list[Picture]:
    """Return the clean example, which the changed ones are compared with."""
    if not shown:
        return []
    first = shown[0]
    answer = describe_clean(first, context.names[first.model])
    source = inline(context.run, first.clean_file, first.clean_marks)
    return [Picture(source, "clean", (), None, boxed=first.boxed, after=answer, image=context.image_name(first.image))]


def _method(findings: ProfileFindings) -> list[str]:
    count, levels = len(findings.operators), max(len(points) for points in findings.curves.values()) - 1
    which = "a sample" if findings.smoothed else "each"
    paragraphs = [
        f"Each image was resized to the model's input size and then degraded by {count} operator{'s' * (count != 1)} "
        f"at {levels} increasing levels; the model was queried at {which} of them. The changes are not adversarial: they "
        "are what dirt, fog, light, compression and poor sensors do."
    ]
    if findings.white_box:
        paragraphs.append(
            "Gradient descent is the exception: it attacks the model, is shown for comparison, and counts in no average."
        )
    return paragraphs
