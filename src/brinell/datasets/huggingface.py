"""Datasets of Hugging Face: from the Hub, from a folder of `save_to_disk`, or as objects; random access or streams.

Images are decoded here, as those of files are. A stream is read once, in order: its encoded images go to a temporary file,
so that a run can read them again.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any
from urllib.parse import parse_qsl

from brinell.config.data import DataOptions
from brinell.datasets.columns import LABEL_COLUMNS, find_credits, find_metadata, read_label, read_origin
from brinell.datasets.decode import decode, read_image
from brinell.datasets.objects import read_objects
from brinell.errors import DataError, MissingExtra, UnreadableImage
from brinell.registry import nearest
from brinell.types import Origin, Sample

_OPTIONS = ("split", "config", "revision", "streaming")
_TRUE = ("1", "true", "yes", "")


@dataclass(frozen=True)
class Columns:
    """Which columns hold the images, the labels and the boxes, and the names of classes, also of other columns."""

    image: str
    label: str | None
    classes: tuple[str, ...] | None
    objects: str | None
    object_classes: tuple[str, ...] | None
    names: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class HubRows:
    """Rows of a Hugging Face dataset; `rows[index]` is a mapping, whose image is not decoded."""

    name: str
    rows: Any
    columns: Columns

    @property
    def classes(self) -> tuple[str, ...] | None:
        """The names of its integer labels."""
        return self.columns.classes or self.columns.object_classes

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int, /) -> Sample:
        row, columns = self.rows[index], self.columns
        name = self._name(row, index)
        image = row[columns.image]
        if not image or (image.get("bytes") is None and not image.get("path")):
            raise UnreadableImage(name, "the row has no image")
        pixels = decode(image["bytes"], name) if image.get("bytes") is not None else read_image(Path(image["path"]))
        boxes, labels = read_objects(row.get(columns.objects), name) if columns.objects else (None, ())
        label = read_label(row[columns.label]) if columns.label else None
        if columns.label is None and labels and len(set(labels)) == 1:
            label = labels[0]
        facts = find_metadata({**row, **self._named(row)}, (columns.image, columns.label or "", columns.objects or ""))
        return Sample(pixels, label, name, boxes, labels, metadata=facts)

    def _named(self, row: Mapping[str, Any]) -> dict[str, str]:
        """Return the columns of class numbers by the names of their classes."""
        known = {name: row.get(name) for name in self.columns.names}
        return {
            name: self.columns.names[name][value] for name, value in known.items() if isinstance(value, int) and value >= 0
        }

    def _name(self, row: Mapping[str, Any], index: int) -> str:
        path = (row.get(self.columns.image) or {}).get("path")
        return Path(path).name if path else f"{self.name}[{index}]"

    def credits(self, index: int) -> Mapping[str, str]:
        """Return what is known about an image's author and licence."""
        return find_credits(self.rows[index])

    def origin(self, index: int) -> Origin | None:
        """Return the origin of an image, if it is known."""
        return read_origin(self.rows[index])


class Spool:
    """A stream that was read once: encoded images in a temporary file, everything else in memory."""

    def __init__(self, rows: Any, image: str) -> None:
        self._file: IO[bytes] = tempfile.TemporaryFile(prefix="brinell-")  # noqa: SIM115
        self._image = image
        self._rows: list[tuple[dict[str, Any], int, int]] = []
        for row in rows:
            encoded = row[image] or {}
            data: bytes = encoded.get("bytes") or b""
            if not data and encoded.get("path"):
                data = Path(encoded["path"]).read_bytes()
            start = self._file.seek(0, 2)
            self._file.write(data)
            others = {key: value for key, value in row.items() if key != image}
            self._rows.append(({**others, image: encoded.get("path")}, start, len(data)))
        self._file.flush()

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, index: int) -> dict[str, Any]:
        facts, start, size = self._rows[index]
        data = os.pread(self._file.fileno(), size, start)  # threads share the file
        return {**facts, self._image: {"bytes": data, "path": facts[self._image]}}


