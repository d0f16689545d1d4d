"""Pairs of saliency maps of some chosen rows: replays the changed images, computes their maps and compares them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor

from brinell.config.criterion import DEFAULT_CRITERION
from brinell.config.lens import LensOptions
from brinell.config.saliency import SaliencyOptions
from brinell.criteria.criterion import find_criterion
from brinell.engine.evaluator import Evaluator
from brinell.engine.renderer import Renderer
from brinell.engine.replay import Replay, trials_of
from brinell.engine.shards import Entry, Images, id_numbers, load_images
from brinell.engine.threads import halving, one_each_core
from brinell.lenses.lens import Lens
from brinell.lenses.method import Trials
from brinell.lenses.scenes import Move
from brinell.marks import Mark
from brinell.models.marking import marker_of
from brinell.models.preprocess import Preprocess
from brinell.perturb.change import Change
from brinell.runs.arrow import arrow_schema
from brinell.saliency.findings import COLUMNS
from brinell.saliency.mapper import SaliencyMapper
from brinell.saliency.overlays import draw_sheet
from brinell.saliency.selection import Rows
from brinell.saliency.shift import Shift, compare_maps, fullest_cell, hot_pixels
from brinell.types import Dataset

BATCH = 16
TABLE = arrow_schema(COLUMNS)
Compared = tuple[pa.Table, np.ndarray]  # rows of the table `saliency`, and the indices of the chosen rows that they are of


@dataclass(frozen=True)
class ImageSource:
    """The images of a run by their ids."""

    dataset: Dataset
    entries: dict[str, Entry]
    pool: ThreadPoolExecutor

    def load(self, entries: Sequence[Entry], preprocess: Preprocess, *, with_originals: bool) -> Images:
        """Return model inputs, and originals if they are needed."""
        return load_images(self.dataset, entries, preprocess, self.pool, with_originals=with_originals)


@dataclass(frozen=True)
class MappedOperator:
    """The changes of one operator of a lens, and the mapper of the model whose saliency is compared."""

    lens: Lens
    lens_options: LensOptions
    operator: str
    mapper: SaliencyMapper
    options: SaliencyOptions
    seed: int

    @cached_property
    def change(self) -> Change:
        """What the operator does."""
        preprocess = self.mapper.model.preprocess
        return self.lens.method.replay(self.lens_options, self.operator, (preprocess.height, preprocess.width))

    @property
    def answered(self) -> bool:
        """Whether rows have the answers to the very images; otherwise the model is queried again."""
        failures = self.lens.reader.failures
        return failures is None or failures.answers

    @property
    def paired(self) -> bool:
        """Whether rows pair each failure with a similar image that is right, which it is compared with."""
        failures = self.lens.reader.failures
        return failures is not None and failures.pairs


class PairBatch:
    """Some chosen rows of an operator, and the maps of their images before the change."""

    def __init__(self, mapped: MappedOperator, rows: Rows, source: ImageSource) -> None:
        self.mapped, self.rows = mapped, rows
        self.model = mapped.mapper.model
        both = np.concatenate([rows["image"].astype(str), rows["clean_image"].astype(str)])
        known, indices = np.unique(both, return_inverse=True)
        self._indices = {image: index for index, image in enumerate(known.tolist())}
        self.samples, self.before = torch.from_numpy(indices).chunk(2)
        self.evaluator = self._evaluator([source.entries[image] for image in known.tolist()], source)
        self.labels = self.evaluator.labels[self.samples.to(self.model.device)]  # of the rows
        if mapped.paired:
            self.before = torch.arange(len(self.samples))
            right = self.trials(right=True)
            self.first, labels = self._render(right, self.before), self.labels
            self.first_predictions, _ = self._query(self.first, right, self.before)
        else:
            self.first, labels = self.evaluator.renderer.inputs, self.evaluator.labels
            self.first_predictions = self.evaluator.clean.verdict.prediction
        self.first_maps, self.first_boxes = self._maps(self.first, self._targets(self.first_predictions, labels))

    def _evaluator(self, entries: list[Entry], source: ImageSource) -> Evaluator:
        method, model = self.mapped.lens.method, self.model
        images = source.load(entries, model.preprocess, with_originals=method.with_originals)
        labels = torch.zeros(len(entries), dtype=torch.int64)
        labels[self.samples] = labels[self.before] = torch.from_numpy(self.rows["label"].astype(np.int64))
        renderer = Renderer(
            model.preprocess,
            images.inputs,
            id_numbers(entries),
            seed=self.mapped.seed,
            originals=images.originals,
            device=model.device,
        )
        criterion = find_criterion(DEFAULT_CRITERION, task=model.task)
        return Evaluator(model, renderer, labels, criterion=criterion, batch=BATCH)

    def trials(self, *, right: bool = False) -> Trials:
        """Return the rows' trials; in pairs, those that fail, or those that are `right`."""
        parameters = np.stack([np.asarray(own, np.float64) for own in self.rows["parameters"]])
        if self.mapped.paired:
            parameters = np.split(parameters, 2, axis=1)[int(right)]
        fields = np.nan_to_num(self.rows["field"].astype(np.float64)).astype(np.int64)
        each = zip(self.rows["image"].astype(str).tolist(), parameters.tolist(), fields.tolist(), strict=True)
        replays = [Replay(image, self.mapped.change, tuple(own), field) for image, own, field in each]
        return trials_of(replays, self._indices)

    def compare(self, *, controlled: bool) -> Iterator[Compared]:
        """Yield the shifts of the rows, then those of controls that the lens has no rows for.

        Rows are `controlled` if some of the operator's rows don't fail. Otherwise the control is a weaker change; in
        pairs, it is always the image on the other side of the one that is right.
        """
        trials, every = self.trials(), torch.arange(len(self.samples))
        stored = torch.from_numpy(np.nan_to_num(self.rows["prediction"].astype(np.float64)).astype(np.int64))
        yield self._compare(trials, every, stored if self.mapped.answered else None)
        method = self.mapped.lens.method
        if self.mapped.paired:
            if method.opposite is not None:
                originals = self.evaluator.renderer.originals
                sizes = torch.tensor([originals[sample].shape[1:] for sample in self.samples.tolist()])
                parameters, exist = method.opposite(trials.parameters, self.trials(right=True).parameters, sizes)
                rows = exist.nonzero()[:, 0]
                opposite = replace(trials, samples=trials.samples[rows], parameters=parameters[rows])
                yield self._compare(opposite, rows, None, control=True)
        elif method.weaker is not None and not controlled:
            yield self._compare(method.weaker(trials), every, None, control=True)

    def _compare(self, trials: Trials, rows: Tensor, stored: Tensor | None, *, control: bool = False) -> Compared:
        """Return the shifts of trials of these rows.

        Unless the predictions are `stored`, the model is queried, which also shows what fails; of controls, those
        that don't fail are kept.
        """
        labels, shifts, order, predictions, broken = self.labels[rows.to(self.labels.device)], [], [], [], []
        failed_rows = torch.from_numpy(self.rows["failed"].astype(bool))
        for part in _parts(trials):
            images = self._render(trials, part)
            if stored is None:
                predicted, failed = self._query(images, trials, part)
            else:
                predicted, failed = stored[part].to(images.device), failed_rows[rows[part]]
            before, near = self._before(trials, part, rows[part])
            maps, _ = self._maps(images, self._targets(predicted, labels[part.to(labels.device)]), near)
            shifts.append(compare_maps(before, maps, self.mapped.options.cells))
            order.append(part)
            predictions.append(predicted.cpu())
            broken.append(failed.cpu())
        if not order:
            return TABLE.empty_table(), np.empty(0, np.int64)
        indices, failures = rows[torch.cat(order)].numpy(), torch.cat(broken).numpy()
        if self.mapped.paired and not control:
            failures = failed_rows.numpy()[indices]  # by the lens's own criterion
        table = self._table(shifts, indices, torch.cat(predictions).numpy(), failures, control=control)
        return (table.filter(pa.array(~failures)), indices[~failures]) if control else (table, indices)

    def _before(self, trials: Trials, part: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Return the first maps of some trials, which are of these rows, and the boxes that they are of.

        A detector's move with the image, so that a map shifts only if it leaves the object. Other images, such as the other
        window of a pair, are compared as they are.
        """
        first = self.before[rows].to(self.first_maps.device)
        maps, boxes = self.first_maps[first], self.first_boxes[first]
        if self.model.detector is None or self.mapped.paired:
            return maps, boxes
        samples = trials.samples[part]
        move = Move(trials.change, trials.parameters[part], self.evaluator.renderer.layout(samples))
        own = (self.before[rows] == samples).to(maps.device)
        moved_maps, moved_boxes = move.masks(maps)[0].clamp(min=0), move.boxes(boxes[:, None])[:, 0]
        return torch.where(own[:, None, None], moved_maps, maps), torch.where(own[:, None], moved_boxes, boxes)

    def _query(self, images: Tensor, trials: Trials, part: Tensor) -> tuple[Tensor, Tensor]:
        """Return the model's predictions for images of some trials, and whether they are wrong."""
        answers = [
            self.evaluator.evaluate(some, trials.samples[own], trials.change, trials.parameters[own])
            for some, own in zip(torch.split(images, BATCH), torch.split(part, BATCH), strict=True)
        ]
        return torch.cat([verdict.prediction for verdict, *_ in answers]), torch.cat([broken for _, broken, _ in answers])

    def _render(self, trials: Trials, part: Tensor) -> Tensor:
        """Return the model inputs of some trials."""
        fields = None if trials.fields is None else trials.fields[part]
        return self.evaluator.renderer.images(trials.change, trials.samples[part], trials.parameters[part], fields)

    def draw(self, record: dict[str, Any]) -> Tensor:
        """Return a picture of the first row's pair, of which this record of the table is."""
        trials, one = self.trials(), torch.tensor([0])
        image = self._render(trials, one)
        predicted, label = (torch.tensor([record[name]], device=image.device) for name in ("prediction", "label"))
        before = self.before[:1].to(image.device)
        after, _ = self._maps(image, self._targets(predicted, label), self._before(trials, one, one)[1])
        maps = torch.cat([self.first_maps[before], after]).cpu()
        images, hot, cells = torch.cat([self.first[before], image]).cpu(), hot_pixels(maps), self.mapped.options.cells
        return draw_sheet(images, maps, hot, fullest_cell(hot, cells)[0].tolist(), cells)

    def marks(self) -> tuple[tuple[Mark, ...], tuple[Mark, ...]]:
        """Return a detector's boxes in the first row's image before the change and after it; none of a classifier."""
        if self.model.detector is None:
            return (), ()
        trials, one, label = self.trials(), torch.tensor([0]), (int(self.labels[0]),)
        image, marker = self._render(trials, one), marker_of(self.model)
        _, clean = self.model.answer(self.first[self.before[:1].to(image.device)])
        answer, found = self.evaluator.answer(image, trials.samples[one], trials.change, trials.parameters[one])
        assert clean is not None and found is not None and answer.found is not None
        # the clean image's objects move with it; other images are compared as they are
        own = not self.mapped.paired and bool(self.before[0] == self.samples[0])
        return marker.mark_clean(clean, label), marker.mark_changed(found, answer.found.clean if own else clean, label)

    def _targets(self, predictions: Tensor, labels: Tensor) -> Tensor:
        """Return the class that each image's map is for."""
        if self.mapped.options.target == "label" or self.model.detector is not None:
            return labels
        return predictions

    def _maps(self, images: Tensor, classes: Tensor, near: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Return saliency maps, computed in batches, and the boxes that a detector's are of."""

        def compute(part: slice) -> tuple[Tensor, Tensor]:
            return self.mapped.mapper.box_maps(images[part], classes[part], None if near is None else near[part])

        if self.model.device.type == "cpu":
            parts = [slice(start, start + BATCH) for start in range(0, len(images), BATCH)]
            computed = list(one_each_core(compute, parts))
        else:
            computed = halving(compute, len(images), 8 * BATCH)[0]
        maps, boxes = zip(*computed, strict=True)
        return torch.cat(maps), torch.cat(boxes)

    def _table(
        self, shifts: list[Shift], indices: np.ndarray, predictions: np.ndarray, failed: np.ndarray, *, control: bool
    ) -> pa.Table:
        values = {name: torch.cat([getattr(one, name) for one in shifts]).cpu().numpy() for name in vars(shifts[0])}
        count, level = len(indices), self.rows["level"][indices].astype(np.float64)
        columns: dict[str, Any] = {
            "lens": [self.mapped.lens.name] * count,
            "model": [self.model.name] * count,
            "operator": [self.mapped.operator] * count,
            "image": self.rows["image"][indices].astype(str),
            "level": pa.array(np.nan_to_num(level), mask=np.isnan(level) | control),
            "parameters": [None if control else list(own) for own in self.rows["parameters"][indices]],
            "label": self.rows["label"][indices],
            "clean_prediction": self.first_predictions.cpu().numpy()[self.before.numpy()[indices]],
            "prediction": predictions,
            "failed": failed,
            "tied": values["tied"],
        }
        empty = (values["clean_cell"] < 0) | (values["cell"] < 0)
        for kind in ("", "equal_"):
            before, after = values[f"clean_{kind}cell"], values[f"{kind}cell"]
            columns |= {f"clean_{kind}cell": pa.array(before, mask=empty), f"{kind}cell": pa.array(after, mask=empty)}
            columns[f"{kind}shifted"] = pa.array(before != after, mask=empty)
        for name in ("overlap", "distance"):
            columns[name] = pa.array(values[name].astype(np.float64), mask=np.isnan(values[name]))
        typed = {column.name: pa.array(columns[column.name]).cast(column.type) for column in TABLE}
        return pa.table(typed, schema=TABLE)


def _parts(trials: Trials) -> list[Tensor]:
    """Return the indices of trials that are rendered together; those of levels level by level, so that a part holds each
    image once.
    """
    indices = torch.arange(len(trials.samples))
    if not trials.change.sequential and trials.change.parameters != ("level",):
        return [part for part in torch.split(indices, 4 * BATCH) if len(part)]
    levels = trials.parameters[:, 0]
    return [indices[levels == level] for level in sorted(set(levels.tolist()))]
