"""Images that are already arrays: .npz files, Python sequences, and datasets of MAITE's shape."""

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

from brinell.datasets.decode import from_array, from_picture
from brinell.errors import DataError
from brinell.types import Label, Origin, Sample

IMAGE_KEYS = ("images", "x", "x_test", "data", "arr_0")
ORIGIN_KEYS = ("originals", "operators")  # what `brinell moved` writes beside them
LABEL_KEYS = ("labels", "y", "y_test", "targets", "label", "arr_1")


@dataclass(frozen=True)
class Arrays:
    """Images (N, H, W), (N, H, W, C) or (N, C, H, W) and labels (N,), read from disk image by image.

    `originals` are the ids of images that they were made of, and `operators` what was done to those.
    """

    name: str
    images: np.ndarray
    labels: np.ndarray | None
    classes: tuple[str, ...] | None = None
    originals: np.ndarray | None = None
    operators: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.images)

    def origin(self, index: int) -> Origin | None:
        """Which image it was made of, where that is known."""
        if self.originals is None:
            return None
        return Origin(str(self.originals[index]), None if self.operators is None else str(self.operators[index]))

    def __getitem__(self, index: int, /) -> Sample:
        name = f"{self.name}[{index}]"
        label = None if self.labels is None else _plain(self.labels[index])
        return Sample(from_array(np.asarray(self.images[index]), name), label, name)


def npz(path: Path) -> Arrays:
    """An .npz file with images and labels. The arrays are unpacked to disk and mapped, so memory doesn't grow with them."""
    folder = tempfile.mkdtemp(prefix="brinell-")
    try:
        dataset = _mapped(path, folder)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    weakref.finalize(dataset, shutil.rmtree, folder, ignore_errors=True)
    return dataset


def _mapped(path: Path, folder: str) -> Arrays:
    try:
        with zipfile.ZipFile(path) as archive:
            members = {Path(name).stem: name for name in archive.namelist()}
            images = _unpack(archive, members, IMAGE_KEYS, folder)
            labels = _unpack(archive, members, LABEL_KEYS, folder)
            originals, operators = (_unpack(archive, members, [name], folder) for name in ORIGIN_KEYS)
    except (OSError, zipfile.BadZipFile, ValueError) as error:
        raise DataError(f"{path} can't be read as an .npz file: {error}") from error
    if images is None:
        expected, there = ", ".join(IMAGE_KEYS), ", ".join(members)
        raise DataError(f"{path} holds no images: expected an array named {expected}; it has {there}")
    if labels is not None and len(labels) != len(images):
        raise DataError(f"{path} has {len(images)} images but {len(labels)} labels")
    return Arrays(path.stem, images, labels, originals=originals, operators=operators)


def _unpack(archive: zipfile.ZipFile, members: dict[str, str], keys: Sequence[str], folder: str) -> np.ndarray | None:
    key = next((key for key in keys if key in members), None)
    if key is None:
        return None
    place = Path(folder) / f"{key}.npy"
    with archive.open(members[key]) as packed, place.open("wb") as plain:
        shutil.copyfileobj(packed, plain, 1 << 20)
    array: np.ndarray = np.load(place, mmap_mode="r")
    return array


@dataclass(frozen=True)
class Pairs:
    """Any sequence of (image, label), (image, label, metadata) or images alone.

    Images are arrays, tensors or Pillow images. MAITE's datasets have this shape: labels may be one-hot vectors or
    scores, or objects with boxes and labels; the metadata's "id" is the name.
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
        image = _image(parts[0], name)
        if hasattr(target, "boxes") and hasattr(target, "labels"):
            boxes = torch.as_tensor(np.asarray(target.boxes), dtype=torch.float32).reshape(-1, 4)
            labels = tuple(int(value) for value in np.asarray(target.labels))
            return Sample(image, labels[0] if len(set(labels)) == 1 else None, name, boxes, labels)
        return Sample(image, _label_of(target, name), name)


def sequence(items: Any) -> Pairs:
    """A Python sequence as a dataset. MAITE's datasets tell their classes by `metadata`, torchvision's by `classes`."""
    if not (hasattr(items, "__len__") and hasattr(items, "__getitem__")):
        raise DataError(
            f"expected a path, or a sequence of (image, label) with len() and indexing, got {type(items).__name__}; "
            "turn an iterator into a list first"
        )
    metadata = getattr(items, "metadata", None)
    metadata = metadata if isinstance(metadata, Mapping) else {}
    names = metadata.get("index2label")
    listed = [names.get(index, "") for index in range(max(names) + 1)] if names else getattr(items, "classes", None)
    classes = tuple(str(name) for name in listed) if isinstance(listed, (list, tuple)) else None
    return Pairs(items, str(metadata.get("id", type(items).__name__)), classes)


def _image(value: Any, name: str) -> Tensor:
    if isinstance(value, Image.Image):
        return from_picture(value, name)
    return from_array(value.detach().cpu().numpy() if isinstance(value, Tensor) else np.asarray(value), name)


def _label_of(target: Any, name: str) -> Label | None:
    if target is None or isinstance(target, str):
        return target
    array = np.asarray(target)
    if array.ndim == 1 and array.size > 1:
        return int(array.argmax())  # one-hot, or scores over classes
    if array.size != 1:
        raise DataError(f"{name}: a label should be an index, a name or a one-hot vector, got shape {array.shape}")
    return _plain(array.reshape(())[()])


def _plain(value: Any) -> Label:
    if isinstance(value, (str, np.str_)):
        return str(value)
    if float(value) != int(value):
        raise DataError(f"a label should be a whole number or a text, got {value!r}")
    return int(value)
