"""Surveys a dataset: reads every image once for its id, label and size, and lists what can't be read."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from torch import Tensor

from brinell.config.data import DataOptions
from brinell.datasets.files import to_text
from brinell.datasets.objects import ObjectRule
from brinell.draws import permutation
from brinell.engine.shards import chunks, in_order
from brinell.engine.truth.masks import read_mask
from brinell.errors import DataError, UnreadableImage
from brinell.runs.arrow import SAMPLES_TABLE
from brinell.types import Dataset, Label, image_id

NO_MASK = "it has no mask"
Record = dict[str, Any]  # a sample, by the columns of its table


def select_indices(dataset: Dataset, options: DataOptions, seed: int) -> list[int]:
    """Return the indices of the images to use, in order."""
    order = permutation(len(dataset), seed) if options.shuffle else list(range(len(dataset)))
    return order[: options.limit]


@dataclass(frozen=True)
class Survey:
    """How a dataset is surveyed: which of its images, and what is required of them. `keep` gets each that can be used.

    `elsewhere` reads images in the place of `read_some`, in other processes.
    """

    dataset: Dataset
    indices: list[int]
    pool: ThreadPoolExecutor
    strict: bool
    objects: ObjectRule | None = None
    masks: bool = False
    keep: Callable[[int, Tensor], None] = lambda index, image: None
    elsewhere: Callable[[Sequence[int]], list[Record]] | None = None

    def table(self, advance: Callable[[int], None]) -> pa.Table:
        """Return a table of the samples. Images that can't be read, or have none of the required objects or `masks`, are
        listed with the reason; `strict` raises at the first unreadable one.
        """
        return self.checked(self.read(self.indices, advance))

    def read(self, indices: Sequence[int], advance: Callable[[int], None]) -> pa.Table:
        """Return the samples at some indices."""
        if self.objects is not None:
            self.objects.check(self.dataset)
        records = []
        read = self.elsewhere or self.read_some
        for some in in_order(self.pool, lambda part: read(indices[part]), chunks(len(indices)), 64):
            records += some
            advance(len(some))
        return pa.Table.from_pylist(records, schema=SAMPLES_TABLE)

    def read_some(self, indices: Sequence[int]) -> list[Record]:
        """Return the samples at some indices as plain data, one after the other."""
        return [self._read_one(index) for index in indices]

    def checked(self, table: pa.Table) -> pa.Table:
        """Return a table of all samples, or raise if none of them can be used."""
        if table["problem"].null_count == 0:
            first = table["problem"][0] if len(table) else "it is empty"
            can = "used" if self.objects or self.masks else "read"
            raise DataError(f"none of the {len(table)} images of {self.dataset.name} can be {can} (the first: {first})")
        return table

    def _read_one(self, index: int) -> Record:
        try:
            sample = self.dataset[index]
            mask = read_mask(self.dataset, index) if self.masks else None
        except UnreadableImage as error:
            if self.strict:
                raise
            return {"index": index, "name": to_text(error.name), "problem": error.problem}
        objects = self.objects
        chosen = None if objects is None else objects.index(sample, self.dataset.classes)
        label = sample.label if chosen is None else sample.box_labels[chosen]
        problem = _missing(objects if chosen is None else None, self.masks and mask is None)
        if problem is None:
            self.keep(index, sample.image)
        return {
            "index": index,
            "image": image_id(sample.image),
            "name": sample.name,
            "label": None if label is None else str(label),
            "label_is_index": isinstance(next(iter(sample.box_labels), None) if label is None else label, int),
            "height": sample.image.shape[1],
            "width": sample.image.shape[2],
            "problem": problem,
            "boxes": None if sample.boxes is None else sample.boxes.tolist(),
            "box_labels": None if sample.boxes is None else [str(each) for each in sample.box_labels],
            "object": chosen,
            "original": sample.original,
            "variant": sample.variant,
            "metadata": list(sample.metadata.items()),
            "mask": None if mask is None else image_id(mask),
        }


def _missing(objects: ObjectRule | None, mask: bool) -> str | None:
    """Return why an image is left out: it has none of the required objects, or no mask."""
    return NO_MASK if mask else None if objects is None else objects.missing


def labels_of(samples: pa.Table) -> list[Label | None]:
    """Return the labels as in the dataset."""
    pairs = zip(samples["label"].to_pylist(), samples["label_is_index"].to_pylist(), strict=True)
    return [int(label) if label is not None and is_index else label for label, is_index in pairs]


def box_labels_of(samples: pa.Table) -> list[list[Label]]:
    """Return the labels of the images' boxes as in the dataset: indices or names, like those of the images."""
    pairs = zip(samples["box_labels"].to_pylist(), samples["label_is_index"].to_pylist(), strict=True)
    return [[int(label) if is_index else label for label in labels or ()] for labels, is_index in pairs]


def same_metadata(stored: pa.Table, samples: pa.Table) -> bool:
    """Whether stored samples have the metadata that the dataset has now."""
    return "metadata" in stored.column_names and stored["metadata"].to_pylist() == samples["metadata"].to_pylist()


def data_fingerprint(samples: pa.Table) -> str:
    """Return 16 hex digits that identify all images and labels, in order."""
    digest = hashlib.blake2b(digest_size=8)
    columns = (samples[name].to_pylist() for name in ("image", "label", "boxes", "box_labels", "object", "mask"))
    for image, label, boxes, box_labels, chosen, mask in zip(*columns, strict=True):
        objects = "" if boxes is None else f"\x1f{boxes}\x1f{box_labels}\x1f{chosen}"
        pixels = "" if mask is None else f"\x1f{mask}"
        digest.update(f"{image}\x1f{label}{objects}{pixels}\n".encode())
    return digest.hexdigest()
