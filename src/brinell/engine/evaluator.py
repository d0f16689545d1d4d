"""Queries a model: renders trials, collects answers and applies the criterion; batches run in parallel (see `threads`)."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property, partial
from typing import Any, TypeVar

import torch
from torch import Tensor

from brinell.boxes import Detections
from brinell.criteria.criterion import Answer, Criterion
from brinell.criteria.verdict import Verdict, verdict, verdict_of_detector
from brinell.engine.chains import in_order_of_trials, make_chains, run_chains
from brinell.engine.clean import NAN_FIX
from brinell.engine.found import Found, Known
from brinell.engine.joining import joined, reordered
from brinell.engine.journal import Journal
from brinell.engine.renderer import Renderer
from brinell.engine.stage import Stage
from brinell.engine.tasks import TaskRunner
from brinell.engine.threads import CORES, UNDER_WAY, batches, halving, in_turn, nearest_repeat, one_each_core, two_in_flight
from brinell.errors import ModelError
from brinell.lenses.method import Columns, Done, Measuring, Outcome, Shard, Task, Trials
from brinell.lenses.sampling import Sampling
from brinell.lenses.scenes import Move, make_overlap, make_scene
from brinell.models.model import Model
from brinell.perturb.change import Change, rows_of
from brinell.perturb.difference import count_colours, difference, mean_grey, no_difference

A = TypeVar("A")
GROUP = 16  # images that a core changes and compares at a time: what a call costs is shared by so many
AT_ONCE = 8  # images for each core that searches may ask for before they are sure to need them


class Evaluator:
    """One model and one shard of images. Batches have the given size, and halve when an accelerator's memory runs out."""

    def __init__(
        self,
        model: Model,
        renderer: Renderer,
        labels: Tensor,
        *,
        criterion: Criterion,
        batch: int,
        advance: Callable[[int], None] = lambda done: None,
        end: Callable[[int], None] = lambda count: None,
        known: Known | None = None,
    ) -> None:
        self.model, self.renderer, self.criterion = model, renderer, criterion
        self.labels = labels.to(model.device)
        self.batch = batch
        self.queries = 0
        self._advance, self._end = advance, end
        known = known or Known()
        self._boxes = known.boxes
        count = len(renderer.inputs)
        given = torch.full((count, 4), torch.nan) if known.regions is None else known.regions
        self._regions = given.to(model.device)
        self._masks = None if known.masks is None else known.masks.to(model.device)
        renderer.follow(self.labels, model.gradient if model.differentiable is not None else None)

    @classmethod
    def of(
        cls,
        model: Model,
        inputs: Tensor,
        ids: Tensor,
        labels: Tensor,
        *,
        criterion: Criterion,
        seed: int,
        batch: int,
        originals: Sequence[Tensor] = (),
        known: Known | None = None,
    ) -> Evaluator:
        """Return an evaluator of model inputs and, for changes of originals, of the originals."""
        renderer = Renderer(model.preprocess, inputs, ids, seed=seed, originals=originals, device=model.device)
        return cls(model, renderer, labels, criterion=criterion, batch=batch, known=known)

    @cached_property
    def clean(self) -> Outcome:
        """The outcome of the clean images."""
        return self._in_batches(range(len(self.renderer.inputs)), self._query_clean)

    def shard(self, sampling: Sampling | None = None, stored: Callable[[str], bytes | None] = lambda name: None) -> Shard:
        """Return what a lens knows about the samples; `sampling` is what a budget leaves of their trials.

        `stored` returns what the lens has stored about them, by the names of files.
        """
        count, _, height, width = self.renderer.inputs.shape
        # an accelerator that waits for the last of few batches waits long
        side_by_side = CORES if self.model.device.type == "cpu" else 8
        each = max(self.batch, AT_ONCE) if self._small_batches else self.batch
        full = each * side_by_side if self.model.service is None else 1  # paid queries are never made ahead
        originals = self.renderer.originals
        sizes = torch.tensor([original.shape[1:] for original in originals]) if originals else None
        ids = self.renderer.ids.cpu()
        return Shard(count, height, width, self.clean, full, sizes, self._boxes, ids, self.model.name, sampling, stored)

    def drive(self, measuring: Measuring, journal: Journal | None = None) -> Columns:
        """Run a lens's generator to its end; what a journal holds is not computed again."""
        index = 0
        try:
            step = next(measuring)
            while True:
                result = self.reply(step) if journal is None else self._journalled(step, journal, index)
                index += len(step) if isinstance(step, tuple) else 1
                step = measuring.send(result)
        except StopIteration as finished:
            columns: Columns = finished.value
            return columns

    def reply(self, step: Trials | Task | tuple[Task, ...]) -> Any:
        """Return what a lens's generator is sent for what it yields."""
        if isinstance(step, tuple):
            return tuple(self.run(*step))
        return self.run(step)[0] if isinstance(step, Task) else self.query(step)

    def _journalled(self, step: Trials | Task | tuple[Task, ...], journal: Journal, index: int) -> Any:
        """Return the same from the journal, where it has the results at an index."""
        if isinstance(step, tuple):
            return self._journalled_tasks(step, journal, index)
        if isinstance(step, Task):
            return self._journalled_tasks((step,), journal, index)[0]
        return self._journalled_trials(step, journal, index) if journal.trials else self.query(step)

    def _journalled_trials(self, trials: Trials, journal: Journal, index: int) -> Outcome:
        outcome = journal.read(index, len(trials.samples))
        if outcome is None:
            outcome = self.query(trials)
            journal.write(index, outcome)
        else:
            self._advance(len(trials.samples))
            self.queries += len(trials.samples)
        return outcome

    def _journalled_tasks(self, tasks: tuple[Task, ...], journal: Journal, index: int) -> tuple[Done, ...]:
        done = [journal.read_done(index + place, len(task.samples)) for place, task in enumerate(tasks)]
        missing = [place for place, results in enumerate(done) if results is None]
        computed = self.run(*(tasks[place] for place in missing)) if missing else []
        for place, results in zip(missing, computed, strict=True):
            journal.write_done(index + place, results)
            done[place] = results
        return tuple(results for results in done if results is not None)

    def query(self, trials: Trials) -> Outcome:
        """Return the outcome of each trial."""
        trials.change.prepare(self.renderer, trials.samples)
        if self.model.task != "classification" or self.model.embedder is not None:
            _ = self.clean  # before threads compare with it

        def query_part(part: slice | Tensor) -> Outcome:
            outcome = self._query(trials, part)
            self._advance(len(outcome.broken))
            return outcome

        self.queries += len(trials.samples)
        if not trials.change.sequential:
            outcome = self._in_batches(range(len(trials.samples)), query_part)
        elif self.model.device.type == "cpu":
            chains = make_chains(trials.samples, self._group)
            found = itertools.chain.from_iterable(run_chains(query_part, chains))
            outcome = reordered(joined(list(found)), in_order_of_trials(chains))
        else:
            outcome = joined([self._in_batches(level, query_part) for level in self._levels(trials.samples)])
        if not trials.may_fail and not (self.model.service is not None and self.model.service.tolerant):
            self._refuse_nan(trials, outcome.verdict.confidence.isnan().cpu())
        return outcome

    def _levels(self, samples: Tensor) -> list[range]:
        """Split the trials of a sequential change on an accelerator into ranges; those of one don't wait for each other.

        A level is made from the one below, so no sample may be in two batches at once. Where a level has enough batches,
        the next level starts while its last ones are computed.
        """
        count, apart = len(samples), nearest_repeat(samples)
        each = count if apart // UNDER_WAY >= self._group else apart
        return [range(start, min(start + each, count)) for start in range(0, count, each)]

    @property
    def _group(self) -> int:
        """How many images are changed and compared at a time.

        On a CPU, networks are fastest with few images, whose activations stay in the cache, and operators with more.
        """
        return max(self.batch, GROUP) if self._small_batches else self.batch

    @property
    def _small_batches(self) -> bool:
        """Whether the model gets a group of images in several batches: plain classifiers on a CPU."""
        model = self.model
        plain = model.task == "classification" and model.embedder is None and model.service is None
        return plain and model.device.type == "cpu"

    def _refuse_nan(self, trials: Trials, unknown: Tensor) -> None:
        if bool(unknown.any()):
            first = trials.parameters[:, 0]
            level = first[unknown][0]
            here = first == level
            raise ModelError(
                f"model {self.model.name} returned NaN for {int((unknown & here).sum())} of {int(here.sum())} images under "
                f"{trials.change.id} at level {float(level):g}; {NAN_FIX}"
            )

    def run(self, *tasks: Task) -> list[Done]:
        """Return the results of tasks that don't need each other's, on the host."""
        self.queries += sum(len(task.samples) for task in tasks if task.queries)
        return self._tasks.run(tasks)

    @cached_property
    def _tasks(self) -> TaskRunner:
        return TaskRunner(self.stage, self.renderer.moving.layouts, self._advance, self._end)

    @cached_property
    def stage(self) -> Stage:
        """The shard's images as they move, and the model."""
        return Stage(self.model, self.renderer.moving, self.renderer.ids, self.labels, self.renderer.seed)

    def _query(self, trials: Trials, part: slice | Tensor) -> Outcome:
        change, samples, parameters = trials.change, trials.samples[part], trials.parameters[part]
        rows = rows_of(samples, self.renderer.inputs.device)
        images = change.images(self.renderer, samples, parameters, None if trials.fields is None else trials.fields[part])
        # before the model answers, while the images are in the core's cache
        apart = difference(self._clean_inputs(samples, rows), images) if change.compares else None
        grey = mean_grey(images) if "grey" in change.measures else None
        colours = count_colours(images) if "colours" in change.measures else None
        answer, detections, *_ = self._find(images, samples, change, parameters)
        broken = self.criterion(answer)
        return Outcome(
            verdict=answer.verdict,
            broken=broken,
            difference=apart or no_difference(len(images), images.device),
            grey=grey,
            colours=colours,
            detections=detections,
            cause=self._causes(answer, broken),
            overlap=answer.masks,
            distance=answer.distance,
        )

    def _causes(self, answer: Answer, broken: Tensor) -> Tensor | None:
        """Return why a detector's answers are broken, where the criterion says it."""
        if answer.found is None or self.criterion.cause is None:
            return None
        return self.criterion.cause(answer).masked_fill(~broken, -1)

    def _clean_inputs(self, samples: Tensor, rows: Tensor | slice) -> Tensor:
        """Return what changed images are compared with: their inputs, or the one that all of them are of."""
        if isinstance(rows, slice):
            return self.renderer.inputs[rows]
        first, inputs = int(samples[0]), self.renderer.inputs
        return inputs[first : first + 1] if bool((samples == first).all()) else inputs[rows]

    def _query_clean(self, part: slice) -> Outcome:
        images = self.renderer.inputs[part]
        answer, detections, masks, vectors = self._find(images, torch.arange(part.start, part.stop))
        broken, same = self.criterion(answer), difference(images, images)
        return Outcome(
            answer.verdict,
            broken,
            same,
            mean_grey(images),
            count_colours(images),
            detections=detections,
            cause=self._causes(answer, broken),
            overlap=answer.masks,
            masks=masks,
            distance=answer.distance,
            vectors=vectors,
        )

    def evaluate(
        self, images: Tensor, samples: Tensor, change: Change | None = None, parameters: Tensor | None = None
    ) -> tuple[Verdict, Tensor, Detections | None]:
        """Return the verdict on images of samples, whether it counts as broken, and a detector's detections."""
        answer, detections = self.answer(images, samples, change, parameters)
        return answer.verdict, self.criterion(answer), detections

    def answer(
        self, images: Tensor, samples: Tensor, change: Change | None = None, parameters: Tensor | None = None
    ) -> tuple[Answer, Detections | None]:
        """Return what the model says about images of samples, and a detector's detections."""
        return self._find(images, samples, change, parameters)[:2]

    def _find(
        self, images: Tensor, samples: Tensor, change: Change | None = None, parameters: Tensor | None = None
    ) -> Found:
        """Return the same, and a segmenter's masks or an embedder's vectors."""
        rows = rows_of(samples, self.model.device)
        labels, move = self.labels[rows], None
        if change is not None and parameters is not None:
            move = Move(change, parameters, self.renderer.layout(samples))
        if self.model.segmenter is not None:
            return self._find_masks(images, rows, labels, move)
        if self.model.embedder is not None:
            return self._find_vectors(images, None if change is None else rows, labels)
        with in_turn(self.model.device):
            probabilities, detections = self._ask(images)
        if detections is None:
            return Found(Answer(verdict(probabilities, labels), probabilities))
        before = detections if change is None else self._clean_detections(rows)
        scene = make_scene(self.model, detections, before, labels=labels, regions=self._regions[rows], move=move)
        return Found(Answer(verdict_of_detector(probabilities, labels), probabilities, scene), detections)

    def _ask(self, images: Tensor) -> tuple[Tensor, Detections | None]:
        """Return the model's answer to a group of images, in batches of equal size."""
        if len(images) <= self.batch or self._group == self.batch:
            return self.model.answer(images)
        return self.model.predict_in_batches(images, self.batch), None

    def _find_masks(self, images: Tensor, rows: Tensor | slice, labels: Tensor, move: Move | None) -> Found:
        with in_turn(self.model.device):
            masks = self.model.segment(images)
        clean = masks if move is None else self._clean_masks(rows)
        found = make_overlap(self.model, masks, clean, None if self._masks is None else self._masks[rows], move)
        shares = self.model.pixel_shares(masks)
        return Found(Answer(verdict_of_detector(shares, labels), shares, masks=found), masks=masks)

    def _find_vectors(self, images: Tensor, rows: Tensor | slice | None, labels: Tensor) -> Found:
        """Return what an embedder says, compared with the vectors of the clean images at some rows (None: the same)."""
        embedder = self.model.embedder
        assert embedder is not None
        with in_turn(self.model.device):
            vectors = self.model.embed(images)
        clean = vectors if rows is None else self._clean_vectors(rows)
        distance = (1 - (vectors * clean).sum(1)).clamp(min=0)
        with torch.inference_mode():
            scores = embedder.scores(vectors) if embedder.head is not None else (1 - distance)[:, None]
        return Found(Answer(verdict(scores, labels), scores, distance=distance), vectors=vectors)

    def _clean_vectors(self, rows: Tensor | slice) -> Tensor:
        """Return an embedder's vectors of the clean images."""
        assert self.clean.vectors is not None
        return self.clean.vectors[rows]

    def true_masks(self, samples: Tensor, change: Change | None = None, parameters: Tensor | None = None) -> Tensor | None:
        """Return the true masks of samples, moved as a change moves the image; None if there are none."""
        if self._masks is None:
            return None
        masks = self._masks[rows_of(samples, self.model.device)]
        if change is None or parameters is None:
            return masks
        return Move(change, parameters, self.renderer.layout(samples)).masks(masks)[0]

    def _clean_masks(self, rows: Tensor | slice) -> Tensor:
        """Return a segmenter's answers to the clean images."""
        assert self.clean.masks is not None
        return self.clean.masks[rows]

    def _clean_detections(self, rows: Tensor | slice) -> Detections:
        """Return what the detector found in the clean images."""
        assert self.clean.detections is not None
        return self.clean.detections.at(rows)

    def _in_batches(self, trials: range, query: Callable[[slice], Outcome], batch: int | None = None) -> Outcome:
        def query_from_there(part: slice) -> Outcome:
            return query(slice(trials.start + part.start, trials.start + part.stop))

        return joined(self._parts(len(trials), query_from_there, batch))

    def _parts(self, count: int, work: Callable[[slice], A], batch: int | None = None) -> list[A]:
        """Return the results of work on 0..count, batch by batch; on a CPU batches may be smaller."""
        if self.model.device.type == "cpu":
            return list(one_each_core(work, batches(count, batch or self._group)))
        each: Callable[..., Iterable[Any]] = map
        if self.model.device.type == "cuda":
            each = partial(two_in_flight, device=self.model.device)
        parts, self.batch = halving(work, count, self.batch, each)
        return parts
