"""Datasets of image files: class folders, folders with a metadata file, and manifests."""

from __future__ import annotations

import csv
import logging
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from torch import Tensor

from brinell.config.data import DataOptions
from brinell.datasets.columns import (
    LABEL_COLUMNS,
    MASK_COLUMN,
    PATH_COLUMNS,
    find_credits,
    find_metadata,
    read_label,
    read_origin,
    text_or_none,
)
from brinell.datasets.decode import SUFFIXES, read_image
from brinell.datasets.mask_files import read_classes, read_mask
from brinell.datasets.sources import METADATA, metadata_file
from brinell.documents import load_json
from brinell.errors import DataError
from brinell.types import Label, Origin, Sample

LOG = logging.getLogger(__name__)
A = TypeVar("A")
# endings of pictures that can't be decoded here
OTHER_PICTURES = frozenset(
    [
        ".heic",
        ".heif",
        ".avif",
        ".jxl",
        ".svg",
        ".eps",
        ".psd",
        ".tga",
        ".ico",
        ".exr",
        ".hdr",
        ".raw",
        ".dng",
        ".cr2",
        ".nef",
    ]
)


@dataclass(frozen=True)
class Files:
    """Image files with one label each, read on access.

    `groups` are each image's original and variant, `credited` what is known about its author and licence, `origins` the
    images it was derived from, `metadata` further columns, and `masks` the files with the classes of its pixels.
    """

    name: str
    root: Path
    paths: Sequence[str]
    labels: Sequence[Label | None]
    classes: tuple[str, ...] | None = None
    groups: Sequence[tuple[str | None, str | None]] | None = None
    credited: Sequence[Mapping[str, str]] = ()
    origins: Sequence[Origin | None] = ()
    metadata: Sequence[Mapping[str, str]] = ()
    masks: Sequence[str | None] = ()

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int, /) -> Sample:
        path = self.paths[index]
        original, variant = self.groups[index] if self.groups is not None else (None, None)
        image = read_image(self.root / path)
        facts = self.metadata[index] if self.metadata else {}
        return Sample(image, self.labels[index], to_text(path), original=original, variant=variant, metadata=facts)

    def at(self, indices: Sequence[int]) -> Files:
        """Return the dataset of some of the images."""

        def some(values: Sequence[A]) -> list[A]:
            return [values[index] for index in indices] if values else []

        return replace(
            self,
            paths=some(self.paths),
            labels=some(self.labels),
            groups=None if self.groups is None else some(self.groups),
            credited=some(self.credited),
            origins=some(self.origins),
            metadata=some(self.metadata),
            masks=some(self.masks),
        )

    @property
    def unlabelled(self) -> bool:
        """Whether no image has a label."""
        return all(label is None for label in self.labels) and not self.masks

    def mask(self, index: int) -> Tensor | None:
        """Return the mask of an image; None if it has none."""
        file = self.masks[index] if self.masks else None
        return None if file is None else read_mask(self.root / file)

    def credits(self, index: int) -> Mapping[str, str]:
        """Return what is known about an image's author and licence."""
        return self.credited[index] if self.credited else {}

    def origin(self, index: int) -> Origin | None:
        """Return the origin of an image, if it is known."""
        return self.origins[index] if self.origins else None


def to_text(name: str) -> str:
    """Return the name of a file as valid Unicode; file systems allow any bytes."""
    return os.fsencode(name).decode("utf-8", "backslashreplace")


def open_folders(root: Path, options: DataOptions) -> Files:
    """Open a folder of class folders (ImageFolder), whose names are the labels, or a folder of unlabelled images."""
    entries = sorted(entry.name for entry in os.scandir(root) if not entry.name.startswith("."))
    folders = [
        name for name in entries if (root / name).is_dir()
    ]  # unlike a DirEntry, a path that is a loop of links isn't
    found = {folder: list_images(root, folder) for folder in folders}
    classes = tuple(folder for folder, paths in found.items() if paths)
    if not classes:
        unlabelled = list_images(root)
        if not unlabelled:
            raise DataError(
                f"there are no images in {root}: expected class folders with images, a metadata.jsonl next to images, or "
                f"images (known endings: {' '.join(sorted(SUFFIXES))})"
            )
        _report_left_out(root, loose=False)
        return Files(to_text(root.resolve().name), root, unlabelled, [None] * len(unlabelled))
    _report_left_out(root)
    pairs = [(path, index) for index, folder in enumerate(classes) for path in found[folder]]
    names = tuple(map(to_text, classes))
    return Files(to_text(root.resolve().name), root, [path for path, _ in pairs], [index for _, index in pairs], names)


