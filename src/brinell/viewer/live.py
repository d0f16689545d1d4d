"""Models that answer while someone turns a slider: photographs, sweeps and breaking points. Imports torch."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from brinell.config.criterion import DEFAULT_CRITERION
from brinell.criteria.criterion import Answer
from brinell.datasets.decode import decode
from brinell.engine.evaluator import Evaluator
from brinell.engine.setup import criterion_of
from brinell.engine.threads import batches, one_each_core, torch_alone
from brinell.errors import ConfigError, RunError
from brinell.models.model import Model
from brinell.perturb.change import Change, Slider, to_whole_levels
from brinell.perturb.difference import difference
from brinell.perturb.find import find_turnable, turnable_changes
from brinell.types import id_number, image_id
from brinell.viewer.boxes import Marks, mark_changed, mark_clean
from brinell.viewer.search import find_break

KEPT = 32  # photographs and prepared images in memory
POINTS = 30  # of a sweep over a range that has no steps of its own
TOP = 5


@dataclass(frozen=True)
class Photo:
    """A photograph: dropped in, or an original of a run.

    `labels` are what models should answer, by their names; `operators` are those that the run applied to it, and `seed`
    names its random draws, so that images are the run's own.
    """

    id: str
    image: Tensor
    labels: Mapping[str, int] = field(default_factory=dict)
    operators: tuple[str, ...] = ()
    seed: int = 0


@dataclass(frozen=True)
class Bench:
    """A photograph in front of a model, which counts as broken by the default criterion."""

    evaluator: Evaluator
    photo: Photo
    model: Model

    @property
    def sizes(self) -> tuple[tuple[int, int], tuple[int, int]]:
        """Height and width of the model input, and of the original."""
        preprocess = self.model.preprocess
        height, width = self.photo.image.shape[1:]
        return (preprocess.height, preprocess.width), (height, width)


class Studio:
    """Everything live. Images are made by one thread at a time, since changes go on from their last level; models answer
    several at once.
    """

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self._photos: OrderedDict[str, Photo] = OrderedDict()
        self._benches: OrderedDict[tuple[str, str], Bench] = OrderedDict()

    # ---- photographs ----

    def add_photo(self, data: bytes) -> Photo:
        """Keep a photograph that someone dropped in; it never leaves this process."""
        image = decode(data, "the photograph")
        return self.keep(Photo(image_id(image), image))

    def add_original(self, image: Tensor, labels: Mapping[str, int], operators: Sequence[str], seed: int) -> Photo:
        """Keep an original of a run."""
        return self.keep(Photo(image_id(image), image, labels, tuple(operators), seed))

    def keep(self, photo: Photo) -> Photo:
        """Keep a photograph in memory, in place of the oldest one."""
        with self.lock:
            if self._photos.get(photo.id, photo).labels != photo.labels:  # the same image, dropped in or of another run
                self._benches = OrderedDict((key, one) for key, one in self._benches.items() if key[0] != photo.id)
            self._photos[photo.id] = photo
        while len(self._photos) > KEPT:
            self._photos.popitem(last=False)
        return photo

    def photo(self, identity: str) -> Photo:
        """Return a photograph by its id."""
        if identity not in self._photos:
            raise RunError("the photograph is no longer in memory; drop it in again")
        self._photos.move_to_end(identity)
        return self._photos[identity]

    # ---- answers ----

    def bench(self, photo: Photo, model: Model) -> Bench:
        """Return a photograph in front of a model. Without a label, the answer to the clean photograph counts as right."""
        key = photo.id, model.fingerprint
        with self.lock:
            if key not in self._benches:
                self._benches[key] = _prepare(photo, model)
            self._benches.move_to_end(key)
            while len(self._benches) > KEPT:
                self._benches.popitem(last=False)
            return self._benches[key]

    def pixels(self, bench: Bench, change: Change, parameters: Sequence[float]) -> Tensor:
        """Return what the model sees of a photograph under a change."""
        renderer, values = bench.evaluator.renderer, torch.tensor([list(parameters)], dtype=torch.float64)
        with self.lock:
            return to_whole_levels(renderer.images(change, torch.tensor([0]), values)[0].cpu()).clone()

    def sweep(
        self,
        benches: Sequence[Bench],
        change: Change,
        parameters: Sequence[float],
        axis: int,
        values: Sequence[float] = (),
    ) -> dict[str, Any]:
        """Return the answers of models along one parameter (default: over its range); the others stay as they are."""
        sliders = change.sliders(*benches[0].sizes)
        if len(parameters) != len(sliders) or not 0 <= axis < len(sliders):
            raise ConfigError(f"expected {len(sliders)} parameters of {change.id}, got {len(parameters)}")
        values = [float(value) for value in values] or _values(sliders[axis])
        points = [[*parameters[:axis], value, *parameters[axis + 1 :]] for value in values]
        captions = [change.caption(point, benches[0].sizes[0]) for point in points]
        return {
            "values": values,
            "captions": captions,
            "models": [self._answers(bench, change, points) for bench in benches],
        }

    def find_break(self, bench: Bench, change: Change) -> dict[str, Any] | None:
        """Return the weakest change that breaks the model on the photograph; None if no lens searches for it."""
        with self.lock:
            return find_break(bench.evaluator, bench.photo.id, bench.model, change)

    def _answers(self, bench: Bench, change: Change, points: list[list[float]]) -> dict[str, Any]:
        """Return a model's top classes, the label's probability and whether it is broken, at each point."""
        evaluator, samples = bench.evaluator, torch.zeros(len(points), dtype=torch.int64)
        parameters = torch.tensor(points, dtype=torch.float64)
        with torch_alone():
            images = self._render(bench, change, parameters)

            def answer(part: slice) -> tuple[Answer, Tensor, list[Marks]]:
                found, detections = evaluator.answer(images[part], samples[part], change, parameters[part])
                marks = [] if detections is None else mark_changed(evaluator, found, detections)
                return found, evaluator.criterion(found), marks

            parts = batches(len(points), evaluator.batch)
            found = list(one_each_core(answer, parts) if bench.model.device.type == "cpu" else map(answer, parts))
        probabilities = torch.cat([one.probabilities for one, *_ in found]).cpu()
        far = difference(evaluator.renderer.inputs, images) if change.compares else None
        label = int(evaluator.labels[0])
        return {
            "model": bench.model.name,
            "label": class_name(bench.model, label),
            "given": bench.photo.labels.get(bench.model.name) is not None,
            "top": [_top(bench.model, row) for row in probabilities],
            "probability": [round(value, 6) for value in probabilities[:, label].tolist()],
            "broken": torch.cat([broken for _, broken, _ in found]).tolist(),
            "marks": [marks for *_, part in found for marks in part],
            "clean_marks": mark_clean(evaluator),
            "mse": None if far is None else [round(value, 9) for value in far.mse.cpu().tolist()],
        }

    def _render(self, bench: Bench, change: Change, parameters: Tensor) -> Tensor:
        """Return the images of a sweep; a change that goes on from its last level gets its levels one by one."""
        renderer, size = bench.evaluator.renderer, 1 if change.sequential else 8
        made = []
        for part in torch.split(parameters, size):
            with self.lock:  # a slider's own image comes in between
                images = renderer.images(change, torch.zeros(len(part), dtype=torch.int64), part)
                made.append(images.clone())  # level 0 may be a view
        return torch.cat(made)


def _prepare(photo: Photo, model: Model) -> Bench:
    inputs = model.preprocess.model_input(photo.image)[None]
    ids = torch.tensor([id_number(photo.id)])
    label = photo.labels.get(model.name)
    with torch_alone():
        if label is None:
            label = int(model.predict(inputs.to(model.device)).argmax(1))
        evaluator = Evaluator.of(
            model,
            inputs,
            ids,
            torch.tensor([label]),
            criterion=criterion_of(DEFAULT_CRITERION, model),
            seed=photo.seed,
            batch=16,
            originals=[model.preprocess.convert_channels(photo.image)],
        )
        if model.task != "classification":
            _ = evaluator.clean  # before threads compare with it
    return Bench(evaluator, photo, model)


def _values(slider: Slider) -> list[float]:
    """Return the values of a sweep: every step, or evenly spaced ones with the neutral value among them."""
    steps = round((slider.high - slider.low) / slider.step)
    count = steps if steps <= 2 * POINTS else POINTS * (2 if slider.low < 0 < slider.high else 1)
    width = (slider.high - slider.low) / count
    return [round(slider.low + width * number, 9) + 0.0 for number in range(count + 1)]


def _top(model: Model, probabilities: Tensor) -> list[tuple[str, float]]:
    values, classes = probabilities.topk(min(TOP, len(probabilities)))
    return [(class_name(model, int(index)), round(float(value), 6)) for index, value in zip(classes, values, strict=True)]


def class_name(model: Model, index: int) -> str:
    """Return a class's name for people, or its number."""
    return model.classes.names[index] if model.classes is not None else str(index)


def list_changes(bench: Bench) -> list[dict[str, Any]]:
    """Return every change that can be turned on a photograph, with its sliders, as plain data."""
    kinds = turnable_changes()
    known = {change.id for changes in kinds.values() for change in changes}
    own = [find_turnable(name) for name in bench.photo.operators if name not in known and _exists(name)]
    found = []
    for kind, changes in {"Of this run": own, **kinds}.items():
        for change in changes:
            sliders = change.sliders(*bench.sizes)
            if sliders and (bench.model.differentiable is not None or not change.white_box):
                names = {"id": change.id, "name": change.name, "kind": kind, "title": change.title}
                found.append({**names, "unit": change.unit or "", "sliders": [vars(slider) for slider in sliders]})
    return found


def _exists(identity: str) -> bool:
    try:
        find_turnable(identity)
    except ConfigError:
        return False
    return True


def change_by_id(identity: str) -> Change:
    """Return a change that can be turned."""
    return find_turnable(identity)
