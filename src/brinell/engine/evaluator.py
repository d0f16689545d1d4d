"""The engine: one model and one shard of images, ready to be asked by a lens."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property, partial
from typing import Any, TypeVar

import torch
from torch import Tensor

from brinell.boxes import Detections, areas, clip_boxes, move_boxes
from brinell.criteria.criterion import Answer, Criterion, Scene
from brinell.criteria.distance import own_regions
from brinell.criteria.verdict import Verdict, verdict, verdict_of_detector
from brinell.engine.clean import NAN_FIX
from brinell.engine.journal import Journal
from brinell.engine.stage import Stage
from brinell.engine.threads import CORES, UNDER_WAY, batches, halving, in_turn, one_each_core, two_in_flight
from brinell.errors import ModelError
from brinell.lenses.lens import Asked, Asking, Columns, Outcome, Shard, Trials
from brinell.lenses.tasks import Motion, Task
from brinell.models.model import Model
from brinell.perturb.difference import Difference, count_colours, difference, mean_grey, no_difference
from brinell.perturb.operator import Kind, Operator
from brinell.perturb.property import Property, PropertyKind
from brinell.perturb.view import View
from brinell.resizing.repaint import Repainter

A = TypeVar("A")
SMALL = 4  # images of a batch that keep a core nearly as busy as many do


class Bench:
    """Carries out trials: perturb, ask the model, judge; batches side by side (see `threads`).

    Batches are as large as given. They halve when the accelerator's memory runs out.
    """

    def __init__(
        self,
        model: Model,
        inputs: Tensor,
        ids: Tensor,
        labels: Tensor,
        *,
        criterion: Criterion,
        seed: int,
        batch: int,
        advance: Callable[[int], None] = lambda done: None,
        regions: Tensor | None = None,
        originals: Sequence[Tensor] = (),
        boxes: Tensor | None = None,
    ) -> None:
        self.model = model
        self.inputs = inputs.to(model.device)
        self._boxes = boxes
        self.originals = [original.to(model.device) for original in originals]
        self.ids = ids.to(model.device)
        self.labels = labels.to(model.device)
        self.criterion = criterion
        self.seed = seed
        self.batch = batch
        self._advance = advance
        self.asked = 0
        self._levels = _Levels(self.inputs)
        self._repaintings: dict[int, Repainter] = {}
        # where the preferred objects are, for a detector; NaN: where it finds them itself
        given = torch.full((len(inputs), 4), torch.nan) if regions is None else regions
        self._regions = given.to(model.device)

    @cached_property
    def clean(self) -> Outcome:
        """The answers on the clean images; who only makes images asks for none."""
        return self._in_batches(range(len(self.inputs)), self._ask_clean)

    def shard(self) -> Shard:
        """What a lens is told of the samples."""
        count, _, height, width = self.inputs.shape
        # an accelerator that waits for the last of few batches waits long
        side_by_side = CORES if self.model.device.type == "cpu" else 8
        full = self.batch * side_by_side if self.model.service is None else 1  # who pays by the query asks no query ahead
        sizes = torch.tensor([original.shape[1:] for original in self.originals]) if self.originals else None
        return Shard(count, height, width, self.clean, full, sizes, self._boxes, self.ids.cpu(), self.model.name)

    def drive(self, asking: Asking, journal: Journal | None = None) -> Columns:
        """Let a lens ask until it has its rows; what a journal holds is not asked again."""
        place = 0
        try:
            question = next(asking)
            while True:
                answer: Any
                if isinstance(question, Task):
                    answer = self.do(question)
                elif journal is None:
                    answer = self.ask(question)
                else:
                    answer = self._journalled(question, journal, place)
                question, place = asking.send(answer), place + 1
        except StopIteration as finished:
            columns: Columns = finished.value
            return columns

    def _journalled(self, trials: Trials, journal: Journal, place: int) -> Outcome:
        """The outcome of the question at a place, kept or asked now."""
        outcome = journal.kept(place, len(trials.samples))
        if outcome is None:
            outcome = self.ask(trials)
            journal.keep(place, outcome)
        else:
            self._advance(len(trials.samples))
            self.asked += len(trials.samples)
        return outcome

    def ask(self, trials: Trials) -> Outcome:
        """The outcome of each trial."""
        if isinstance(trials.operator, Operator):
            self._levels.begin(trials.operator)
        if self.model.detector is not None:
            _ = self.clean  # before threads compare with it
        if isinstance(trials.operator, Motion):
            _ = self.stage
        if isinstance(trials.operator, View) and trials.operator.local is not None:
            for sample in sorted(set(trials.samples.tolist())):  # here, where streams of an accelerator wait for it
                self._ready(sample)

        def ask_and_tell(part: slice) -> Outcome:
            outcome = self._ask(trials, part)
            self._advance(part.stop - part.start)
            return outcome

        self.asked += len(trials.samples)
        count, (turn, batch) = len(trials.samples), self._turn(trials)
        turns = [range(at, min(at + turn, count)) for at in range(0, count, turn)]
        outcome = joined([self._in_batches(part, ask_and_tell, batch) for part in turns])
        if not trials.may_fail and not (self.model.service is not None and self.model.service.tolerant):
            self._refuse_nan(trials, outcome.verdict.confidence.isnan().cpu())
        return outcome

    def _turn(self, trials: Trials) -> tuple[int, int]:
        """How many trials may be begun before the first of them has to be done, and in batches of which size.

        A step operator goes on from where it left an image: no image may be in two batches that are under way. Where a
        level has more batches than that, the next level's begin while its last ones are computed. On a CPU smaller batches
        are nearly as fast, and better than waiting at the end of every level.
        """
        count = len(trials.samples)
        if not isinstance(trials.operator, Operator) or trials.operator.kind is not Kind.STEP:
            return count, self.batch
        apart, kind = _nearest_repeat(trials.samples), self.model.device.type
        fitting = apart // UNDER_WAY.get(kind, apart + 1)
        if fitting >= self.batch:
            return count, self.batch
        return (count, fitting) if kind == "cpu" and fitting >= SMALL else (apart, self.batch)

    def _refuse_nan(self, trials: Trials, unknown: Tensor) -> None:
        if bool(unknown.any()):
            level = trials.levels[unknown].flatten()[0]
            here = trials.levels.flatten(1)[:, 0] == level if trials.levels.ndim > 1 else trials.levels == level
            raise ModelError(
                f"model {self.model.name} gave NaN for {int((unknown & here).sum())} of {int(here.sum())} images under "
                f"{trials.operator.id} at level {float(level):g}; {NAN_FIX}"
            )

    def do(self, task: Task) -> dict[str, Tensor]:
        """What comes of a task, on the host."""
        stage = self.stage

        def do_and_tell(part: slice) -> dict[str, Tensor]:
            done = task.do(stage, part)
            if task.images:
                self._advance(part.stop - part.start)
            return {name: values.cpu() for name, values in done.items()}

        self.asked += task.images
        parts = self._parts(task.count, do_and_tell)
        return {name: torch.cat([part[name] for part in parts]) for name in parts[0]}

    @cached_property
    def stage(self) -> Stage:
        """The shard's images as they move; the whole of them where the model cuts out the middle."""
        wholes = [self.model.preprocess.resize(original[None])[0] for original in self.originals]
        return Stage(self.model, wholes or list(self.inputs), self.ids, self.labels, self.seed)

    def changed(self, found: Property, samples: Tensor, severities: Tensor, fields: Tensor | None = None) -> Tensor:
        """Samples under a property at their severities."""
        rows = _rows(samples, self.inputs.device)
        return found.apply(self.inputs[rows], severities, seed=self.seed, ids=self.ids[rows], fields=fields)

    def perturbed(self, operator: Operator, samples: Tensor, levels: Tensor) -> Tensor:
        """Samples at their levels; a step operator goes on from where it left them the last time."""
        self._levels.begin(operator)
        rows = _rows(samples, self.inputs.device)

        def gradient(images: Tensor, which: Tensor | slice) -> Tensor:
            return self.model.gradient(images, self.labels[rows][which])

        if operator.kind is Kind.PIXELS:
            start, images = torch.zeros_like(levels), self.inputs[rows]
        else:
            start, images = self._levels.at(samples, rows, levels)
        images = operator.advance(
            images, start, levels, seed=self.seed, ids=self.ids[rows], gradient=gradient if operator.white_box else None
        )
        if operator.kind is Kind.STEP:
            self._levels.keep(samples, rows, levels, images)
        return images

    def viewed(self, view: View, samples: Tensor, parameters: Tensor) -> Tensor:
        """Originals under a view; those of one image are made together."""
        which, counts = torch.unique_consecutive(samples, return_counts=True)
        parts = zip(which.tolist(), torch.split(parameters, counts.tolist()), strict=True)
        return torch.cat([self._looked(view, sample, own) for sample, own in parts])

    def move_boxes(self, motion: Motion, samples: Tensor, coordinates: Tensor) -> Tensor:
        """What the model sees of originals under motions. Searches move images without rounding; this is theirs in whole
        grey levels.
        """
        return self.model.preprocess.denormalise(self.stage.view(samples, motion.group.exp(coordinates)))

    def _looked(self, view: View, sample: int, parameters: Tensor) -> Tensor:
        if view.local is not None:
            return self.model.preprocess.repaint(self._ready(sample), view.local, parameters)
        return view.inputs(self.originals[sample], parameters, self.model.preprocess.inputs)

    def _ready(self, sample: int) -> Repainter:
        """An original, ready to be changed in windows."""
        if sample not in self._repaintings:
            self._repaintings[sample] = self.model.preprocess.repainter(self.originals[sample])
        return self._repaintings[sample]

    def images(self, trials: Trials, part: slice) -> Tensor:
        """The inputs of some trials, as the model is asked about them."""
        samples, levels = trials.samples[part], trials.levels[part]
        if isinstance(trials.operator, View):
            return self.viewed(trials.operator, samples, levels)
        if isinstance(trials.operator, Property):
            return self.changed(trials.operator, samples, levels, None if trials.fields is None else trials.fields[part])
        if isinstance(trials.operator, Motion):
            return self.move_boxes(trials.operator, samples, levels)
        return self.perturbed(trials.operator, samples, levels)

    def _ask(self, trials: Trials, part: slice) -> Outcome:
        rows, images = _rows(trials.samples[part], self.inputs.device), self.images(trials, part)
        compares = trials.operator.compares if isinstance(trials.operator, View) else True
        told = trials.operator.facts.told if isinstance(trials.operator, Operator) else None
        read, broken, detections = self.judged(images, rows, trials.operator, trials.levels[part])
        return Outcome(
            verdict=read,
            broken=broken,
            difference=difference(self._beside(trials.samples[part], rows), images)
            if compares
            else no_difference(len(images), images.device),
            grey=mean_grey(images) if told == "grey" else None,
            colours=count_colours(images) if told == "colours" else None,
            detections=detections,
        )

    def _beside(self, samples: Tensor, rows: Tensor | slice) -> Tensor:
        """What changed images are compared with: their inputs, or the one that all of them are of."""
        first = int(samples[0])
        return self.inputs[first : first + 1] if bool((samples == first).all()) else self.inputs[rows]

    def _ask_clean(self, part: slice) -> Outcome:
        images = self.inputs[part]
        read, broken, detections = self.judged(images, part)
        return Outcome(read, broken, difference(images, images), mean_grey(images), count_colours(images), detections)

    def judged(
        self,
        images: Tensor,
        rows: Tensor | slice,
        change: Asked | None = None,
        levels: Tensor | None = None,
    ) -> tuple[Verdict, Tensor, Detections | None]:
        """What the model says of images, whether that counts as broken, and what it found in them."""
        with in_turn(self.model.device):
            probabilities, detections = self.model.answer(images)
        labels, detector = self.labels[rows], self.model.detector
        if detector is None or detections is None:
            read = verdict(probabilities, labels)
            return read, self.criterion(Answer(read, probabilities)), None
        before = detections if change is None else self._found_before(rows)
        clean_probabilities = before.class_scores(self.model.outputs)
        before, found, regions = detector.found(before), detector.found(detections), self._regions[rows]
        regions = torch.where(regions.isnan(), own_regions(before, labels), regions)
        height, width = images.shape[2:]
        if isinstance(change, Property) and change.kind is PropertyKind.MOTION and levels is not None:
            matrices = change.matrices(levels, height, width)
            regions = clip_boxes(move_boxes(regions[:, None], matrices), height, width)[:, 0]
            before = dataclasses.replace(before, boxes=move_boxes(before.boxes, matrices))
        if isinstance(change, View) and change.frame is not None and levels is not None:
            matrices = self._framed(change.frame(levels), rows)
            regions = clip_boxes(move_boxes(regions[:, None], matrices), height, width)[:, 0]
            before = _seen(dataclasses.replace(before, boxes=move_boxes(before.boxes, matrices)), height, width)
        read = verdict_of_detector(probabilities, labels)
        scene = Scene(found, before, clean_probabilities, labels, regions, height, width)
        return read, self.criterion(Answer(read, probabilities, scene)), detections

    def _framed(self, frames: Tensor, rows: Tensor | slice) -> Tensor:
        """How views move what lies on their samples' clean inputs, counted from the middle of pixels."""
        own = torch.stack([self.model.preprocess.matrix(*original.shape[1:]) for original in self.originals])
        return on_input(frames, own[rows if isinstance(rows, slice) else rows.cpu()])

    def _found_before(self, rows: Tensor | slice) -> Detections:
        """What the detector found in the clean images."""
        assert self.clean.detections is not None
        return self.clean.detections.at(rows)

    def _in_batches(self, trials: range, ask: Callable[[slice], Outcome], batch: int | None = None) -> Outcome:
        def ask_from_there(part: slice) -> Outcome:
            return ask(slice(trials.start + part.start, trials.start + part.stop))

        return joined(self._parts(len(trials), ask_from_there, batch))

    def _parts(self, count: int, work: Callable[[slice], A], batch: int | None = None) -> list[A]:
        """What comes of work on 0..count, batch by batch; on a CPU they may be smaller than usual."""
        if self.model.device.type == "cpu":
            return list(one_each_core(work, batches(count, batch or self.batch)))
        each: Callable[..., Iterable[Any]] = map
        if self.model.device.type == "cuda":
            each = partial(two_in_flight, device=self.model.device)
        parts, self.batch = halving(work, count, self.batch, each)
        return parts


