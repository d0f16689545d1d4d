"""Shards of WebDataset: tar files in which files of the same name, up to the first dot, are one sample.

Headers are read once; an image is read where it lies, so shards are neither unpacked nor held in memory.
"""

from __future__ import annotations

import json
import re
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from glob import glob
from itertools import groupby
from pathlib import Path, PurePosixPath
from typing import Any

from brinell.config.data import DataOptions
from brinell.datasets.columns import LABEL_COLUMNS, find_credits, find_metadata, read_label, read_origin
from brinell.datasets.decode import SUFFIXES, decode
from brinell.datasets.objects import read_objects
from brinell.errors import DataError
from brinell.types import Label, Origin, Sample

_RANGE = re.compile(r"\{(\d+)\.\.(\d+)\}")


@dataclass(frozen=True)
class _Part:
    """Where the content of a file lies in a shard."""

    start: int
    size: int


@dataclass(frozen=True)
class _Entry:
    """One sample of a shard: its key, its image, and its other files by their kind."""

    shard: Path
    key: str
    image: _Part
    others: Mapping[str, _Part]

    def read(self, part: _Part) -> bytes:
        """Return the content of one of its files."""
        try:
            with self.shard.open("rb") as file:
                file.seek(part.start)
                return file.read(part.size)
        except OSError as error:
            raise DataError(f"{self.shard} can't be read: {error.strerror or error}") from error


@dataclass(frozen=True)
class Shards:
    """The samples of tar files. Labels are in NAME.json (`label`) or NAME.cls, boxes in NAME.json (`objects`)."""

    name: str
    entries: Sequence[_Entry]
    label_column: str | None = None
    classes: tuple[str, ...] | None = None

    def __len__(self) -> int:
        return len(self.entries)

    def __getitem__(self, index: int, /) -> Sample:
        entry = self.entries[index]
        name = f"{entry.shard.name}/{entry.key}"
        facts = self._facts(index)
        boxes, box_labels = read_objects(facts.get("objects"), name)
        image = decode(entry.read(entry.image), name)
        metadata = find_metadata(facts, (self.label_column or "",))
        return Sample(image, self._label(entry, facts), entry.key, boxes, box_labels, metadata=metadata)

    def _facts(self, index: int) -> dict[str, Any]:
        entry = self.entries[index]
        if "json" not in entry.others:
            return {}
        try:
            facts = json.loads(entry.read(entry.others["json"]))
        except ValueError as error:
            raise DataError(f"{entry.shard}: {entry.key}.json is not valid JSON: {error}") from None
        return facts if isinstance(facts, dict) else {}

    def _label(self, entry: _Entry, facts: Mapping[str, Any]) -> Label | None:
        column = self.label_column or next((name for name in LABEL_COLUMNS if name in facts), None)
        if column is not None and column in facts:
            return read_label(facts[column])
        if "cls" in entry.others:
            return read_label(entry.read(entry.others["cls"]).decode("utf-8", "replace").strip())
        return None

    def credits(self, index: int) -> Mapping[str, str]:
        """Return what is known about an image's author and licence."""
        return find_credits(self._facts(index))

    def origin(self, index: int) -> Origin | None:
        """Return the origin of an image, if it is known."""
        return read_origin(self._facts(index))


def open_shards(path: Path, options: DataOptions) -> Shards:
    """Open a tar file, a folder of tar files, or a pattern of them: shards/{000000..000009}.tar, shards/*.tar."""
    files = sorted(path.glob("*.tar")) if path.is_dir() else [Path(file) for file in _expand(str(path))]
    if not files:
        raise DataError(f"there are no tar files at {path}; expected FILE.tar, a folder of them or {{000000..000009}}.tar")
    entries = [entry for file in files for entry in _index(file)]
    if not entries:
        raise DataError(f"{path} holds no images; expected files such as 000001.jpg and 000001.cls")
    name = path.resolve().name if path.is_dir() else path.stem
    return Shards(name, entries, options.label_column)


def _expand(pattern: str) -> list[str]:
    """Return the files of a pattern: ranges in braces as WebDataset writes them, or wildcards."""
    match = _RANGE.search(pattern)
    if match is None:
        return sorted(glob(pattern)) if any(sign in pattern for sign in "*?[") else [pattern]  # noqa: PTH207
    first, last = match.groups()
    numbers = range(int(first), int(last) + 1)
    return [
        file
        for number in numbers
        for file in _expand(pattern[: match.start()] + str(number).zfill(len(first)) + pattern[match.end() :])
    ]


def _index(file: Path) -> Iterator[_Entry]:
    """Yield the samples of a shard from its headers; consecutive files of one key are a sample."""
    try:
        with tarfile.open(file, "r:") as tar:
            members = [(*_split(one.name), _Part(one.offset_data, one.size)) for one in tar if one.isreg()]
    except (OSError, tarfile.TarError) as error:
        raise DataError(f"{file} can't be read as a tar file: {error}; unpack compressed ones first") from error
    for key, parts in groupby(members, key=lambda member: member[0]):
        kinds = {kind: part for _, kind, part in parts}
        image = next((kind for kind in kinds if f".{kind.rpartition('.')[2]}" in SUFFIXES), None)
        if image is not None:
            yield _Entry(file, key, kinds[image], {kind: part for kind, part in kinds.items() if kind != image})


def _split(name: str) -> tuple[str, str]:
    """Return the key of a file, its path up to the first dot of its name, and its kind in lower case."""
    path = PurePosixPath(name)
    stem, _, kind = path.name.partition(".")
    return str(path.with_name(stem)) if stem else "", kind.lower()
