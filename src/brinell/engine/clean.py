"""Each model's answers on the clean images, and which images are measured because of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import torch
from torch import Tensor

from brinell.boxes import Detections, areas
from brinell.engine.context import RunContext
from brinell.engine.probes import describe_differences
from brinell.engine.progress import Reporter
from brinell.engine.shards import Entry, give_back_freed_memory, load_images, one_ahead
from brinell.engine.threads import CORES, answers_and_detections, masks_of
from brinell.engine.truth.labels import NO_LABEL, find_labels
from brinell.engine.truth.masks import true_masks
from brinell.engine.truth.objects import Objects, objects_of
from brinell.errors import DataError, ModelError
from brinell.masks import main_classes, overlap
from brinell.models.accuracy_check import advise_accuracy
from brinell.models.decoding_check import NOTHING_FOUND_FIX, DecodingCheck
from brinell.models.model import Model
from brinell.runs.arrow import CLEAN_TABLE

Evaluated = tuple[Tensor, Tensor, Tensor, Tensor]  # labels, predictions, confidences, and whether they are right
GOOD_IOU = 0.5  # mean IoU from which a segmenter is right about a clean image
NAN_FIX = "try --precision fp32 (or bf16 instead of fp16)"


def readable(samples: pa.Table) -> list[Entry]:
    """Return the images that could be read, in order."""
    names = ("index", "image", "name", "height", "width", "boxes", "object", "problem")
    columns = (samples[name].to_pylist() for name in names)
    return [
        Entry(index, image, name, (height, width), _object_box(boxes, chosen))
        for index, image, name, height, width, boxes, chosen, problem in zip(*columns, strict=True)
        if problem is None
    ]


def _object_box(boxes: list[list[float]] | None, chosen: int | None) -> tuple[float, ...] | None:
    """Return the box of the chosen object of an image (default: the largest)."""
    if not boxes:
        return None
    if chosen is None:
        chosen = int(areas(torch.tensor(boxes)).argmax())
    return tuple(boxes[chosen])


class CleanAnswers:
    """A model's answers on the clean images that can have a label: `entries`, in the order in which they are queried.

    They are `divisible` if the label of an image doesn't depend on the answer to another one.
    """

    def __init__(self, context: RunContext, model: Model) -> None:
        self._context, self._model = context, model
        setup = context.setup
        self.entries, self._labels = readable(context.samples), None
        self._masks = true_masks(setup.dataset, setup.config.data, model)
        if self._masks is None:
            self._labels = find_labels(context.samples, setup.dataset, setup.config.data, model)
            self.entries = self._labels.order(self.entries)
        self.divisible = not getattr(self._labels, "originals", None)

    def table(self, entries: Sequence[Entry], advance: Callable[[int], None], *, first: bool = True) -> pa.Table:
        """Return the answers on some images; `NO_LABEL` where one turns out to have none. `first` checks the model."""
        context, model = self._context, self._model
        batch = context.batch(model)
        if first and self._masks is not None and self._masks.unknown:
            _say_unknown(context, model, "masks", self._masks.unknown)
        objects, check = _objects(context, model), DecodingCheck(model)
        parts: list[Evaluated] = []
        size = batch * (CORES if model.device.type == "cpu" else 2)

        def load(start: int) -> tuple[Sequence[Entry], Tensor]:
            part = entries[start : start + size]
            ready = context.ready.inputs(model.preprocess)
            return part, load_images(context.setup.dataset, part, model.preprocess, context.pool, ready=ready).inputs

        for part, inputs in one_ahead(load, range(0, len(entries), size)):
            if first and not parts:
                for difference in describe_differences(model, inputs, batch):
                    context.warn(difference)
            scores, detections, evaluated = self._answer(part, inputs, batch)
            if bool(scores.isnan().any()) and not (model.service is not None and model.service.tolerant):
                name = part[int(scores.isnan().any(1).nonzero()[0])].name
                raise ModelError(f"model {model.name} returned NaN for the clean image {name}; {NAN_FIX}")
            parts.append(evaluated())
            check.add(detections)
            advance(len(inputs))
            del inputs
            give_back_freed_memory()
        if (warning := check.warning()) is not None:
            context.warn(warning)
        return _table(model, entries, parts, objects)

    def _answer(
        self, part: Sequence[Entry], inputs: Tensor, batch: int
    ) -> tuple[Tensor, list[Detections], Callable[[], Evaluated]]:
        """Return scores and detections of a part, and what makes the columns of its answers."""
        model = self._model
        if (masks := self._masks) is not None:
            predicted = masks_of(model, inputs, batch)
            scores = model.pixel_shares(predicted)
            return scores, [], lambda: _evaluate_masks(model, scores, predicted, masks.load(part, self._context.pool))
        found, detections = answers_and_detections(model, inputs, batch)
        scores, labels = found.cpu(), self._labels
        assert labels is not None
        return scores, detections, lambda: _evaluate(model, scores, labels.of(part, scores))


def answer_clean(context: RunContext, model: Model, advance: Callable[[int], None]) -> pa.Table:
    """Return a model's answer on each clean image that can have a label."""
    answers = CleanAnswers(context, model)
    table = answers.table(answers.entries, advance)
    advise(context, model, table)
    return table


def advise(context: RunContext, model: Model, table: pa.Table) -> None:
    """Warn if a model is right too rarely; if its predictions are the labels, it is always right."""
    if context.setup.config.data.labels == "prediction":
        return
    answered = table.filter(table["confidence"].is_valid() if model.scores else pc.not_equal(table["prediction"], -1))
    if len(answered):
        share = float(pc.mean(answered["correct"].cast(pa.int8())).as_py())
        sure = float(pc.mean(answered["confidence"]).as_py()) if model.scores else None
        if (warning := advise_accuracy(model, share, sure, len(answered))) is not None:
            context.warn(warning)


