"""Image files: bytes to Pillow images, arrays or tensors to Pillow images, and those to bytes. It needs no torch."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from PIL import Image, WebPImagePlugin

# Pillow goes by the content, and for some kinds, such as EPS, it starts other programs
FORMATS = ("JPEG", "PNG", "BMP", "DIB", "GIF", "TIFF", "WEBP", "PPM", "JPEG2000")

WEBP = WebPImagePlugin.WebPImageFile.format  # imported here: to find this plugin, Pillow would import all of them
EFFORT, LOSSLESS_EFFORT = 2, 4  # of WebP, 0 to 6: with 2, photographs take half the time of 4 and 2 % more bytes


def open_picture(data: bytes) -> Image.Image:
    """Open the bytes of an image file of a known kind."""
    return Image.open(io.BytesIO(data), formats=FORMATS)


def to_picture(image: ArrayLike) -> Image.Image:
    """Return an array or a tensor on the host, uint8 (C, H, W), as a Pillow image: grey for one channel, else colour."""
    array = np.asarray(image)
    return Image.fromarray(np.ascontiguousarray(array[0] if len(array) == 1 else array.transpose(1, 2, 0)))


def encode_webp(picture: Image.Image, quality: int = 90, *, lossless: bool = False) -> bytes:
    """Return a picture as a WebP file."""
    return _encode(picture, WEBP, quality=quality, lossless=lossless, method=LOSSLESS_EFFORT if lossless else EFFORT)


def encode_jpeg(picture: Image.Image, quality: int = 85) -> bytes:
    """Return a picture as a JPEG file, without transparency."""
    return _encode(
        picture if picture.mode in ("L", "RGB") else picture.convert("RGB"), "jpeg", quality=quality, optimize=True
    )


def encode_png(picture: Image.Image) -> bytes:
    """Return a picture as a small PNG file."""
    return _encode(picture, "png", optimize=True)


def encode_image(image: ArrayLike, kind: str, quality: int = 85) -> bytes:
    """Return an array or a tensor as `to_picture` takes it as a file: png or webp, both lossless, or jpeg."""
    options: dict[str, dict[str, Any]] = {
        "webp": {"lossless": True, "quality": 80, "exact": True},
        "jpeg": {"quality": quality, "optimize": True},
    }
    return _encode(to_picture(image), kind, **options.get(kind, {}))


def _encode(picture: Image.Image, kind: str, **options: Any) -> bytes:
    sink = io.BytesIO()
    picture.save(sink, kind, **options)
    return sink.getvalue()
