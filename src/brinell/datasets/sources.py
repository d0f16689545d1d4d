"""The kinds of datasets that can be opened. Importing this module does not import torch: each kind is opened lazily."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from brinell.config.data import DataOptions
from brinell.datasets.mask_folders import find_folders
from brinell.errors import DataError
from brinell.registry import Registry, load_reference, nearest
from brinell.types import Dataset

Opener = Callable[[Path, DataOptions], Dataset]

METADATA = ("metadata.jsonl", "metadata.csv", "metadata.parquet")
DEMO = "demo-photos"


@dataclass(frozen=True)
class Source:
    """A kind of dataset: how it is written, a one-line description, and its opener, a function or "module:function".

    `fits` says which paths are of this kind; without it, a dataset of this kind is always written `NAME:PATH`.
    """

    form: str
    description: str
    opener: str | Opener
    fits: Callable[[Path], bool] = lambda path: False

    def open(self, path: Path, options: DataOptions) -> Dataset:
        """Open a dataset of this kind."""
        opener: Opener = load_reference(self.opener) if isinstance(self.opener, str) else self.opener
        return opener(path, options)


SOURCES: Registry[Source] = Registry("dataset source", group="brinell.datasets")


def open_dataset(data: Any) -> Dataset:
    """Open a dataset by its path or options, or wrap a `Dataset`, a sequence of (image, label), or one of `Sample`."""
    if isinstance(data, (str, Path)):
        data = DataOptions(source=str(data))
    if not isinstance(data, DataOptions):
        from brinell.datasets.arrays import wrap_sequence  # imports torch, which listing the kinds must not
        from brinell.datasets.huggingface import is_hub_dataset, wrap_rows

        if is_hub_dataset(data):
            return wrap_rows(data)
        return wrap_sequence(data)
    dataset = _open(data)
    if data.metadata is not None:
        from brinell.datasets.metadata import add_metadata

        dataset = add_metadata(dataset, data.metadata)
    if data.pattern is None:
        return dataset
    from brinell.datasets.groups import group_by_name

    return group_by_name(dataset, data.pattern)


def _open(options: DataOptions) -> Dataset:
    source, path = find_source(options)
    return source.open(path, options)


def find_source(options: DataOptions) -> tuple[Source, Path]:
    """Return the kind of a dataset and its path, or raise if there is none. Needs no torch."""
    kind, _, rest = options.source.partition(":")
    if rest and kind in SOURCES:
        return SOURCES[kind], Path(rest).expanduser()
    path = Path(options.source).expanduser()
    for source in SOURCES.values():
        if source.fits(path):
            if not path.exists() and source.form != DEMO:
                break
            return source, path
    if not path.exists():
        hint = _similar_names(path) or "give an existing folder or file"
        raise DataError(f"there is no dataset at {options.source!r}; {hint}")
    forms = "; ".join(source.form for source in SOURCES.values())
    raise DataError(f"{options.source!r} is not a dataset that brinell can read; expected one of: {forms}")


def _similar_names(path: Path) -> str | None:
    """Return a hint with similar names in the same folder, if there are any."""
    names = [entry.name for entry in path.parent.iterdir()] if path.parent.is_dir() else []
    hint = nearest(path.name, [*names, DEMO])
    return hint if hint.startswith("did") else None


def metadata_file(folder: Path) -> Path | None:
    """Return the metadata file of a folder of images, if it has one."""
    return next((folder / name for name in METADATA if (folder / name).is_file()), None)


def _add(name: str, form: str, description: str, fits: Callable[[Path], bool], opener: str) -> None:
    SOURCES.add(name, Source(form, description, f"brinell.datasets.{opener}", fits))


_add(DEMO, DEMO, "the photographs of the demo (extra: demo)", lambda path: str(path) == DEMO, "photos:open_photos")
_add(
    "instances",
    "FOLDER with instances.json",
    "COCO annotations and their images",
    lambda path: (path / "instances.json").is_file(),
    "coco:open_instances",
)
_add(
    "masks",
    "FOLDER with images/ and masks/",
    "images and PNG masks (also annotations/ as in ADE20K, and Pascal VOC's folders)",
    lambda path: find_folders(path) is not None,
    "masks:open_masks",
)
_add(
    "metadata",
    "FOLDER with metadata.jsonl, .csv or .parquet",
    "images and a table with file_name and label (Hugging Face's imagefolder)",
    lambda path: path.is_dir() and metadata_file(path) is not None,
    "files:open_metadata",
)
_add(
    "webdataset",
    "FILE.tar | FOLDER of .tar files | webdataset:PATTERN",
    "WebDataset shards",
    lambda path: path.suffix == ".tar" or (path.is_dir() and any(path.glob("*.tar"))),
    "webdataset:open_shards",
)
_add(
    "saved",
    "FOLDER written by save_to_disk",
    "a Hugging Face dataset on disk (extra: datasets)",
    lambda path: any((path / name).is_file() for name in ("state.json", "dataset_dict.json")),
    "huggingface:open_saved",
)
_add(
    "folders",
    "FOLDER of class folders",
    "one folder per class (ImageFolder); images without class folders have no labels",
    Path.is_dir,
    "files:open_folders",
)
_add(
    "segments",
    "FILE.json with stuff or panoptic in its name | segments:FILE.json",
    "COCO masks: stuff, panoptic (with its folder of PNG files), or instances as masks",
    lambda path: path.suffix == ".json" and path.stem.startswith(("stuff", "panoptic")),
    "masks:open_coco_masks",
)
_add(
    "coco",
    "FILE.json",
    "COCO annotations; images next to the file or in images=FOLDER",
    lambda path: path.suffix == ".json",
    "coco:open_coco",
)
_add(
    "manifest",
    "FILE.csv | FILE.jsonl | FILE.parquet",
    "a table of paths and labels",
    lambda path: path.suffix in {".csv", ".jsonl", ".parquet"},
    "files:open_manifest",
)
_add("npz", "FILE.npz", "arrays of images and labels", lambda path: path.suffix == ".npz", "arrays:open_npz")
_add(
    "hf",
    "hf:NAME[?split=…&config=…&streaming=true]",
    "a dataset on the Hugging Face Hub (extra: datasets)",
    lambda path: False,
    "huggingface:open_hub",
)
