"""The images that a model is hardened on: originals, and images made from them, each with its class."""

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
from brinell.engine.progress import Reporter
from brinell.engine.shards import Entry, in_order, load_inputs
from brinell.engine.survey import select_indices
from brinell.errors import DataError, LabelError, UnreadableImage
from brinell.hardening.options import FailureOptions
from brinell.hardening.splits import Part
from brinell.models.model import Model
from brinell.models.preprocess import Preprocess
from brinell.types import Dataset, Label, Origin, Sample, id_number, image_id

MOST_BYTES = 4 << 30  # of images kept in memory; if there are more, they are read again in every epoch


@dataclass(frozen=True)
class LabelledImage:
    """An image: its index in a dataset, its id, class and original, and the operator that made it, if known."""

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
        """Name of the dataset in reports."""
        return self.samples.name

    @property
    def metadata(self) -> dict[str, str]:
        """Name of the dataset, as MAITE expects it."""
        return {"id": self.samples.name}

    @property
    def classes(self) -> tuple[str, ...] | None:
        """Names of the integer labels."""
        return self.samples.classes

    def __len__(self) -> int:
        return len(self.indices)

    def __getitem__(self, index: int, /) -> Sample:
        return self.samples[self.indices[index]]


@dataclass(frozen=True)
class ImageReader:
    """Reads images and maps their labels to a model's classes."""

    model: Model
    seed: int
    pool: ThreadPoolExecutor
    reporter: Reporter

    def read_originals(self, dataset: Dataset, options: DataOptions, what: str = "images") -> list[LabelledImage]:
        """Return the labelled images of a dataset, each once; photographs of one scene share an original."""
        advance = self.reporter.stage(f"reading {what}", len(dataset), "images")
        found, seen = [], set()
        for index, sample in self._read(dataset, select_indices(dataset, options, self.seed), advance):
            image = image_id(sample.image)
            if sample.label is None or image in seen:
                continue
            seen.add(image)
            scene = image if sample.original is None else _id_of(f"{dataset.name}\x1f{sample.original}")
            found.append((index, image, sample.name, sample.label, scene))
        if not found:
            raise LabelError(f"the images of {dataset.name} have no labels, which training needs; add labels")
        classes = self._align([label for *_, label, _ in found], dataset, options.labels == "index")
        return [
            LabelledImage(dataset, index, image, name, classes[label], scene) for index, image, name, label, scene in found
        ]

    def read_failures(
        self, dataset: Dataset, options: FailureOptions, originals: Sequence[LabelledImage]
    ) -> list[LabelledImage]:
        """Return the images of a dataset of failures, with their originals."""
        advance = self.reporter.stage(f"reading failures of {dataset.name}", len(dataset), "images")
        scenes = {item.image: item.original for item in originals}
        origin_of: Callable[[int], Origin | None] = getattr(dataset, "origin", lambda index: None)
        found = []
        for index, sample in self._read(dataset, list(range(len(dataset))), advance):
            image, origin = image_id(sample.image), origin_of(index)
            if origin is None and not options.unrelated:
                raise DataError(
                    f"{sample.name} of {dataset.name} doesn't name its original, which may be among the test images; use "
                    "images of `brinell curate` or `brinell export-moved`, add a column original_id, or set unrelated: true"
                )
            if sample.label is None:
                raise LabelError(f"{sample.name} of {dataset.name} has no label, which training needs; add labels")
            original = image if origin is None else origin.original
            operator = None if origin is None else origin.operator
            found.append((index, image, sample.name, sample.label, scenes.get(original, original), operator))
        if not found:
            raise DataError(f"{dataset.name} has no failures to train on; remove it, or use a run with failures")
        classes = self._align([one[3] for one in found], dataset, options.labels == "index")
        return [
            LabelledImage(dataset, index, image, name, classes[label], original, operator, clean=False)
            for index, image, name, label, original, operator in found
        ]

    def _read(self, dataset: Dataset, indices: list[int], advance: Callable[[int], None]) -> Iterator[tuple[int, Sample]]:
        """Yield the images that can be read."""

        def read(index: int) -> tuple[int, Sample | None]:
            try:
                return index, dataset[index]
            except UnreadableImage:
                return index, None

        for index, sample in in_order(self.pool, read, indices, 32):
            advance(1)
            if sample is not None:
                yield index, sample

    def _align(self, labels: list[Label], dataset: Dataset, by_index: bool) -> dict[Label, int]:
        return align(labels, own=dataset.classes, model=self.model.classes, outputs=self.model.outputs, by_index=by_index)


def _id_of(text: str) -> str:
    """Return an id for a named scene."""
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def classes_of(items: Sequence[LabelledImage]) -> dict[str, int]:
    """Return the class of each original: that of its clean image, if there is one."""
    found: dict[str, int] = {}
    for item in sorted(items, key=lambda item: not item.clean):
        found.setdefault(item.original, item.label)
    return found


class ModelInputs:
    """Images as model inputs, in batches; kept on the device if they fit."""

    def __init__(
        self, items: Sequence[LabelledImage], preprocess: Preprocess, pool: ThreadPoolExecutor, device: torch.device
    ) -> None:
        self.items, self._preprocess, self._pool, self.device = items, preprocess, pool, device
        self.ids = torch.tensor([id_number(item.image) for item in items], dtype=torch.int64)
        self.labels = torch.tensor([item.label for item in items], dtype=torch.int64)
        self.clean = torch.tensor([item.clean for item in items], dtype=torch.bool)

    def __len__(self) -> int:
        return len(self.items)

    @cached_property
    def _resident(self) -> Tensor | None:
        """All inputs at once, if they fit."""
        shape = (self._preprocess.channels, self._preprocess.height, self._preprocess.width)
        if len(self.items) * shape[0] * shape[1] * shape[2] > MOST_BYTES:
            return None
        return self._load(range(len(self.items))).to(self.device)

    def select(self, rows: Tensor) -> Tensor:
        """Return uint8 inputs (B, C, H, W) on the device, by number (`rows` on the host)."""
        if self._resident is not None:
            return self._resident[rows.to(self.device, non_blocking=True)]
        return self._load(rows.tolist()).to(self.device, non_blocking=True)

    def _load(self, numbers: Sequence[int]) -> Tensor:
        inputs = torch.empty(
            len(numbers),
            self._preprocess.channels,
            self._preprocess.height,
            self._preprocess.width,
            dtype=torch.uint8,
        )
        by_dataset: dict[int, list[int]] = {}
        for position, number in enumerate(numbers):
            by_dataset.setdefault(id(self.items[number].dataset), []).append(position)
        for positions in by_dataset.values():
            own = [self.items[numbers[position]] for position in positions]
            entries = [Entry(item.index, item.image, item.name) for item in own]
            inputs[torch.tensor(positions)] = load_inputs(own[0].dataset, entries, self._preprocess, self._pool)
        return inputs


def refuse_leaks(items: Sequence[LabelledImage], parts: dict[str, Part], measured: Sequence[LabelledImage]) -> None:
    """Raise if an image that is measured, or another image of its original, is trained on."""
    training = {item.original: item.name for item in items if parts[item.original] != "test"}
    images = {item.image: item.name for item in items if parts[item.original] != "test"}
    for item in measured:
        leaked = training.get(item.original) or images.get(item.image)
        if leaked is not None:
            raise DataError(
                f"{item.name} would be measured, but {leaked}, of the same original, is trained on; remove one of them"
            )
