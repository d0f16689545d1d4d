"""Reads masks from PNG files, and the names of their classes from text files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from brinell.errors import UnreadableImage
from brinell.masks import IGNORED
from brinell.pictures import open_picture

UNLABELLED, LARGEST = 255, 65535  # the value of pixels without a class, by convention, in files of 8 and of 16 bits
CLASS_FILE = "classes.txt"
ADE_CLASSES = "objectInfo150.txt"  # its masks count from 1, and 0 is no class


def read_mask(file: Path, *, from_one: bool = False) -> Tensor:
    """Return a mask, int16 (H, W), from a PNG file of grey levels or of a palette.

    With `from_one` classes are counted from 1, and 0 is none; the largest value that a file can hold is none in any case.
    """
    values = read_png(file)
    if values.ndim != 2:
        raise UnreadableImage(str(file), "expected a mask with one value per pixel, got a picture in colours")
    mask = torch.from_numpy(values.astype(np.int32))
    mask = mask.masked_fill(mask == (UNLABELLED if values.dtype == np.uint8 else LARGEST), IGNORED)
    if from_one:
        mask = torch.where(mask > 0, mask - 1, IGNORED)
    return mask.to(torch.int16)


def read_png(file: Path) -> np.ndarray:
    """Return the values of a PNG file; a palette's indices are values."""
    try:
        picture = open_picture(file.read_bytes())
        picture.load()
    except Exception as error:  # Pillow's plugins raise many kinds for damaged files
        raise UnreadableImage(str(file), str(error)) from error
    return np.array(picture.convert("L") if picture.mode == "1" else picture)


def read_classes(root: Path) -> tuple[str, ...] | None:
    """Return the names of classes that a folder lists, one per line; ADE20K's file is a table."""
    if (root / CLASS_FILE).is_file():
        return tuple(line for line in (root / CLASS_FILE).read_text(encoding="utf-8-sig").splitlines() if line.strip())
    if (root / ADE_CLASSES).is_file():
        lines = (root / ADE_CLASSES).read_text(encoding="utf-8-sig").splitlines()
        return tuple(line.split("\t")[-1].strip() for line in lines[1:] if line.strip())
    return None
