"""Bad images from a seeded generator: every kind, cut, flipped, spliced, lying about its size, or something else."""

from __future__ import annotations

import io
import struct
import sys
import zlib
from pathlib import Path
from random import Random
from typing import Any

import torch
from PIL import Image

from brinell.datasets.decode import decode
from brinell.errors import UnreadableImage
from chaos.scenario import Result

COUNT = 10_000
KINDS = [
    ("PNG", mode) for mode in ("1", "L", "LA", "P", "RGB", "RGBA", "I;16")
] + [("JPEG", mode) for mode in ("L", "RGB", "CMYK")] + [
    ("GIF", "P"), ("BMP", "RGB"), ("TIFF", "RGB"), ("TIFF", "F"), ("TIFF", "CMYK"), ("WEBP", "RGBA"), ("PPM", "RGB"),
]  # fmt: skip
STRANGERS = [
    b"", b"\0" * 100, b"<svg xmlns='http://www.w3.org/2000/svg'/>", b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n",
    b"%PDF-1.7\n", b"PK\x03\x04" + b"\0" * 60, b"GIF89a", b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff\xe0", b"BM", b"II*\0",
    b"RIFF\xff\xff\xff\xffWEBPVP8 ", b"P6 99999 99999 255\n", b"P6 0 0 255\n", b"<html>not an image</html>",
]  # fmt: skip


def make_image(random: Random) -> bytes:
    """Return the bytes of a small picture of any kind."""
    kind, mode = random.choice(KINDS)
    size = random.choice([(1, 1), (3, 500), (500, 3), (40, 30), (64, 64)])
    picture = Image.frombytes("L", size, random.randbytes(size[0] * size[1]))
    sink = io.BytesIO()
    options: dict[str, Any] = {"exif": random.randbytes(40)} if kind == "JPEG" and random.random() < 0.2 else {}
    picture.convert("I;16" if mode == "I;16" else mode).save(sink, kind, **options)
    return sink.getvalue()


def damage(data: bytes, random: Random) -> bytes:
    """Return a picture with one fault."""
    how = random.randrange(7)
    place = random.randrange(len(data)) if data else 0
    if how == 0:
        return data[:place]
    if how == 1:
        flipped = bytearray(data)
        for _ in range(random.choice([1, 1, 4, 30])):
            flipped[random.randrange(len(data))] ^= 1 << random.randrange(8)
        return bytes(flipped)
    if how == 2:
        return data[:place] + random.randbytes(random.randrange(1, 60)) + data[place:]
    if how == 3:
        return data[:place] + data[place + random.randrange(1, 60) :]
    if how == 4:
        return data[:place] + make_image(random)[place:]
    if how == 5:
        return _lying_png(random)
    return random.choice(STRANGERS) + random.randbytes(random.randrange(40))


def _lying_png(random: Random) -> bytes:
    """Return a PNG whose header claims a size that its data doesn't have."""
    width, height = (random.choice([0, 1, 8000, 20_000, 2**31 - 1]) for _ in range(2))
    head = struct.pack(">IIBBBBB", width, height, random.choice([1, 8, 16]), random.choice([0, 2, 3, 6]), 0, 0, 0)
    body = zlib.compress(b"\0" * random.choice([10, 1000, 100_000]))
    chunks = b"".join(
        struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))
        for name, content in ((b"IHDR", head), (b"IDAT", body), (b"IEND", b""))
    )
    return b"\x89PNG\r\n\x1a\n" + chunks


def bad_images(work: Path, random: Random, scale: float) -> Result:
    """Decode bad images: each is read or refused, within seconds, and no other program is started."""
    result = Result("bad images", "each is read or listed as unreadable within 10 s; no program is started")
    started: list[str] = []
    watching = True

    def watch(event: str, arguments: tuple[Any, ...]) -> None:
        if watching and event in ("subprocess.Popen", "os.system", "os.exec", "os.posix_spawn"):
            started.append(f"{event}: {arguments}")

    sys.addaudithook(watch)
    for number in range(max(1, round(COUNT * scale))):
        data = damage(make_image(random), random)
        with result.attempt(f"image {number}", UnreadableImage, seconds=10):
            image = decode(data, "x")
            result.expect(
                image.dtype == torch.uint8 and image.ndim == 3 and image.shape[0] in (1, 3) and min(image.shape) > 0,
                f"image {number}: decoded as {image.dtype} {tuple(image.shape)}",
            )
    watching = False
    result.broken += started
    return result