class _Levels:
    """Where each sample of a shard stands under one step operator."""

    def __init__(self, inputs: Tensor) -> None:
        self.inputs = inputs
        self.operator: Operator | None = None
        self.levels = torch.zeros(len(inputs), dtype=torch.int64)
        self.images = inputs

    def begin(self, operator: Operator) -> None:
        """Start from the clean images, unless the operator is the one that they stand under."""
        if self.operator is not operator and operator.kind is Kind.STEP:
            self.operator = operator
            self.levels.zero_()
            self.images = self.inputs.clone()

    def at(self, samples: Tensor, rows: Tensor | slice, wanted: Tensor) -> tuple[Tensor, Tensor]:
        """The level each sample stands at, and its image there; samples that went too far start again."""
        start = self.levels[samples]
        if bool((start > wanted).any()):
            self.images[rows] = self.inputs[rows]
            start = torch.zeros_like(start)
        return start, self.images[rows]

    def keep(self, samples: Tensor, rows: Tensor | slice, levels: Tensor, images: Tensor) -> None:
        """Remember where samples stand now."""
        self.levels[samples] = levels
        self.images[rows] = images


def on_input(frames: Tensor, own: Tensor) -> Tensor:
    """How views, by their frames, move what lies on clean inputs, whose frames are `own`; from the middle of pixels."""
    half = torch.tensor([[1, 0, 0.5], [0, 1, 0.5], [0, 0, 1]], dtype=torch.float64)
    return half.inverse() @ frames @ own.inverse() @ half


