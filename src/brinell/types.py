"""Types that every layer shares. Importing this module imports neither torch nor numpy.

Images are uint8 tensors, RGB or grey: one is (C, H, W), a batch is (N, C, H, W), with C = 1 or 3.
Boxes are float32 (K, 4): xyxy, in pixels of the image they belong to.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, Protocol

if TYPE_CHECKING:
    from torch import Tensor

Label = int | str
Interpolation = Literal["nearest", "bilinear", "bicubic", "lanczos"]


@dataclass(frozen=True, slots=True)
class Sample:
    """One image at its native size, with its label, name and boxes.

    `original` names the scene that a photograph shows and `variant` tells the photographs of a scene apart; the original
    itself has no variant. `metadata` is what else is known about the image, such as the weather, by which results can be
    sliced.
    """

    image: Tensor
    label: Label | None
    name: str
    boxes: Tensor | None = None
    box_labels: tuple[Label, ...] = ()
    original: str | None = None
    variant: str | None = None
    metadata: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a derived image comes from: its original's id and the operator (property, view, motion) applied to it."""

    original: str
    operator: str | None = None


class Dataset(Protocol):
    """A sequence of samples.

    Some members are optional: `origin(index)` returns the `Origin` of an image that was derived from another one, or None;
    `credits(index)` returns what is known about an image's author and licence, as a mapping of strings; `unlabelled` says
    that no image has a label, so that a run can refuse them before it reads any; `mask(index)` returns the class of each
    pixel of an image, int16 (H, W), as an index into `classes` or -1, or None if it has no mask; `annotations()` returns
    the content of the COCO file that a dataset was read from, or None, so that copies keep what samples don't hold.
    """

    @property
    def name(self) -> str:
        """The dataset's name in reports."""
        ...

    @property
    def classes(self) -> tuple[str, ...] | None:
        """The names of its integer labels."""
        ...

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> Sample: ...


def image_id(image: Tensor) -> str:
    """Return a stable id of an image's content: 16 hex digits of a hash of its shape and pixels."""
    digest = hashlib.blake2b(repr(tuple(image.shape)).encode(), digest_size=8)
    digest.update(image.contiguous().numpy().data)
    return digest.hexdigest()


def id_number(identity: str) -> int:
    """Return an image id as the signed 64-bit number that keys its random draws."""
    return int.from_bytes(bytes.fromhex(identity), "big", signed=True)


def id_text(number: int) -> str:
    """Return the image id of a number made by `id_number`."""
    return number.to_bytes(8, "big", signed=True).hex()
