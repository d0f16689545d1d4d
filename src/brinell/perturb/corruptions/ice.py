"""Frost of ImageNet-C: a part of a picture of ice laid over the image.

The published pictures are photographs of unknown origin, which we may not redistribute. Ours are generated: ferns of ice
(`perturb.frost.grow_frost`), with the mean colour and the contrast, coarse and fine, of the published ones. Where the
package `imagecorruptions` is installed, its photographs are `frost:photos`; `use_frost_photographs` registers those of any
folder.
"""

from __future__ import annotations

import hashlib
import importlib.util
from collections.abc import Callable, Iterator, Sequence
from functools import cache, lru_cache
from pathlib import Path

import cv2
import numpy as np
import torch
from torch import Tensor

from brinell.draws import Draws
from brinell.errors import ConfigError
from brinell.perturb.corruptions.severity import (
    SMALL,
    STANDARD,
    Constants,
    Corruption,
    Function,
    Row,
    corruption,
    published_side,
)
from brinell.perturb.frost import SIDE, grow_frost
from brinell.pictures import open_picture

# mean red, green and blue of the published pictures, and the standard deviation of coarse and fine structures in parts of
# 224×224 pixels; the published code draws one of the first five of its six pictures, and two are the same
_LOOKS = (
    ((78, 149, 166), 13.1, 8.6),
    ((201, 205, 214), 16.8, 11.0),
    ((201, 205, 214), 16.8, 11.0),
    ((138, 153, 165), 19.0, 18.2),
    ((112, 123, 135), 28.3, 21.4),
)
_FINE = 2.0  # sigma that separates fine from coarse structures, pixels
_SHRINK = 0.2  # of pictures for small images
_MARGIN = 1.1  # how much larger than the image a picture is at least
_LUMA = (0.2989, 0.5870, 0.1140)
PHOTOS = "photos"  # variant of the published pictures

# pictures of ice, uint8 (H, W, 3) each
Pictures = Callable[[], Sequence[np.ndarray]]

_FACTS = Corruption(
    "frost",
    "weather",
    Constants(
        [(1, 0.4), (0.8, 0.6), (0.7, 0.7), (0.65, 0.7), (0.6, 0.75)],
        [(1, 0.2), (1, 0.3), (0.9, 0.4), (0.85, 0.4), (0.75, 0.45)],
        (1, 0),
    ),
)


@cache
def _grown() -> Sequence[np.ndarray]:
    return [_grow(number, *look) for number, look in enumerate(_LOOKS, 1)]