def _seen(detections: Detections, height: int, width: int) -> Detections:
    """Those of which anything lies on the model input."""
    return detections.where(areas(clip_boxes(detections.boxes, height, width)) > 0)


def _rows(samples: Tensor, device: torch.device) -> Tensor | slice:
    """Samples as an index; neighbours as a slice, which copies nothing."""
    first, count = int(samples[0]), len(samples)
    if torch.equal(samples, torch.arange(first, first + count)):
        return slice(first, first + count)
    return samples.to(device)


def _nearest_repeat(samples: Tensor) -> int:
    """How far apart the nearest two trials of one sample are; all of them, where none is asked about twice."""
    order = torch.argsort(samples, stable=True)
    again = samples[order].diff() == 0
    return int(order.diff()[again].min()) if bool(again.any()) else len(samples)


T = TypeVar("T", Outcome, Verdict, Difference, Detections)


def joined(parts: list[T]) -> T:
    """Batch results one after the other, field by field."""
    if len(parts) == 1:
        return parts[0]
    fields: dict[str, Any] = {}
    for field in dataclasses.fields(parts[0]):
        values = [getattr(part, field.name) for part in parts]
        if isinstance(values[0], Tensor):
            fields[field.name] = torch.cat(values)
        else:
            fields[field.name] = None if values[0] is None else joined(values)
    return type(parts[0])(**fields)