def _report_left_out(root: Path, *, loose: bool = True) -> None:
    """Say which pictures are left out: those of unknown kinds, and, with class folders, those outside of them."""
    names = [name for _, _, found in os.walk(root) for name in found]
    others = Counter(suffix for name in names if (suffix := Path(name).suffix.lower()) in OTHER_PICTURES)
    for suffix, count in sorted(others.items()):
        LOG.warning(
            "%s of %s can't be read and are left out: convert them to PNG or JPEG", f"{count:,} {suffix} files", root
        )
    outside = sum(Path(entry.name).suffix.lower() in SUFFIXES for entry in os.scandir(root)) if loose else 0
    if outside:
        LOG.warning(
            "%s in %s are left out: they are in no class folder, so they have no label", f"{outside:,} images", root
        )


def list_images(root: Path, folder: str = "") -> list[str]:
    """Return the paths of all image files below a folder, sorted, relative to the root."""
    found = []
    for parent, folders, names in os.walk(root / folder):
        folders.sort()
        found += [
            os.path.relpath(os.path.join(parent, n), root) for n in sorted(names) if Path(n).suffix.lower() in SUFFIXES
        ]
    return found


def open_metadata(folder: Path, options: DataOptions) -> Files:
    """Open a folder of images with a metadata file."""
    file = metadata_file(folder)
    if file is None:
        raise DataError(f"{folder} has none of {', '.join(METADATA)}")
    return open_manifest(file, options)


def open_manifest(path: Path, options: DataOptions) -> Files:
    """Open a CSV, JSONL or Parquet file of paths (relative to it) and labels."""
    rows = read_rows(path)
    if not rows:
        raise DataError(f"the manifest {path} has no rows; expected columns such as file_name and label")
    if not all(isinstance(row, dict) for row in rows):
        raise DataError(f'the manifest {path} should have one object per line, such as {{"file_name": …, "label": …}}')
    wide = next((number for number, row in enumerate(rows, 1) if None in row), None)
    if wide is not None:
        raise DataError(f"row {wide} of {path} has more cells than the first line has columns; quote texts with commas")
    columns = list(rows[0])
    path_column = _first_of(columns, PATH_COLUMNS)
    if path_column is None:
        raise DataError(_no_column(path, columns, PATH_COLUMNS, "image path"))
    if options.label_column is not None and options.label_column not in columns:
        raise DataError(_no_column(path, columns, [options.label_column], "label"))
    label = options.label_column or _first_of(columns, LABEL_COLUMNS)
    labels = [read_label(row.get(label)) if label else None for row in rows]
    pathless = next((number for number, row in enumerate(rows, 1) if not row.get(path_column)), None)
    if pathless is not None:
        raise DataError(f"row {pathless} of {path} has no {path_column}; add the path of its image")
    paths = [str(row[path_column]) for row in rows]
    _refuse_two_labels(path, paths, labels)
    name = path.parent.resolve().name if path.name in METADATA else path.stem
    groups = None
    if "original" in columns and "variant" in columns:
        groups = [(text_or_none(row.get("original")), text_or_none(row.get("variant"))) for row in rows]
    origins = [read_origin(row) for row in rows] if "original_id" in columns else []
    credited = [find_credits(row) for row in rows]
    metadata = [find_metadata(row, (label or "",)) for row in rows]
    masks = [text_or_none(row.get(MASK_COLUMN)) for row in rows] if MASK_COLUMN in columns else []
    classes = read_classes(path.parent) if masks else None
    return Files(name, path.parent, paths, labels, classes, groups, credited, origins, metadata, masks)


def _refuse_two_labels(path: Path, paths: Sequence[str], labels: Sequence[Label | None]) -> None:
    """Raise if an image is listed with two labels."""
    known: dict[str, tuple[int, Label | None]] = {}
    for number, (name, label) in enumerate(zip(paths, labels, strict=True), 1):
        first, held = known.setdefault(name, (number, label))
        if held != label:
            raise DataError(
                f"{path} has two labels for {name}: {held!r} in row {first} and {label!r} in row {number}; keep one of them"
            )


def read_rows(path: Path) -> list[dict[str, Any]]:
    """Return the rows of a CSV, JSONL or Parquet file."""
    try:
        if path.suffix == ".parquet":
            import pyarrow.parquet

            return list(pyarrow.parquet.read_table(path).to_pylist())
        with path.open(encoding="utf-8-sig", newline="") as file:
            if path.suffix == ".csv":
                return list(csv.DictReader(file))
            return [load_json(line, unique=True) for line in file if line.strip()]
    except (OSError, ValueError, csv.Error) as error:
        raise DataError(f"the manifest {path} can't be read: {error}") from error


def _first_of(columns: list[str], names: Sequence[str]) -> str | None:
    return next((name for name in names if name in columns), None)


def _no_column(path: Path, columns: list[str], expected: Sequence[str], what: str) -> str:
    return f"{path} has no column for the {what}: expected {' or '.join(expected)}; it has {', '.join(columns)}"