def open_hub(path: Path, options: DataOptions) -> HubRows:
    """Open a dataset by its name on the Hub, or a script-free local folder: hf:NAME?split=test&config=…&streaming=true."""
    library = _library()
    name, _, query = str(path).partition("?")
    given = dict(parse_qsl(query, keep_blank_values=True))
    for key in given:
        if key not in _OPTIONS:
            raise DataError(f"hf:{name} has no option {key!r}; {nearest(key, list(_OPTIONS))}")
    streaming = given.get("streaming", "false").lower() in _TRUE
    try:
        found = library.load_dataset(
            name, given.get("config"), split=given.get("split"), revision=given.get("revision"), streaming=streaming
        )
    except Exception as error:  # of the Hub, the network or the files
        raise DataError(f"hf:{name} can't be loaded: {' '.join(str(error).split())}") from error
    return wrap_rows(_one_split(found, f"hf:{name}"), options, name)


def open_saved(path: Path, options: DataOptions) -> HubRows:
    """Open a folder that `save_to_disk` wrote."""
    return wrap_rows(_one_split(_library().load_from_disk(str(path)), str(path)), options, path.resolve().name)


def is_hub_dataset(items: Any) -> bool:
    """Whether an object is a dataset of Hugging Face, with random access or a stream."""
    return hasattr(items, "features") and hasattr(items, "cast_column") and hasattr(items, "info")


def wrap_rows(rows: Any, options: DataOptions | None = None, name: str | None = None) -> HubRows:
    """Return a dataset of Hugging Face, with random access or a stream, as one of brinell."""
    library = _library()
    if rows.features is None:  # a stream whose columns are not known yet
        rows = rows._resolve_features()
    columns = _find_columns(rows.features, options.label_column if options is not None else None)
    rows = rows.cast_column(columns.image, library.Image(decode=False))
    title = name or getattr(rows.info, "dataset_name", None) or "dataset"
    if hasattr(rows, "__len__"):
        return HubRows(title, rows, columns)
    limited = rows if options is None or options.limit is None else rows.take(options.limit)
    return HubRows(title, Spool(limited, columns.image), columns)


def _find_columns(features: Mapping[str, Any], label: str | None) -> Columns:
    images = [name for name, feature in features.items() if type(feature).__name__ == "Image"]
    if not images:
        raise DataError(f"expected a column of images, got the columns {', '.join(features)}")
    if label is not None and label not in features:
        raise DataError(f"there is no column {label!r} for the labels; {nearest(label, list(features))}")
    named = [name for name, feature in features.items() if hasattr(feature, "names")]
    label = label or next((name for name in (*LABEL_COLUMNS, *named) if name in features), None)
    objects = "objects" if "objects" in features else None
    inner = _names_in(features[objects]) if objects else None
    others = {name: names for name, feature in features.items() if (names := _names(feature)) and name != label}
    return Columns(images[0], label, _names(features.get(label)) if label else None, objects, inner, others)


def _names(feature: Any) -> tuple[str, ...] | None:
    names = getattr(feature, "names", None)
    return tuple(names) if names else None


def _names_in(feature: Any) -> tuple[str, ...] | None:
    """Return the class names of the categories of boxes."""
    inner = getattr(feature, "feature", feature)
    for key in ("category", "categories", "label", "labels"):
        if isinstance(inner, Mapping) and key in inner:
            return _names(getattr(inner[key], "feature", inner[key]))
    return None


def _one_split(found: Any, name: str) -> Any:
    if not isinstance(found, Mapping):
        return found
    splits: Sequence[str] = list(found)
    if len(splits) == 1:
        return found[splits[0]]
    raise DataError(f"{name} has the splits {', '.join(splits)}; name one: hf:NAME?split={splits[-1]}")


def _library() -> Any:
    try:
        import datasets
    except ImportError as error:
        raise MissingExtra("datasets", "datasets") from error
    return datasets
