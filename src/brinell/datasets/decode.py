"""Decodes image files of any kind to uint8, RGB or grey."""

from __future__ import annotations

import stat
import warnings
from pathlib import Path

import cv2
import numpy as np
import pyarrow as pa
import torch
from PIL import ExifTags, Image, ImageOps, UnidentifiedImageError
from torch import Tensor

from brinell.errors import UnreadableImage
from brinell.pictures import open_picture

# brinell raises an error for images that are too large; warning filters are global, so threads can't set them
warnings.filterwarnings("ignore", category=Image.DecompressionBombWarning)
warnings.filterwarnings("ignore", module="PIL")  # about damaged EXIF data and the like

SUFFIXES = frozenset({".jpg", ".jpeg", ".jfif", ".png", ".bmp", ".gif", ".tif", ".tiff", ".webp", ".ppm", ".pgm", ".jp2"})


def read_image(path: Path) -> Tensor:
    """Read an image file as uint8 (C, H, W), with C = 1 or 3."""
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise UnreadableImage(str(path), "not a regular file")
        data = path.read_bytes()
    except (OSError, ValueError) as error:  # a path with a NUL is a ValueError
        raise UnreadableImage(str(path), getattr(error, "strerror", None) or str(error)) from error
    return decode(data, str(path))


def decode(data: bytes, name: str) -> Tensor:
    """Decode the bytes of an image file as uint8 (C, H, W). Photographs are turned upright by their EXIF tag."""
    if not data:
        raise UnreadableImage(name, "the file is empty")
    try:
        picture = open_picture(data)
        if Image.MAX_IMAGE_PIXELS is not None and picture.width * picture.height > Image.MAX_IMAGE_PIXELS:
            raise UnreadableImage(name, f"{picture.width}x{picture.height} pixels exceed Pillow's limit")
        picture.load()
        return from_picture(picture, name)
    except UnreadableImage:
        raise
    except UnidentifiedImageError as error:
        raise UnreadableImage(name, "not an image of a known kind") from error
    except Exception as error:  # Pillow's plugins raise many kinds for damaged files
        raise UnreadableImage(name, str(error)) from error


def from_picture(picture: Image.Image, name: str) -> Tensor:
    """Convert a Pillow image to uint8: expand palettes, scale 16 bits to 8, and flatten transparency onto white."""
    picture.load()  # the tag may follow the pixels
    if picture.getexif().get(ExifTags.Base.Orientation, 1) != 1:  # else it would be copied
        picture = ImageOps.exif_transpose(picture)
    if picture.mode.startswith("I") or picture.mode == "F":
        return from_array(np.asarray(picture), name)
    if picture.mode in {"RGBA", "LA", "PA", "La", "RGBa"} or "transparency" in picture.info:
        picture = picture.convert("RGBA")
        picture = Image.alpha_composite(Image.new("RGBA", picture.size, "white"), picture)
    mode = "L" if picture.mode in {"1", "L"} else "RGB"
    picture = picture if picture.mode == mode else picture.convert(mode)
    planes = _shared_planes(picture) if mode == "RGB" else None
    return _channels_first(np.array(picture), name) if planes is None else torch.from_numpy(planes)


def _shared_planes(picture: Image.Image) -> np.ndarray | None:
    """Return the colours of a picture, plane by plane, from its own memory; None where Pillow can't share it.

    Arrays are copied while all other threads wait, and that is what limits how many images a second are read.
    """
    if not hasattr(picture, "__arrow_c_array__") or 0 in picture.size:  # an older Pillow
        return None
    try:
        shared = pa.array(picture)
    except ValueError:  # larger pictures lie in several pieces
        return None
    pixels = shared.values.to_numpy().reshape(picture.height, picture.width, 4)
    planes = np.empty((3, picture.height, picture.width), np.uint8)
    cv2.mixChannels([pixels], list(planes), [0, 0, 1, 1, 2, 2])
    return planes


def from_array(array: np.ndarray, name: str) -> Tensor:
    """Convert an array (H, W), (H, W, C) or (C, H, W) to uint8: 16-bit values are scaled, floats must be in [0, 1]."""
    if array.dtype.kind == "f":
        if array.size and not (array.min() >= 0 and array.max() <= 1):
            raise UnreadableImage(name, f"expected a float image with values in [0, 1], got {array.min()}..{array.max()}")
        array = np.rint(array * 255).astype(np.uint8)
    elif array.dtype == np.uint16 or (array.dtype.kind in "iu" and array.dtype.itemsize > 1 and array.max(initial=0) > 255):
        if array.min(initial=0) < 0 or array.max(initial=0) > 65535:
            raise UnreadableImage(name, f"expected an integer image of 8 or 16 bits, got values up to {array.max()}")
        array = np.rint(array / 257).astype(np.uint8)
    elif array.dtype.kind in "iu":
        array = array.astype(np.uint8)
    else:
        raise UnreadableImage(name, f"expected an image of numbers, got {array.dtype}")
    return _channels_first(array, name)


def _channels_first(array: np.ndarray, name: str) -> Tensor:
    if array.ndim == 2:
        array = array[None]
    elif array.ndim == 3 and array.shape[2] in (1, 3, 4):
        array = array.transpose(2, 0, 1)
    if array.ndim != 3 or array.shape[0] not in (1, 3, 4):
        raise UnreadableImage(name, f"expected an image (H, W), (H, W, C) or (C, H, W), got shape {array.shape}")
    if min(array.shape[1:]) < 1:
        raise UnreadableImage(name, "the image has no pixels")
    if len(array) == 4:
        alpha = array[3:].astype(np.float32) / 255
        array = np.rint(array[:3] * alpha + 255 * (1 - alpha)).astype(np.uint8)
    return torch.from_numpy(_contiguous(array))


def _contiguous(array: np.ndarray) -> np.ndarray:
    """Return an array (C, H, W) as it is stored plane by plane; OpenCV separates colours faster than NumPy."""
    pixels = array.transpose(1, 2, 0)
    if len(array) != 3 or not pixels.flags.c_contiguous:
        return np.ascontiguousarray(array)
    planes = np.empty(array.shape, np.uint8)
    cv2.split(pixels, list(planes))
    return planes
