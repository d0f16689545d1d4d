"""Each model's answers on the clean images, and the choice of images that follows from them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pyarrow as pa
import torch
from torch import Tensor

from brinell.boxes import areas
from brinell.classes import align
from brinell.config.data import DataOptions
from brinell.engine.shards import Entry, give_back_freed_memory, load_inputs, one_ahead
from brinell.engine.survey import labels_of
from brinell.engine.threads import CORES, answers
from brinell.engine.truth import Objects
from brinell.errors import DataError, LabelError, ModelError
from brinell.models.model import Model
from brinell.runs.schema import CLEAN
from brinell.types import Dataset

NAN_FIX = "try --precision fp32 (or bf16 instead of fp16)"


def readable(samples: pa.Table) -> list[Entry]:
    """The images that could be read, in order."""
    names = ("index", "image", "name", "height", "width", "boxes", "object", "problem")
    columns = (samples[name].to_pylist() for name in names)
    return [
        Entry(index, image, name, (height, width), _object(boxes, place))
        for index, image, name, height, width, boxes, place, problem in zip(*columns, strict=True)
        if problem is None
    ]


def _object(boxes: list[list[float]] | None, place: int | None) -> tuple[float, ...] | None:
    """The box of the object that an image is about, or else of its largest."""
    if not boxes:
        return None
    if place is None:
        place = int(areas(torch.tensor(boxes)).argmax())
    return tuple(boxes[place])


def label_indices(samples: pa.Table, dataset: Dataset, options: DataOptions, model: Model) -> dict[int, int] | None:
    """The model's output for each labelled image, by its place in the dataset; None where predictions are the truth."""
    if options.labels == "prediction":
        return None
    labelled = [
        (index, label)
        for index, label, problem in zip(
            samples["index"].to_pylist(), labels_of(samples), samples["problem"].to_pylist(), strict=True
        )
        if problem is None and label is not None
    ]
    if not labelled:
        raise LabelError(
            f"the images of {dataset.name} have no labels; add them, or take the model's answers on the clean images as "
            "the truth: --labels prediction"
        )
    found = align(
        (label for _, label in labelled),
        own=dataset.classes,
        model=model.classes,
        outputs=model.outputs,
        by_index=options.labels == "index",
    )
    return {index: found[label] for index, label in labelled}


def answer_clean(
    model: Model,
    dataset: Dataset,
    entries: Sequence[Entry],
    labels: dict[int, int] | None,
    objects: dict[int, Objects],
    *,
    batch: int,
    pool: ThreadPoolExecutor,
    advance: Callable[[int], None],
    seen: Callable[[Sequence[Entry], Tensor], None] | None = None,
) -> pa.Table:
    """One model's answer on each clean image that has a label; `seen` is shown their inputs as they come."""
    asked = [entry for entry in entries if labels is None or entry.index in labels]
    parts: list[tuple[Tensor, Tensor, Tensor, Tensor]] = []
    size = batch * (CORES if model.device.type == "cpu" else 2)

    def load(start: int) -> tuple[int, Tensor]:
        return start, load_inputs(dataset, asked[start : start + size], model.preprocess, pool)

    for start, inputs in one_ahead(load, range(0, len(asked), size)):
        scores = answers(model, inputs, batch).cpu()
        if bool(scores.isnan().any()) and not (model.service is not None and model.service.tolerant):
            name = asked[start + int(scores.isnan().any(1).nonzero()[0])].name
            raise ModelError(f"model {model.name} gave NaN for the clean image {name}; {NAN_FIX}")
        own = None if labels is None else [labels[entry.index] for entry in asked[start : start + size]]
        parts.append(_judged(model, scores, own))
        advance(len(inputs))
        if seen is not None:
            seen(asked[start : start + size], inputs)
        del inputs
        give_back_freed_memory()
    truth, predictions, confidences, right = (torch.cat(each).tolist() for each in zip(*parts, strict=True))
    columns = [
        pa.array([model.name] * len(asked)).cast(CLEAN.field("model").type),
        [entry.index for entry in asked],
        truth,
        predictions,
        [None if sure != sure else sure for sure in confidences]
        if model.scores
        else pa.nulls(len(asked), CLEAN.field("confidence").type),
        right,
        [True] * len(asked),
        *_told(objects, asked),
    ]
    return pa.table(columns, schema=CLEAN)


def _judged(model: Model, scores: Tensor, labels: list[int] | None) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """What counts as the truth, the first answer, how sure it is, and whether it is right: a detector's, if it finds an
    object of the label's class.
    """
    confidence, prediction = scores.max(1)
    truth = prediction if labels is None else torch.tensor(labels)
    unknown = confidence.isnan()  # a service may owe an answer
    if model.detector is None:
        return truth, prediction.masked_fill(unknown, -1), confidence, (truth == prediction) & ~unknown
    found = scores.gather(1, truth[:, None])[:, 0] >= model.detector.score_threshold
    return truth, prediction.masked_fill(unknown | (confidence == 0), -1), confidence, found


def _told(objects: dict[int, Objects], asked: Sequence[Entry]) -> list[list[Any]]:
    """The images' objects as columns."""
    each = [objects.get(entry.index) for entry in asked]
    return [
        [None if one is None else one.boxes.tolist() for one in each],
        [None if one is None else one.labels for one in each],
        [None if one is None or one.region is None else one.region.tolist() for one in each],
    ]


def keep(clean: pa.Table, select: str) -> pa.Table:
    """The table with `kept` set by the rule: all images, those every model gets right, or those one model does."""
    model_names, indices, right = (clean[name].to_pylist() for name in ("model", "index", "correct"))
    judge = select.partition(":")[2]
    dropped = {
        index
        for name, index, correct in zip(model_names, indices, right, strict=True)
        if select != "all" and not correct and judge in ("", name)
    }
    kept = [index not in dropped for index in indices]
    if not any(kept):
        raise DataError(
            f"no image is left: select is {select!r}, but the models get none right; check the labels, or use all"
        )
    return clean.set_column(clean.schema.get_field_index("kept"), CLEAN.field("kept"), pa.array(kept))
