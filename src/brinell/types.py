"""The words of the domain that every layer shares.

Images are uint8 tensors in RGB or grey: (C, H, W) one at a time, (N, C, H, W) in batches, C being 1 or 3.
Boxes are float32 (K, 4), xyxy in pixels of the image they came with.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from torch import Tensor

Label = int | str


@dataclass(frozen=True, slots=True)
class Sample:
    """One image at native size with what is known about it.

    `original` names the scene that it is a photograph of, `variant` which one; the original itself is no variant.
    """

    image: Tensor
    label: Label | None
    name: str
    boxes: Tensor | None = None
    box_labels: tuple[Label, ...] = ()
    original: str | None = None
    variant: str | None = None


@dataclass(frozen=True, slots=True)
class Origin:
    """What an image was made of: the id of its original and the operator (or property, view, motion) that changed it."""

    original: str
    operator: str | None = None


class Dataset(Protocol):
    """Where samples come from.

    A dataset of images that were made of others may tell so: `origin(index)`, an `Origin` or None.
    """

    @property
    def name(self) -> str:
        """What the dataset is called in reports."""
        ...

    @property
    def classes(self) -> tuple[str, ...] | None:
        """The names of its integer labels."""
        ...

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> Sample: ...


def image_id(image: Tensor) -> str:
    """A stable name for an image's content: 16 hex digits from its shape and pixels."""
    digest = hashlib.blake2b(repr(tuple(image.shape)).encode(), digest_size=8)
    digest.update(np.ascontiguousarray(image.numpy()).data)
    return digest.hexdigest()


def id_number(identity: str) -> int:
    """An image's id as the signed 64-bit number that its draws are named by."""
    return int.from_bytes(bytes.fromhex(identity), "big", signed=True)


def id_text(number: int) -> str:
    """An image's id, from the number that its draws are named by."""
    return number.to_bytes(8, "big", signed=True).hex()
