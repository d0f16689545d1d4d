"""Images that are already arrays: .npz files, Python sequences, and datasets in the form of MAITE."""

from __future__ import annotations

import shutil
import tempfile
import weakref
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from brinell.config.data import DataOptions, name_sequence
from brinell.datasets.columns import find_metadata
from brinell.datasets.decode import from_array, from_picture
from brinell.errors import DataError
from brinell.types import Label, Origin, Sample

IMAGE_KEYS = ("images", "x", "x_test", "data", "arr_0")
ORIGIN_KEYS = ("originals", "operators")  # written by `brinell export-moved`
LABEL_KEYS = ("labels", "y", "y_test", "targets", "label", "arr_1")


@dataclass(frozen=True)
class Arrays:
    """Images (N, H, W), (N, H, W, C) or (N, C, H, W) and labels (N,), read from disk one image at a time.

    `originals` are the ids of the images they were derived from, `operators` what was applied to those.
    """

    name: str
    images: np.ndarray
    labels: np.ndarray | None
    classes: tuple[str, ...] | None = None
    originals: np.ndarray | None = None
    operators: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.images)

    @property
    def unlabelled(self) -> bool:
        """Whether no image has a label."""
        return self.labels is None

    def origin(self, index: int) -> Origin | None:
        """Return the origin of an image, if it is known."""
        if self.originals is None:
            return None
        return Origin(str(self.originals[index]), None if self.operators is None else str(self.operators[index]))

    def __getitem__(self, index: int, /) -> Sample:
        name = f"{self.name}[{index}]"
        label = None if self.labels is None else _to_label(self.labels[index])
        return Sample(from_array(np.asarray(self.images[index]), name), label, name)


def open_npz(path: Path, options: DataOptions) -> Arrays:
    """Open an .npz file with images and labels. Arrays are unpacked to disk and memory-mapped."""
    folder = tempfile.mkdtemp(prefix="brinell-")
    try:
        dataset = _unpack_all(path, folder)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    weakref.finalize(dataset, shutil.rmtree, folder, ignore_errors=True)
    return dataset


def _unpack_all(path: Path, folder: str) -> Arrays:
    try:
        with zipfile.ZipFile(path) as archive:
            members = {Path(name).stem: name for name in archive.namelist()}
            images = _unpack(archive, members, IMAGE_KEYS, folder)
            labels = _unpack(archive, members, LABEL_KEYS, folder)
            originals, operators = (_unpack(archive, members, [name], folder) for name in ORIGIN_KEYS)
    except (OSError, zipfile.BadZipFile, ValueError) as error:
        raise DataError(f"{path} can't be read as an .npz file: {error}") from error
    if images is None:
        expected, found = ", ".join(IMAGE_KEYS), ", ".join(members)
        raise DataError(f"{path} has no images: expected an array named {expected}; it has {found}")
    if labels is not None and labels.ndim != 1:
        raise DataError(f"{path}: expected one label per image, shape ({len(images)},), got labels of shape {labels.shape}")
    if labels is not None and len(labels) != len(images):
        raise DataError(f"{path} has {len(images)} images but {len(labels)} labels")
    return Arrays(path.stem, images, labels, originals=originals, operators=operators)


def _unpack(archive: zipfile.ZipFile, members: dict[str, str], keys: Sequence[str], folder: str) -> np.ndarray | None:
    """Unpack the first array that has one of these names, and return it memory-mapped."""
    key = next((key for key in keys if key in members), None)
    if key is None:
        return None
    file = Path(folder) / f"{key}.npy"
    with archive.open(members[key]) as packed, file.open("wb") as plain:
        shutil.copyfileobj(packed, plain, 1 << 20)
    array: np.ndarray = np.load(file, mmap_mode="r")
    return array


@dataclass(frozen=True)
class Wrapped:
    """Any sequence of (image, label), (image, label, metadata), images or `Sample` as a dataset.

    Images are arrays, tensors or Pillow images. Labels may be one-hot vectors or scores, or objects with boxes and labels,
    and the metadata's "id" is the image's name, as in MAITE. The `origin` and `credits` of a `Dataset` are kept.
    """

    items: Any
    name: str
    classes: tuple[str, ...] | None = None

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, index: int, /) -> Sample:
        item = self.items[index]
        if isinstance(item, Sample):
            return item
        parts = item if isinstance(item, (tuple, list)) else (item,)
        metadata = parts[2] if len(parts) > 2 and isinstance(parts[2], Mapping) else {}
        name = str(metadata.get("id", f"{self.name}[{index}]"))
        target: Any = parts[1] if len(parts) > 1 else None
        image = _to_image(parts[0], name)
        if hasattr(target, "boxes") and hasattr(target, "labels"):
            boxes = torch.as_tensor(np.asarray(target.boxes), dtype=torch.float32).reshape(-1, 4)
            labels = tuple(int(value) for value in np.asarray(target.labels))
            label = labels[0] if len(set(labels)) == 1 else None
            return Sample(image, label, name, boxes, labels, metadata=find_metadata(metadata))
        return Sample(image, _read_label(target, name), name, metadata=find_metadata(metadata))

    def origin(self, index: int) -> Origin | None:
        """Return the origin of an image, if it is known."""
        origin: Origin | None = self.items.origin(index) if hasattr(self.items, "origin") else None
        return origin

    def credits(self, index: int) -> Mapping[str, str]:
        """Return what is known about an image's author and licence."""
        credits: Mapping[str, str] = self.items.credits(index) if hasattr(self.items, "credits") else {}
        return credits


def wrap_sequence(items: Any) -> Wrapped:
    """Return a Python sequence as a dataset.

    Its name and classes are those of a `Dataset` (`name`, `classes`), of MAITE (`metadata`) or of torchvision (`classes`).
    """
    if isinstance(items, Wrapped):
        return items
    if not (hasattr(items, "__len__") and hasattr(items, "__getitem__")):
        raise DataError(
            f"expected a path, or a sequence of (image, label) with len() and indexing, got {type(items).__name__}; "
            "turn an iterator into a list first"
        )
    metadata = getattr(items, "metadata", None)
    metadata = metadata if isinstance(metadata, Mapping) else {}
    by_index = metadata.get("index2label")
    names = [by_index.get(index, "") for index in range(max(by_index) + 1)] if by_index else getattr(items, "classes", None)
    classes = tuple(str(name) for name in names) if isinstance(names, (list, tuple)) else None
    return Wrapped(items, str(metadata.get("id", name_sequence(items))), classes)


def _to_image(value: Any, name: str) -> Tensor:
    if isinstance(value, Image.Image):
        return from_picture(value, name)
    return from_array(value.detach().cpu().numpy() if isinstance(value, Tensor) else np.asarray(value), name)


def _read_label(target: Any, name: str) -> Label | None:
    if target is None or isinstance(target, str):
        return target
    array = np.asarray(target)
    if array.ndim == 1 and array.size > 1:
        return int(array.argmax())  # one-hot, or scores over classes
    if array.size != 1:
        raise DataError(f"{name}: expected a label that is an index, a name or a one-hot vector, got shape {array.shape}")
    return _to_label(array.reshape(())[()])


def _to_label(value: Any) -> Label:
    if isinstance(value, (str, np.str_)):
        return str(value)
    if float(value) != int(value):
        raise DataError(f"expected a label that is a whole number or text, got {value!r}")
    return int(value)
