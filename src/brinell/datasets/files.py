"""Datasets of image files: class folders, folders with a metadata file, and manifests."""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from brinell.datasets.decode import SUFFIXES, read_image
from brinell.errors import DataError
from brinell.types import Label, Origin, Sample

PATH_COLUMNS = ("file_name", "path", "file", "image", "filename", "filepath", "image_path")
LABEL_COLUMNS = ("label", "labels", "class", "class_name", "category", "target", "wnid", "synset", "label_name")
CREDITS = (
    "author", "artist", "creator", "photographer", "attribution", "credit", "licence", "license", "copyright",
    "source_url", "flickr_url", "coco_url", "url",
)  # fmt: skip
METADATA = ("metadata.jsonl", "metadata.csv", "metadata.parquet")


@dataclass(frozen=True)
class Files:
    """Image files with one label each, read when they are asked for. `credited` is what is known of each one's author and
    licence, `origins` which images they were made of.
    """

    name: str
    root: Path
    paths: Sequence[str]
    labels: Sequence[Label | None]
    classes: tuple[str, ...] | None = None
    groups: Sequence[tuple[str | None, str | None]] | None = None  # each one's original and variant
    credited: Sequence[Mapping[str, str]] = ()
    origins: Sequence[Origin | None] = ()

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int, /) -> Sample:
        path = self.paths[index]
        original, variant = self.groups[index] if self.groups is not None else (None, None)
        return Sample(read_image(self.root / path), self.labels[index], path, original=original, variant=variant)

    def credits(self, index: int) -> Mapping[str, str]:
        """What is known of an image's author and licence."""
        return self.credited[index] if self.credited else {}

    def origin(self, index: int) -> Origin | None:
        """Which image it was made of, where that is known."""
        return self.origins[index] if self.origins else None


def credits_of(facts: Mapping[str, Any]) -> dict[str, str]:
    """Those of an image's facts that tell its author and licence."""
    return {name: str(facts[name]) for name in CREDITS if facts.get(name) not in (None, "")}


def class_folders(root: Path) -> Files:
    """One folder a class (ImageFolder); the folders' names are the labels. A folder without any holds unlabelled images."""
    folders = sorted(entry.name for entry in os.scandir(root) if entry.is_dir() and not entry.name.startswith("."))
    found = {folder: images_under(root, folder) for folder in folders}
    classes = tuple(folder for folder, paths in found.items() if paths)
    if not classes:
        loose = images_under(root)
        if not loose:
            raise DataError(
                f"there are no images in {root}: expected class folders with images, a metadata.jsonl beside images, or "
                f"images themselves (known endings: {' '.join(sorted(SUFFIXES))})"
            )
        return Files(root.resolve().name, root, loose, [None] * len(loose))
    pairs = [(path, index) for index, folder in enumerate(classes) for path in found[folder]]
    return Files(root.resolve().name, root, [path for path, _ in pairs], [index for _, index in pairs], classes)


def images_under(root: Path, folder: str = "") -> list[str]:
    """All image files below a folder, in order, relative to the root."""
    found = []
    for place, folders, names in os.walk(root / folder):
        folders.sort()
        found += [
            os.path.relpath(os.path.join(place, n), root) for n in sorted(names) if Path(n).suffix.lower() in SUFFIXES
        ]
    return found


def manifest(path: Path, label_column: str | None = None) -> Files:
    """A CSV, JSONL or Parquet file of paths (relative to it) and labels; metadata.jsonl in a folder of images is one."""
    rows = _rows(path)
    if not rows:
        raise DataError(f"the manifest {path} holds no rows; expected columns such as file_name and label")
    if not all(isinstance(row, dict) for row in rows):
        raise DataError(f'the manifest {path} should hold one object a line, such as {{"file_name": …, "label": …}}')
    columns = list(rows[0])
    path_column = _known(columns, PATH_COLUMNS)
    if path_column is None:
        raise DataError(_no_column(path, columns, PATH_COLUMNS, "image path"))
    if label_column is not None and label_column not in columns:
        raise DataError(_no_column(path, columns, [label_column], "label"))
    label = label_column or _known(columns, LABEL_COLUMNS)
    labels = [_label(row.get(label)) if label else None for row in rows]
    pathless = next((place for place, row in enumerate(rows, 1) if not row.get(path_column)), None)
    if pathless is not None:
        raise DataError(f"row {pathless} of {path} has no {path_column}: every row needs its image's path")
    paths = [str(row[path_column]) for row in rows]
    name = path.parent.resolve().name if path.name in METADATA else path.stem
    groups = None
    if "original" in columns and "variant" in columns:
        groups = [(_word(row.get("original")), _word(row.get("variant"))) for row in rows]
    origins = [_origin(row) for row in rows] if "original_id" in columns else []
    credited = [credits_of(row) for row in rows]
    return Files(name, path.parent, paths, labels, groups=groups, credited=credited, origins=origins)


def _origin(row: Mapping[str, Any]) -> Origin | None:
    original = _word(row.get("original_id"))
    return None if original is None else Origin(original, _word(row.get("operator")))


def _rows(path: Path) -> list[dict[str, Any]]:
    try:
        if path.suffix == ".parquet":
            import pyarrow.parquet

            return list(pyarrow.parquet.read_table(path).to_pylist())
        with path.open(encoding="utf-8", newline="") as file:
            if path.suffix == ".csv":
                return list(csv.DictReader(file))
            return [json.loads(line) for line in file if line.strip()]
    except (OSError, ValueError, csv.Error) as error:
        raise DataError(f"the manifest {path} can't be read: {error}") from error


def _word(value: Any) -> str | None:
    return None if value is None or value == "" else str(value)


def _known(columns: list[str], known: Sequence[str]) -> str | None:
    return next((name for name in known if name in columns), None)


def _no_column(path: Path, columns: list[str], expected: Sequence[str], what: str) -> str:
    return f"{path} has no column for the {what}: expected {' or '.join(expected)}; it has {', '.join(columns)}"


def _label(value: Any) -> Label | None:
    """A label as it stands in a file: whole numbers are indices, other text is a name."""
    if value is None or value == "":
        return None
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, bool) or not isinstance(value, (int, str)):
        raise DataError(f"a label should be a whole number or a text, got {value!r}")
    return int(value) if isinstance(value, str) and value.isdigit() else value
