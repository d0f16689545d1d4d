"""What a model is hardened on: originals and pictures made of them, each with its class and its part."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from brinell.classes import align
from brinell.config.data import DataOptions
from brinell.engine.shards import Entry, in_order, load_inputs
from brinell.engine.survey import select_indices
from brinell.errors import DataError, LabelError, UnreadableImage
from brinell.hardening.splits import Part
from brinell.models.model import Model
from brinell.models.preprocess import Preprocess
from brinell.types import Dataset, Label, Origin, Sample, id_number, image_id

MOST_BYTES = 4 << 30  # of pictures that are kept in memory; more are read again in every epoch


@dataclass(frozen=True)
class Item:
    """One picture: its place in a dataset, its id, class and original, and what was done to it (None: it is clean)."""

    dataset: Dataset
    index: int
    image: str
    name: str
    label: int
    original: str
    operator: str | None = None
    clean: bool = True


@dataclass(frozen=True)
class Subset:
    """Some images of a dataset, as a dataset."""

    samples: Dataset
    indices: Sequence[int]

    @property
    def name(self) -> str:
        """What the dataset is called in reports."""
        return self.samples.name

    @property
    def metadata(self) -> dict[str, str]:
        """What it is called, in MAITE's way."""
        return {"id": self.samples.name}

    @property
    def classes(self) -> tuple[str, ...] | None:
        """The names of its integer labels."""
        return self.samples.classes

    def __len__(self) -> int:
        return len(self.indices)

    def __getitem__(self, index: int, /) -> Sample:
        return self.samples[self.indices[index]]


def read_originals(
    dataset: Dataset,
    options: DataOptions,
    model: Model,
    seed: int,
    pool: ThreadPoolExecutor,
    advance: Callable[[int], None],
) -> list[Item]:
    """The labelled images of a dataset, each once; photographs of one scene have one original."""
    found, seen = [], set()
    for index, sample in _read(dataset, select_indices(dataset, options, seed), pool, advance):
        image = image_id(sample.image)
        if sample.label is None or image in seen:
            continue
        seen.add(image)
        scene = image if sample.original is None else _named(f"{dataset.name}\x1f{sample.original}")
        found.append((index, image, sample.name, sample.label, scene))
    if not found:
        raise LabelError(f"the images of {dataset.name} have no labels, and training needs them; add labels")
    classes = _aligned([label for *_, label, _ in found], dataset, options.labels == "index", model)
    return [Item(dataset, index, image, name, classes[label], scene) for index, image, name, label, scene in found]


def read_pictures(
    dataset: Dataset,
    by_index: bool,
    unrelated: bool,
    originals: Sequence[Item],
    model: Model,
    pool: ThreadPoolExecutor,
    advance: Callable[[int], None],
) -> list[Item]:
    """The pictures of a dataset, with the originals that they are of."""
    scenes = {item.image: item.original for item in originals}
    told: Callable[[int], Origin | None] = getattr(dataset, "origin", lambda index: None)
    found = []
    for index, sample in _read(dataset, list(range(len(dataset))), pool, advance):
        image, origin = image_id(sample.image), told(index)
        if origin is None and not unrelated:
            raise DataError(
                f"{sample.name} of {dataset.name} doesn't say which original it is of, which may be among the test images; "
                "give pictures of `brinell curate` or `brinell moved`, or a column original_id, or say unrelated: true"
            )
        if sample.label is None:
            raise LabelError(f"{sample.name} of {dataset.name} has no label, and training needs it; add labels")
        original = image if origin is None else origin.original
        operator = None if origin is None else origin.operator
        found.append((index, image, sample.name, sample.label, scenes.get(original, original), operator))
    if not found:
        raise DataError(f"{dataset.name} holds no failures to train on; leave it out, or make a run with failures")
    classes = _aligned([one[3] for one in found], dataset, by_index, model)
    return [
        Item(dataset, index, image, name, classes[label], original, operator, clean=False)
        for index, image, name, label, original, operator in found
    ]


def _read(
    dataset: Dataset, indices: list[int], pool: ThreadPoolExecutor, advance: Callable[[int], None]
) -> Iterator[tuple[int, Sample]]:
    """Images that can be read."""

    def look(index: int) -> tuple[int, Sample | None]:
        try:
            return index, dataset[index]
        except UnreadableImage:
            return index, None

    for index, sample in in_order(pool, look, indices, 32):
        advance(1)
        if sample is not None:
            yield index, sample


def _aligned(labels: list[Label], dataset: Dataset, by_index: bool, model: Model) -> dict[Label, int]:
    return align(labels, own=dataset.classes, model=model.classes, outputs=model.outputs, by_index=by_index)


def _named(text: str) -> str:
    """An id for what has none of its own."""
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def classes_of(items: Sequence[Item]) -> dict[str, int]:
    """The class of each original: that of its clean image, where there is one."""
    found: dict[str, int] = {}
    for item in sorted(items, key=lambda item: not item.clean):
        found.setdefault(item.original, item.label)
    return found


class Pictures:
    """The inputs of some items, and what is asked of them in batches: where the training is, if they fit there."""

    def __init__(
        self, items: Sequence[Item], preprocess: Preprocess, pool: ThreadPoolExecutor, device: torch.device
    ) -> None:
        self.items, self._preprocess, self._pool, self.device = items, preprocess, pool, device
        self.ids = torch.tensor([id_number(item.image) for item in items], dtype=torch.int64)
        self.labels = torch.tensor([item.label for item in items], dtype=torch.int64)
        self.clean = torch.tensor([item.clean for item in items], dtype=torch.bool)

    def __len__(self) -> int:
        return len(self.items)

    @cached_property
    def _resident(self) -> Tensor | None:
        """All inputs at once, if there is room."""
        shape = (self._preprocess.channels, self._preprocess.height, self._preprocess.width)
        if len(self.items) * shape[0] * shape[1] * shape[2] > MOST_BYTES:
            return None
        return self._loaded(range(len(self.items))).to(self.device)

    def inputs(self, rows: Tensor) -> Tensor:
        """uint8 inputs (B, C, H, W) on the device, of items by number (on the host)."""
        if self._resident is not None:
            return self._resident[rows.to(self.device, non_blocking=True)]
        return self._loaded(rows.tolist()).to(self.device, non_blocking=True)

    def _loaded(self, numbers: Sequence[int]) -> Tensor:
        inputs = torch.empty(
            len(numbers),
            self._preprocess.channels,
            self._preprocess.height,
            self._preprocess.width,
            dtype=torch.uint8,
        )
        places: dict[int, list[int]] = {}
        for place, number in enumerate(numbers):
            places.setdefault(id(self.items[number].dataset), []).append(place)
        for own in places.values():
            chosen = [self.items[numbers[place]] for place in own]
            entries = [Entry(item.index, item.image, item.name) for item in chosen]
            inputs[torch.tensor(own)] = load_inputs(chosen[0].dataset, entries, self._preprocess, self._pool)
        return inputs


def refuse_leaks(items: Sequence[Item], parts: dict[str, Part], measured: Sequence[Item]) -> None:
    """Raise if an image that is measured, or a version of its original, is among those that are trained on."""
    training = {item.original: item.name for item in items if parts[item.original] != "test"}
    images = {item.image: item.name for item in items if parts[item.original] != "test"}
    for item in measured:
        here = training.get(item.original) or images.get(item.image)
        if here is not None:
            raise DataError(
                f"{item.name} would be measured, but {here}, of the same original, is trained on; take one of them out"
            )