def _grow(number: int, colour: tuple[int, int, int], coarse: float, fine: float) -> np.ndarray:
    """Generate a picture of ice, uint8 (512, 512, 3), with a mean colour and a contrast."""
    ferns = grow_frost(number).mean(-1)
    # ferns grow from the border: moved and turned copies cover the middle as well
    even = sum(np.roll(np.rot90(ferns, turn), turn * SIDE // 4, (0, 1)) for turn in range(4))
    smooth = cv2.GaussianBlur(even, (0, 0), _FINE)
    light = sum(part * (size / part.std()) for part, size in ((smooth - smooth.mean(), coarse), (even - smooth, fine)))
    picture: np.ndarray = np.clip(np.rint(light[..., None] + np.array(colour)), 0, 255).astype(np.uint8)
    return picture


def _frost(pictures: Pictures) -> Function:
    @lru_cache(16)
    def fitted(height: int, width: int, channels: int, device: torch.device) -> list[Tensor]:
        return [_fit(picture, height, width, channels).to(device) for picture in pictures()]

    def frost(images: Tensor, constants: Row, draws: Draws) -> Tensor:
        """Dim the image, and add a random part of a picture of ice."""
        kept, added = constants
        found = fitted(*images.shape[2:], images.shape[1], images.device)
        parts = (_cut_one_by_one if images.device.type == "cpu" else _cut_by_picture)(found, images, draws)
        return images.mul_(kept).add_(parts.to(torch.float32).mul_(added))

    return frost


def _cut_by_picture(pictures: Sequence[Tensor], images: Tensor, draws: Draws) -> Tensor:
    """Return a random part of a random picture for each image, uint8."""
    height, width = images.shape[2:]
    made = torch.empty_like(images, dtype=torch.uint8)
    chosen = draws.below(0, 1, len(pictures))[:, 0].tolist()
    for number in sorted(set(chosen)):
        rows = torch.tensor([row for row, own in enumerate(chosen) if own == number], device=images.device)
        y, x = _corner(pictures[number], images, Draws(draws.keys[rows]))
        parts = pictures[number].unfold(1, height, 1).unfold(2, width, 1)
        made[rows] = parts[:, y, x].transpose(0, 1)
    return made


def _cut_one_by_one(pictures: Sequence[Tensor], images: Tensor, draws: Draws) -> Tensor:
    """Return the same on a CPU, where slices are copied faster than windows are gathered."""
    height, width = images.shape[2:]
    parts = []
    for row, number in enumerate(draws.below(0, 1, len(pictures))[:, 0].tolist()):
        y, x = (int(start) for start in _corner(pictures[number], images, Draws(draws.keys[row : row + 1])))
        parts.append(pictures[number][:, y : y + height, x : x + width])
    return torch.stack(parts)


def _corner(picture: Tensor, images: Tensor, draws: Draws) -> Iterator[Tensor]:
    """Yield the first rows and columns of the parts."""
    for axis in (0, 1):
        room = picture.shape[1 + axis] - images.shape[2 + axis]
        yield draws.below(1 + axis, 1, max(1, room))[:, 0]


def _fit(picture: np.ndarray, height: int, width: int, channels: int) -> Tensor:
    """Return a picture, (C, H, W), that is larger than images of a size; for small images it is shrunk."""
    scale = _MARGIN * max(height / picture.shape[0], width / picture.shape[1], 1 / _MARGIN)
    if published_side(height, width) == SMALL:
        scale = max(_SHRINK, _MARGIN * max(height / picture.shape[0], width / picture.shape[1]))
    if scale != 1:
        picture = cv2.resize(picture, (0, 0), fx=scale, fy=scale)
    if channels == 1:
        picture = np.rint(picture @ np.array(_LUMA)).astype(np.uint8)[..., None]
    return torch.from_numpy(np.ascontiguousarray(picture.transpose(2, 0, 1)))


frost = corruption("frost", _FACTS)(_frost(_grown))


def use_frost_photographs(folder: str | Path, variant: str | None = None) -> str:
    """Register the first five pictures of a folder, by name, as `frost:imagenet_c-DIGITS`, an operator and a property;
    return that id.

    Its digits are those of a hash of the pictures' content.
    """
    files = sorted(path for path in Path(folder).expanduser().glob("*") if path.suffix.lower() in (".png", ".jpg", ".jpeg"))
    if not files:
        raise ConfigError(f"expected pictures of frost in {folder}, found no .png or .jpg")
    files = files[: len(_LOOKS)]
    if variant is None:
        digits = hashlib.blake2b(b"".join(path.read_bytes() for path in files), digest_size=3).hexdigest()
        variant = f"{STANDARD}-{digits}"

    @cache
    def photographs() -> Sequence[np.ndarray]:
        return [np.asarray(open_picture(path.read_bytes()).convert("RGB")) for path in files]

    made = _frost(photographs)
    made.__module__ = "imagecorruptions"  # not a part of brinell
    corruption("frost", _FACTS, variant=variant, family=PHOTOS)(made)
    return f"frost:{variant}"


def _find_package() -> Path | None:
    """Return the folder of the published photographs, where a package that has them is installed."""
    found = importlib.util.find_spec("imagecorruptions")
    folder = Path(found.origin).parent / "frost" if found is not None and found.origin else None
    return folder if folder is not None and folder.is_dir() else None


if (_folder := _find_package()) is not None:
    use_frost_photographs(_folder, PHOTOS)
