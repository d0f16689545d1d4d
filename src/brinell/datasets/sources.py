"""Every kind of dataset, and how one string or object is told to be of that kind."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from brinell.datasets.arrays import Arrays, Pairs, npz, sequence
from brinell.datasets.coco import Coco, coco
from brinell.datasets.files import METADATA, Files, class_folders, manifest
from brinell.datasets.groups import Grouped, grouped
from brinell.datasets.objects import ObjectRule
from brinell.datasets.photos import photos
from brinell.errors import DataError
from brinell.registry import Registry, nearest
from brinell.types import Dataset


class DataOptions(BaseModel):
    """Which images, how many of them, and what their labels mean.

    `labels`: "auto" looks labels up by name, WordNet id or index; "index" takes the dataset's class numbers as the
    model's; "prediction" takes the model's own answer on the clean image as the truth. With boxes, an image's label can be
    the class of one of its objects: of the `preferred` class, or of any, the largest. Images in which none covers
    `min_area` (a share of the image) are left out. Detectors are always asked about such objects. A `pattern` of names says
    which photographs are variants of which original (see `groups`).
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    source: str
    limit: int | None = Field(None, ge=1)
    shuffle: bool = False
    labels: Literal["auto", "index", "prediction"] = "auto"
    label_column: str | None = None
    images: str | None = None
    preferred: str | None = None
    min_area: float | None = Field(None, ge=0, le=1)
    pattern: str | None = None

    @model_validator(mode="before")
    @classmethod
    def _from_text(cls, value: Any) -> Any:
        return {"source": str(value)} if isinstance(value, (str, Path)) else value

    def objects(self, detectors: bool) -> ObjectRule | None:
        """Which object an image's label is the class of; None: labels are as the dataset has them."""
        asked = self.preferred is not None or self.min_area is not None
        if asked or (detectors and self.labels != "prediction"):
            return ObjectRule(self.preferred, self.min_area or 0.0)
        return None


@dataclass(frozen=True)
class Source:
    """One kind of dataset: how it is written, and which paths are of that kind."""

    form: str
    what: str
    open: Callable[[Path, DataOptions], Dataset]
    fits: Callable[[Path], bool]


SOURCES: Registry[Source] = Registry("dataset source")


def _add(
    name: str, form: str, what: str, fits: Callable[[Path], bool], open_: Callable[[Path, DataOptions], Dataset]
) -> None:
    SOURCES.add(name, Source(form, what, open_, fits))


def _metadata_file(folder: Path) -> Path | None:
    return next((folder / name for name in METADATA if (folder / name).is_file()), None)


def _open_metadata(folder: Path, options: DataOptions) -> Dataset:
    file = _metadata_file(folder)
    if file is None:
        raise DataError(f"{folder} has none of {', '.join(METADATA)}")
    return manifest(file, options.label_column)


_add(
    "demo-photos",
    "demo-photos",
    "the photographs of the demo (extra: demo)",
    lambda path: str(path) == "demo-photos",
    lambda path, options: photos(),
)
_add(
    "metadata",
    "FOLDER with metadata.jsonl, .csv or .parquet",
    "images and a table of file_name and label (Hugging Face's imagefolder)",
    lambda path: path.is_dir() and _metadata_file(path) is not None,
    _open_metadata,
)
_add(
    "folders",
    "FOLDER of class folders",
    "one folder a class (ImageFolder); images alone are unlabelled",
    Path.is_dir,
    lambda path, options: class_folders(path),
)
_add(
    "coco",
    "FILE.json",
    "COCO annotations; images beside them or in images=FOLDER",
    lambda path: path.suffix == ".json",
    lambda path, options: coco(path, Path(options.images) if options.images else None),
)
_add(
    "manifest",
    "FILE.csv | FILE.jsonl | FILE.parquet",
    "a table of paths and labels",
    lambda path: path.suffix in {".csv", ".jsonl", ".parquet"},
    lambda path, options: manifest(path, options.label_column),
)
_add("npz", "FILE.npz", "arrays of images and labels", lambda path: path.suffix == ".npz", lambda path, options: npz(path))


def open_dataset(data: Any) -> Dataset:
    """A dataset from a path, options, or any sequence of (image, label) or of `Sample`."""
    if isinstance(data, (str, Path)):
        data = DataOptions(source=str(data))
    if not isinstance(data, DataOptions):
        return data if isinstance(data, (Files, Coco, Arrays, Pairs, Grouped)) else sequence(data)
    found = _opened(data)
    return found if data.pattern is None else grouped(found, data.pattern)


def _opened(data: DataOptions) -> Dataset:
    kind, _, rest = data.source.partition(":")
    if rest and kind in SOURCES:
        return SOURCES[kind].open(Path(rest).expanduser(), data)
    path = Path(data.source).expanduser()
    for source in SOURCES.values():
        if source.fits(path):
            if not path.exists() and source.form != "demo-photos":
                break
            return source.open(path, data)
    if not path.exists():
        raise DataError(f"there is no dataset at {data.source!r}; {_beside(path) or 'give a folder or a file that exists'}")
    forms = "; ".join(source.form for source in SOURCES.values())
    raise DataError(f"{data.source!r} is no dataset that brinell knows; expected one of: {forms}")


def _beside(path: Path) -> str | None:
    """The nearest names that do exist, after a miss."""
    there = [entry.name for entry in path.parent.iterdir()] if path.parent.is_dir() else []
    hint = nearest(path.name, [*there, "demo-photos"])
    return hint if hint.startswith("did") else None
