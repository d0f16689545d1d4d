"""Makes the images of a copy: batches of originals under each setting, several at once, encoded as files."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import torch
from torch import Tensor

from brinell.boxes import areas, clip_boxes
from brinell.corruption.layouts import Copy, Layout
from brinell.corruption.originals import FileNames, Original, Skipped, class_of
from brinell.corruption.records import Record, UnitRecord
from brinell.engine.shards import in_order
from brinell.perturb.perturbation import Perturbation
from brinell.pictures import encode_image
from brinell.types import id_number

BATCH = 16  # originals that are perturbed together, where they have one size


@dataclass(frozen=True)
class _Batch:
    """Originals in memory, and their records."""

    originals: Sequence[Original]
    records: Sequence[Record]


@dataclass(frozen=True)
class Renderer:
    """Renders originals at the settings of a copy, on a device, in the `workers` threads of a pool."""

    copy: Copy
    layout: Layout
    pool: ThreadPoolExecutor
    workers: int
    device: torch.device

    def write_unit(
        self, number: int, originals: Iterable[Original | Skipped], names: FileNames, advance: Callable[[int], None]
    ) -> UnitRecord:
        """Write the images of a unit at all settings, and return its record."""
        records: list[Record] = []
        skipped: list[tuple[str, str]] = []
        size = 0

        def jobs() -> Iterator[tuple[_Batch, int]]:
            for part in _in_batches(originals, BATCH):
                found = [one for one in part if isinstance(one, Original)]
                skipped.extend((one.name, one.problem) for one in part if isinstance(one, Skipped))
                batch = _Batch(found, [self.record(one, names) for one in found])
                records.extend(batch.records)
                yield from ((batch, setting) for setting in range(len(self.copy.settings)))

        def make(job: tuple[_Batch, int]) -> tuple[_Batch, int, list[bytes]]:
            return (*job, self.files(job[0].originals, job[1]))

        with self.layout.open_unit(number) as write:
            for batch, setting, files in in_order(self.pool, make, jobs(), self.workers):
                for record, data in zip(batch.records, files, strict=True):
                    write(setting, record, data)
                    size += len(data)
                advance(len(files))
        return UnitRecord(records, skipped, size)

    def files(self, originals: Sequence[Original], setting: int) -> list[bytes]:
        """Return originals at a setting as the bytes of image files."""
        perturbation, options = self.copy.settings[setting].perturbation, self.copy.options
        shapes: dict[tuple[int, ...], list[int]] = defaultdict(list)
        for number, original in enumerate(originals):
            shapes[tuple(original.sample.image.shape)].append(number)
        files: dict[int, bytes] = {}
        for numbers in shapes.values():
            images = torch.stack([originals[number].sample.image for number in numbers]).to(self.device)
            ids = torch.tensor([id_number(originals[number].id) for number in numbers], dtype=torch.int64)
            changed = perturbation.images(images, ids).cpu()
            for number, image in zip(numbers, changed, strict=True):
                files[number] = encode_image(image, options.file_format, options.quality)
        return [files[number] for number in range(len(originals))]

    def record(self, original: Original, names: FileNames) -> Record:
        """Return the record of an original: its names, labels, and boxes at every setting."""
        sample, dataset = original.sample, self.copy.dataset
        class_name = class_of(sample.label, dataset.classes)
        height, width = sample.image.shape[1:]
        boxes = None if sample.boxes is None else clip_boxes(sample.boxes, height, width)
        return Record(
            index=original.index,
            name=names.name(original, class_name if self.layout.by_class else None),
            label=sample.label,
            class_name=class_name,
            original=sample.name,
            original_id=original.id,
            height=height,
            width=width,
            credits=dict(dataset.credits(original.index)) if hasattr(dataset, "credits") else {},
            box_labels=None if boxes is None else list(sample.box_labels),
            metadata=dict(sample.metadata),
            boxes=[] if boxes is None else [_place(boxes, one.perturbation, height, width) for one in self.copy.settings],
        )


def _place(boxes: Tensor, perturbation: Perturbation, height: int, width: int) -> list[list[float] | None]:
    """Return boxes under a perturbation; None for those that left the image."""
    moved = perturbation.boxes(boxes, height, width)
    each = zip(moved.tolist(), areas(moved).tolist(), strict=True)
    return [[round(value, 3) for value in box] if area > 0 else None for box, area in each]


def _in_batches(items: Iterable[Original | Skipped], size: int) -> Iterator[tuple[Original | Skipped, ...]]:
    iterator = iter(items)
    while batch := tuple(one for _, one in zip(range(size), iterator, strict=False)):
        yield batch
