"""What is known about the images of a copy, kept while it is written, so that an interrupted copy can be resumed.

A unit is a part of the images at all settings. Its record, a file in `.unfinished`, is written after its images: a unit
with a record is complete.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from brinell.runs.store import Store
from brinell.types import Label

UNFINISHED = ".unfinished"  # folder of the records, which is removed when the copy is complete


@dataclass(frozen=True)
class Record:
    """One original: its index, the name of its files, its facts, its size when written, and its boxes at each setting.

    A box that left the image is None.
    """

    index: int
    name: str
    label: Label | None
    class_name: str | None
    original: str
    original_id: str
    height: int
    width: int
    credits: dict[str, str] = field(default_factory=dict)
    box_labels: list[Label] | None = None
    boxes: list[list[list[float] | None]] = field(default_factory=list)
    metadata: dict[str, str] = field(default_factory=dict)

    def objects(self, setting: int) -> list[tuple[int, Label, list[float]]]:
        """Return the number, label and box (xyxy) of each object that is in the image at a setting."""
        if self.box_labels is None:
            return []
        found = enumerate(zip(self.box_labels, self.boxes[setting], strict=True))
        return [(number, label, box) for number, (label, box) in found if box is not None]

    def facts(self) -> dict[str, Any]:
        """Return what metadata says about the original."""
        label = self.label if self.class_name is None else self.class_name
        return {**self.metadata, "label": label, "original": self.original, "original_id": self.original_id, **self.credits}


@dataclass(frozen=True)
class UnitRecord:
    """A finished unit: its images, those that could not be read (name and problem), and the bytes that were written."""

    records: list[Record]
    skipped: list[tuple[str, str]]
    size: int


@dataclass(frozen=True)
class Journal:
    """The records of finished units in the folder of a copy."""

    out: Store

    def write(self, unit: int, record: UnitRecord) -> None:
        """Store the record of a finished unit."""
        content = json.dumps(asdict(record), ensure_ascii=False)
        self.out.write(content.encode(), UNFINISHED, f"{unit:06}.json")

    def finished(self) -> set[int]:
        """Return the numbers of finished units."""
        if not self.out.exists(UNFINISHED):
            return set()
        files = (path.rpartition("/")[2] for path in self.out.fs.find(self.out.path(UNFINISHED)))
        return {int(file.removesuffix(".json")) for file in files if file.removesuffix(".json").isdigit()}

    def read(self, unit: int) -> UnitRecord:
        """Return the record of a finished unit."""
        content = json.loads(self.out.read(UNFINISHED, f"{unit:06}.json"))
        records = [Record(**record) for record in content["records"]]
        return UnitRecord(records, [(name, problem) for name, problem in content["skipped"]], content["size"])

    def records(self, units: Sequence[int]) -> Iterator[Record]:
        """Yield the records of all images, unit by unit."""
        for unit in units:
            yield from self.read(unit).records
