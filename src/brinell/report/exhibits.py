"""The exhibits of a run: stored pictures of changed images, and the part of a section that shows them in pairs."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass
from typing import Any

from brinell.marks import Mark, read_marks
from brinell.report.section import Picture, PictureGroup
from brinell.report.show import Context, Namer, format_confidence, inline
from brinell.runs.run import Run

FILE = "exhibits.json"


@dataclass(frozen=True)
class Exhibit:
    """A picture for the report: an image under an operator, and what the model answered.

    `parameters` and `field` replay it. `group` names the sheet that it belongs to, such as a threshold; None: the images
    that break first. It is shown next to its clean image, or next to the `original` that it is a variant of. `label` and
    predictions are output indices; a confidence of None: the model returns labels alone.
    `reason` says why the answer is broken, if the predictions don't. `caption` says how much of the change it takes, in
    the operator's unit, and `detail` what only some want to know, such as a distance. `tag` is `MEDIAN` for the typical
    image. Of detectors: `marks` and `clean_marks` are the boxes on the changed picture and on the clean one, and `scores`
    the label's score on the clean one and on the changed one. Of segmenters: pictures show masks, and `ious` are the mean
    IoU on the clean picture and on the changed one.
    """

    lens: str
    model: str
    operator: str
    image: str
    parameters: tuple[float, ...]
    label: int
    prediction: int
    confidence: float | None
    clean_confidence: float | None
    caption: str
    field: int = 0
    correct: bool = False
    clean_prediction: int | None = None
    group: float | None = None
    level: int = 0
    file: str = ""
    clean_file: str = ""
    reason: str = ""
    detail: str = ""
    tag: str = ""
    marks: tuple[Mark, ...] = ()
    clean_marks: tuple[Mark, ...] = ()
    scores: tuple[float, float] | None = None
    original: str = ""
    ious: tuple[float, float] | None = None

    @property
    def before(self) -> str:
        """Id of the image that it is shown next to."""
        return self.original or self.image

    @property
    def boxed(self) -> bool:
        """Whether there are boxes to draw."""
        return bool(self.marks or self.clean_marks)


def write_exhibits(run: Run, exhibits: list[Exhibit]) -> None:
    """Store the list of exhibits, whose pictures are stored already."""
    run.store.write(json.dumps([asdict(exhibit) for exhibit in exhibits]).encode(), FILE)


def read_exhibits(run: Run, lens: str) -> list[Exhibit]:
    """Return a lens's exhibits; none if the run has no pictures."""
    if not run.store.exists(FILE):
        return []
    records: list[dict[str, Any]] = run.store.read_json(FILE)
    return [_read(record) for record in records if record["lens"] == lens]


def _read(record: dict[str, Any]) -> Exhibit:
    marks = {name: read_marks(record.get(name, ())) for name in ("marks", "clean_marks")}
    pairs = {name: record.get(name) for name in ("scores", "ious")}
    plain: dict[str, Any] = {name: None if pair is None else tuple(pair) for name, pair in pairs.items()}
    plain["parameters"] = tuple(record["parameters"])
    return Exhibit(**record | plain | marks)


def clean_confidences(run: Run) -> dict[tuple[str, str], float | None]:
    """Return each model's confidence on each clean image."""
    sql = "select model, image, any_value(clean.confidence) from clean join samples using (index) group by all"
    return {(model, image): confidence for model, image, confidence in run.query(sql)}


def pair_groups(context: Context, lens: str, findings: Any) -> list[PictureGroup]:
    """Return, for each model and operator, the images that break first and a median one, next to the clean ones."""
    exhibits = [exhibit for exhibit in read_exhibits(context.run, lens) if exhibit.group is None]
    groups = []
    for model in findings.models:
        for operator in findings.operators:
            shown = [exhibit for exhibit in exhibits if (exhibit.model, exhibit.operator) == (model, operator)]
            if shown:
                pictures = [_pair(context, exhibit) for exhibit in shown]
                groups.append(PictureGroup(model, operator, context.run.title(operator), pictures))
    return groups


def describe_clean(exhibit: Exhibit, name: Namer) -> str:
    """Return the answer to the clean image: the prediction, or the label's score of a detector, which may find more."""
    if exhibit.ious is not None:
        return _format_iou(exhibit.ious[0])
    before = exhibit.label if exhibit.clean_prediction is None else exhibit.clean_prediction
    if exhibit.scores is not None and exhibit.clean_prediction is None:
        return f"{name(before)} {exhibit.scores[0]:.2f}"
    return f"{name(before)}{format_confidence(exhibit.clean_confidence)}"


def describe_changed(exhibit: Exhibit, name: Namer) -> str:
    """Return the answer to the changed image: the same, and what a detector finds with a better score."""
    if exhibit.ious is not None:
        return _format_iou(exhibit.ious[1])
    if exhibit.scores is None or exhibit.clean_prediction is not None:
        return f"{name(exhibit.prediction)}{format_confidence(exhibit.confidence)}"
    own = f"{name(exhibit.label)} {exhibit.scores[1]:.2f}"
    if exhibit.prediction == exhibit.label:
        return own
    if exhibit.prediction < 0:
        return "nothing found"
    best = "" if exhibit.confidence is None else f" {exhibit.confidence:.2f}"
    return f"{own}; best: {name(exhibit.prediction)}{best}"


def _format_iou(iou: float) -> str:
    return "nothing to compare" if math.isnan(iou) else f"mean IoU {iou:.2f}"


def _heading(title: str, caption: str) -> str:
    """Return what was done to an image: "motion blur, 5 px", and "40 % fog" where the amount names the change."""
    return caption if caption.endswith(f" {title}") else f"{title}, {caption}"


def _pair(context: Context, exhibit: Exhibit) -> Picture:
    run, name = context.run, context.names[exhibit.model]
    return Picture(
        source=inline(run, exhibit.file, exhibit.marks),
        heading=_heading(run.title(exhibit.operator), exhibit.caption),
        lines=(f"broken: {exhibit.reason}",) if exhibit.reason else (),
        correct=False,
        clean_source=inline(run, exhibit.clean_file, exhibit.clean_marks),
        boxed=exhibit.boxed,
        before=describe_clean(exhibit, name),
        after=describe_changed(exhibit, name),
        detail=exhibit.detail,
        tag=exhibit.tag,
        image=context.image_name(exhibit.image),
    )
