"""What the corruptions share: published constants, severities between them, and their registration.

ImageNet-C and CIFAR-10-C (Hendrycks and Dietterich, ICLR 2019) publish constants for severities 1 to 5, at 224×224 and at
32×32 pixels. Between two severities each constant is interpolated linearly (counts are then rounded); below severity 1 it
is interpolated from a neutral value, and severity 0 is the clean image. An image gets the constants of the size that is
nearer to its shorter side by ratio: CIFAR-10-C's up to 84 pixels, ImageNet-C's from 85 pixels on.

Every corruption is registered twice, as `NAME:imagenet_c` or `NAME:imagenet_c_bar`: as an operator whose levels 1 to 5 are
the published severities, and as a property whose severity 1 is the published severity 5. The same image under the same seed
is the same in both.

The function of a corruption gets float32 images (B, C, H, W) in grey levels, 0 to 255, which it may overwrite, the
constants of one severity as a tuple of floats, and `draws` if it asks for them. Its result is clipped and rounded for it.
One that says `bytes` gets uint8 images, which it leaves as they are, and may return uint8.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor

from brinell.draws import Draws
from brinell.perturb.levels import to_bytes, to_whole
from brinell.perturb.operator import Facts, level_operator
from brinell.perturb.papers import HENDRYCKS_2019, MINTUN_2021
from brinell.perturb.property import Category, PropertyFacts, pixel_property
from brinell.resizing.resample import to_device

STRONGEST = 5  # the highest published severity
POINTS = 50  # of a search: tenths of a severity
SMALL, LARGE = 32, 224  # sides of the images that constants were published for
STANDARD, EXTRA, BAR = "imagenet_c", "imagenet_c_extra", "imagenet_c_bar"  # families
_CPU_VALUES, _VALUES = (
    1 << 18,
    1 << 27,
)  # values changed at once: what a core's cache holds, what an accelerator's memory does

Row = tuple[float, ...]
Function = Callable[..., Tensor]


def published_side(height: int, width: int) -> int:
    """Return the side that an image's constants were published for: the nearer of 32 and 224 by ratio."""
    return SMALL if min(height, width) ** 2 <= SMALL * LARGE else LARGE


@dataclass(frozen=True)
class Constants:
    """The published constants of a corruption: one row per severity from 1 to 5, at 224×224 and at 32×32 pixels.

    `neutral` is the row of severity 0 (a second one where small images need another), which changes next to nothing;
    `counts` are the columns of whole numbers.
    """

    large: Sequence[Row]
    small: Sequence[Row]
    neutral: Row
    small_neutral: Row | None = None
    counts: tuple[int, ...] = ()

    def at(self, severity: float, height: int, width: int) -> Row:
        """Return the constants of a severity from 0 to 5 for images of a size."""
        if published_side(height, width) == SMALL:
            rows = [self.small_neutral or self.neutral, *self.small]
        else:
            rows = [self.neutral, *self.large]
        below = min(math.floor(severity), STRONGEST - 1)
        share = severity - below
        row = [(1 - share) * low + share * high for low, high in zip(rows[below], rows[below + 1], strict=True)]
        return tuple(float(math.floor(value + 0.5)) if i in self.counts else value for i, value in enumerate(row))


@dataclass(frozen=True)
class Corruption:
    """The facts about a corruption that people see, and its constants."""

    title: str
    category: Category
    constants: Constants
    reach: Literal["global", "local"] = "global"
    domain: Literal["colour", "pixel"] = "pixel"
    family: str = field(default=STANDARD, kw_only=True)
    bytes: bool = field(default=False, kw_only=True)

    @property
    def source(self) -> str:
        """The paper that it comes from."""
        return MINTUN_2021 if self.family == BAR else HENDRYCKS_2019

    @property
    def variant(self) -> str:
        """Name of the variant under which it is registered."""
        return BAR if self.family == BAR else STANDARD


CORRUPTIONS: dict[str, Corruption] = {}


def corruption(
    name: str, facts: Corruption, *, variant: str | None = None, family: str | None = None
) -> Callable[[Function], Function]:
    """Register a function as an operator and as a property; its variant and family are those of the facts by default."""
    CORRUPTIONS.setdefault(name, facts)
    variant, family = variant or facts.variant, family or facts.family

    def add(function: Function) -> Function:
        operator, found = _as_operator(function, facts), _as_property(function, facts)
        for made in (operator, found):
            made.__doc__, made.__module__ = function.__doc__, function.__module__
        level_operator(
            name,
            Facts(
                facts.title,
                "severity",
                lambda level, height, width: min(level, STRONGEST),
                facts.reach,
                facts.domain,
                levels=STRONGEST,
                family=family,
                source=facts.source,
            ),
            variant=variant,
        )(operator)
        pixel_property(
            name,
            PropertyFacts(
                facts.title,
                facts.category,
                "severity",
                lambda severities, height, width: STRONGEST * severities[:, 0],
                points=POINTS,
                strongest=STRONGEST,
                family=family,
                source=facts.source,
            ),
            variant=variant,
        )(found)
        return function

    return add


def _is_stochastic(function: Function) -> bool:
    return "draws" in inspect.signature(function).parameters


def _as_operator(function: Function, facts: Corruption) -> Any:
    def change(images: Tensor, levels: Tensor, draws: Draws | None = None) -> Tensor:
        severities = [float(min(level, STRONGEST)) for level in levels.tolist()]
        made = torch.empty_like(images)
        for rows, row in _groups(severities, images, facts.constants):
            given = images[rows] if facts.bytes else images[rows].to(torch.float32)
            part = _call(function, given, row, draws, rows)
            made[rows] = part if part.dtype == torch.uint8 else to_whole(part)
        return made

    def change_alike(images: Tensor, levels: Tensor) -> Tensor:
        return change(images, levels)

    return change if _is_stochastic(function) else change_alike


def _as_property(function: Function, facts: Corruption) -> Any:
    def change(images: Tensor, severities: Tensor, draws: Draws | None = None) -> Tensor:
        published = [STRONGEST * min(severity, 1.0) for severity in severities[:, 0].tolist()]
        for rows, row in _groups(published, images, facts.constants):
            given = to_bytes(images[rows]) if facts.bytes else images[rows]
            images[rows] = _call(function, given, row, draws, rows).to(torch.float32)
        return images

    def change_alike(images: Tensor, severities: Tensor) -> Tensor:
        return change(images, severities)

    return change if _is_stochastic(function) else change_alike


def _call(function: Function, images: Tensor, row: Row, draws: Draws | None, rows: Tensor | slice) -> Tensor:
    return function(images, row) if draws is None else function(images, row, Draws(draws.keys[rows]))


def _groups(severities: Sequence[float], images: Tensor, constants: Constants) -> Iterator[tuple[Tensor | slice, Row]]:
    """Yield images of the same severity, as many as are best changed at once, with the constants of that severity.

    Images of severity 0 stay clean and are left out.
    """
    height, width = images.shape[2:]
    size = max(1, (_CPU_VALUES if images.device.type == "cpu" else _VALUES) // images[0].numel())
    for severity in sorted(set(severities) - {0}):
        row = constants.at(severity, height, width)
        if severities.count(severity) == len(severities):
            for start in range(0, len(severities), size):
                yield slice(start, start + size), row
        else:
            members = torch.tensor([index for index, value in enumerate(severities) if value == severity])
            for start in range(0, len(members), size):
                yield to_device(members[start : start + size], images.device), row
