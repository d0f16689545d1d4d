"""Images with masks: folders of images and PNG files (ADE20K, Pascal VOC and the like), COCO stuff and COCO panoptic.

A mask is read by `mask(index)`: int16 (H, W), the class of each pixel as an index into the dataset's classes, or `IGNORED`.
Samples have no label.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from brinell.config.data import DataOptions
from brinell.datasets.decode import read_image
from brinell.datasets.files import list_images, to_text
from brinell.datasets.mask_files import ADE_CLASSES, read_classes, read_mask, read_png
from brinell.datasets.mask_folders import find_folders
from brinell.documents import load_json
from brinell.errors import DataError, MissingExtra
from brinell.masks import IGNORED
from brinell.types import Sample


@dataclass(frozen=True)
class MaskFiles:
    """Images and PNG masks of the same names. With `from_one` masks count their classes from 1, and 0 is no class."""

    name: str
    images: Path
    masks: Path
    paths: Sequence[str]
    classes: tuple[str, ...] | None = None
    from_one: bool = False

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int, /) -> Sample:
        path = self.paths[index]
        return Sample(read_image(self.images / path), None, to_text(path))

    def mask(self, index: int) -> Tensor | None:
        """Return the mask of an image; None if it has none."""
        file = (self.masks / self.paths[index]).with_suffix(".png")
        if not file.is_file():
            return None
        return read_mask(file, from_one=self.from_one)


def open_masks(root: Path, options: DataOptions) -> MaskFiles:
    """Open a folder with a folder of images and one of masks; class names are in classes.txt, or in ADE20K's own file."""
    found = find_folders(root)
    if found is None:
        raise DataError(f"{root} has no folder of images and one of masks; expected images/ and masks/ (or annotations/)")
    images, masks = (root / name for name in found)
    paths = list_images(images)
    if not paths:
        raise DataError(f"there are no images in {images}")
    ade = root / ADE_CLASSES
    from_one = ade.is_file() if options.ignore_zero is None else options.ignore_zero
    return MaskFiles(to_text(root.resolve().name), images, masks, paths, read_classes(root), from_one)


# ---- COCO ----


@dataclass(frozen=True)
class CocoMasks:
    """Images whose masks are in a COCO file: polygons or run lengths (stuff), or PNG files of segment ids (panoptic)."""

    name: str
    root: Path
    images: list[dict[str, Any]]
    annotations: Mapping[Any, list[dict[str, Any]]]
    order: Mapping[Any, int]
    classes: tuple[str, ...]
    panoptic: Path | None = None
    licences: dict[Any, dict[str, Any]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int, /) -> Sample:
        name = self.images[index]["file_name"]
        return Sample(read_image(self.root / name), None, name)

    def mask(self, index: int) -> Tensor | None:
        """Return the mask of an image; None if it has no annotations."""
        entry = self.images[index]
        mine = self.annotations.get(entry["id"])
        if not mine:
            return None
        if self.panoptic is not None:
            return self._of_segments(mine[0])
        size = int(entry["height"]), int(entry["width"])
        mask = torch.full(size, IGNORED, dtype=torch.int16)
        for annotation in mine:  # later ones lie on top
            mask[_decode(annotation["segmentation"], size)] = self.order[annotation["category_id"]]
        return mask

    def _of_segments(self, annotation: Mapping[str, Any]) -> Tensor:
        """Return a panoptic mask: colours are segments, which have categories."""
        assert self.panoptic is not None
        colours = read_png(self.panoptic / annotation["file_name"])[..., :3].astype(np.int64)
        segments, places = np.unique(colours @ np.array([1, 256, 65536]), return_inverse=True)
        known = {segment["id"]: self.order[segment["category_id"]] for segment in annotation["segments_info"]}
        classes = np.array([known.get(int(segment), IGNORED) for segment in segments], np.int16)
        return torch.from_numpy(classes[places.reshape(colours.shape[:2])])


def open_coco_masks(path: Path, options: DataOptions) -> CocoMasks:
    """Open a COCO file of stuff (or things) with segmentations, or a panoptic one with its folder of PNG files."""
    try:
        content = load_json(path.read_text(encoding="utf-8-sig"))
        images, given, categories = (content[part] for part in ("images", "annotations", "categories"))
        order = {category["id"]: index for index, category in enumerate(categories)}
        names = tuple(str(category["name"]) for category in categories)
        annotations: dict[Any, list[dict[str, Any]]] = defaultdict(list)
        for annotation in given:
            annotations[annotation["image_id"]].append(annotation)
        panoptic = any("segments_info" in annotation for annotation in given[:1])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(f"{path} is not a COCO annotation file (images, annotations, categories): {error!r}") from error
    if not images:
        raise DataError(f"{path} lists no images")
    folders = [Path(options.images)] if options.images else [path.parent / "images", path.parent, *_siblings(path)]
    root = max(folders, key=lambda folder: sum((folder / image["file_name"]).is_file() for image in images[:100]))
    segments = path.with_suffix("") if panoptic else None
    if segments is not None and not segments.is_dir():
        raise DataError(f"{path} needs the folder {segments} with the PNG files of its segments")
    return CocoMasks(path.stem, root, images, annotations, order, names, segments)


def _siblings(path: Path) -> list[Path]:
    """Return the folders beside a file and beside its folder, where COCO's images are (val2017 next to annotations)."""
    return [
        Path(entry.path) for parent in (path.parent, path.parent.parent) for entry in os.scandir(parent) if entry.is_dir()
    ]


def _decode(segmentation: Any, size: tuple[int, int]) -> Tensor:
    """Return the pixels of polygons or run lengths, bool (H, W)."""
    try:
        from pycocotools import mask as coco
    except ImportError:
        raise MissingExtra("pycocotools", "detection") from None
    if isinstance(segmentation, list):
        runs = coco.merge(coco.frPyObjects(segmentation, *size))
    elif isinstance(segmentation["counts"], list):
        runs = coco.frPyObjects(segmentation, *size)
    else:
        runs = segmentation
    return torch.from_numpy(coco.decode(runs).astype(bool))