def _table(
    model: Model,
    entries: Sequence[Entry],
    parts: Sequence[tuple[Tensor, Tensor, Tensor, Tensor]],
    objects: dict[int, Objects],
) -> pa.Table:
    count = len(entries)
    labels, predictions, confidences, correct = (torch.cat(each).tolist() for each in zip(*parts, strict=True))
    columns = [
        pa.array([model.name] * count).cast(CLEAN_TABLE.field("model").type),
        [entry.index for entry in entries],
        labels,
        predictions,
        [None if confidence != confidence else confidence for confidence in confidences]
        if model.scores
        else pa.nulls(count, CLEAN_TABLE.field("confidence").type),
        correct,
        [True] * count,
        *_object_columns([objects.get(entry.index) for entry in entries]),
    ]
    return pa.table(columns, schema=CLEAN_TABLE)


def _evaluate(model: Model, scores: Tensor, label: Tensor) -> Evaluated:
    """Return labels, predictions, confidences and correctness.

    A detector is correct if it finds an object of the label's class.
    """
    confidence, prediction = scores.max(1)
    unknown = confidence.isnan()  # a tolerant service may have given no answer
    if model.detector is None:
        return label, prediction.masked_fill(unknown, -1), confidence, (label == prediction) & ~unknown
    own = scores.gather(1, label.clamp(min=0)[:, None])[:, 0]
    found = (own >= model.detector.score_threshold) & (label != NO_LABEL)
    return label, prediction.masked_fill(unknown | (confidence == 0), -1), confidence, found


def _evaluate_masks(model: Model, scores: Tensor, predicted: Tensor, true: Tensor) -> Evaluated:
    """Return the same for a segmenter, which is correct if the mean IoU is high enough.

    The label is the class that covers most of the true mask.
    """
    confidence, prediction = scores.max(1)
    assert model.segmenter is not None
    label = main_classes(true, model.outputs, model.segmenter.background)
    found = overlap(predicted, true, predicted, model.outputs)
    return label, prediction.masked_fill(confidence.isnan(), -1), confidence, found.iou >= GOOD_IOU


def drop_unlabelled(clean: pa.Table, reporter: Reporter, *, predicted: bool = True) -> pa.Table:
    """Return the clean answers without the images that have no label: because a model's prediction should be it and there
    is none, or because their masks show no class that a model knows.

    All models are measured on the same images, so an image is left out for all of them.
    """
    models, indices, labels = (clean[name].to_pylist() for name in ("model", "index", "label"))
    without = {(model, index) for model, index, label in zip(models, indices, labels, strict=True) if label == NO_LABEL}
    if not without:
        return clean
    dropped, total = {index for _, index in without}, len(set(indices))
    names = " or ".join(dict.fromkeys(model for model in models if any(owner == model for owner, _ in without)))
    reason = f"{names} finds nothing in them that could be their label (--labels prediction)"
    if not predicted:
        reason = f"their masks have no class that {names} knows"
        if len(dropped) == total:
            raise DataError(f"no image is left: {reason}; check the classes of the masks, or use --labels index")
    if len(dropped) == total:
        raise DataError(f"no image is left: {names} finds nothing in any of the {total} images; {NOTHING_FOUND_FIX}")
    reporter.say(f"{len(dropped)} of {total} images are left out: {reason}")
    return clean.filter(pa.array([index not in dropped for index in indices]))


def _objects(context: RunContext, model: Model) -> dict[int, Objects]:
    """Return the dataset's objects on a detector's input, by dataset index."""
    if model.detector is None:
        return {}
    objects, unknown = objects_of(context.samples, context.setup.dataset, context.setup.config.data, model)
    if unknown:
        _say_unknown(context, model, "objects", unknown)
    return objects


def _say_unknown(context: RunContext, model: Model, what: str, unknown: Sequence[str]) -> None:
    shown = ", ".join(unknown[:5]) + (", …" if len(unknown) > 5 else "")
    context.reporter.say(f"{model.name} does not know {len(unknown)} classes of {what}, which are ignored: {shown}")


def _object_columns(objects: Sequence[Objects | None]) -> list[list[Any]]:
    """Return the images' objects as columns: boxes, labels and regions."""
    return [
        [None if one is None else one.boxes.tolist() for one in objects],
        [None if one is None else one.labels for one in objects],
        [None if one is None or one.region is None else one.region.tolist() for one in objects],
    ]


def select_kept(clean: pa.Table, select: str) -> pa.Table:
    """Return the table with `kept` set: all images, those that every model gets right, or those that one model does."""
    model_names, indices, right = (clean[name].to_pylist() for name in ("model", "index", "correct"))
    only = select.partition(":")[2]  # the model whose answers decide; none: all models
    dropped = {
        index
        for name, index, correct in zip(model_names, indices, right, strict=True)
        if select != "all" and not correct and only in ("", name)
    }
    kept = [index not in dropped for index in indices]
    if not any(kept):
        raise DataError(
            f"no image is left: select is {select!r}, and no image is classified correctly; check the labels, "
            "or use --select all"
        )
    return clean.set_column(clean.schema.get_field_index("kept"), CLEAN_TABLE.field("kept"), pa.array(kept))


def kept_entries(samples: pa.Table, clean: pa.Table) -> list[Entry]:
    """Return the images that are measured: those that can be read and were kept by the selection."""
    kept = {index for index, keep in zip(clean["index"].to_pylist(), clean["kept"].to_pylist(), strict=True) if keep}
    return [entry for entry in readable(samples) if entry.index in kept]
