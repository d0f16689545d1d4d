"""Photographs that belong together: an original, and variants of the same scene (lit by a torch, in the rain, printed).

A regular expression on the file names says which belong together: its group `original` is what all photographs of a scene
have in common, its group `variant` tells them apart; the original is the one without a variant. A manifest may have columns
of these names instead.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from brinell.errors import ConfigError, DataError
from brinell.types import Dataset, Origin, Sample

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Grouped:
    """A dataset whose file names say which photographs belong together."""

    samples: Dataset
    pattern: re.Pattern[str]

    @property
    def name(self) -> str:
        """The dataset's name in reports."""
        return self.samples.name

    @property
    def classes(self) -> tuple[str, ...] | None:
        """The names of its integer labels."""
        return self.samples.classes

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: int, /) -> Sample:
        sample = self.samples[index]
        match = self.pattern.search(sample.name)
        if match is None:
            return sample
        groups = match.groupdict()
        return replace(sample, original=groups["original"], variant=groups.get("variant") or None)

    @property
    def unlabelled(self) -> bool:
        """Whether no image has a label."""
        return bool(getattr(self.samples, "unlabelled", False))

    def mask(self, index: int) -> Tensor | None:
        """Return the mask of an image; None if it has none."""
        mask: Tensor | None = self.samples.mask(index) if hasattr(self.samples, "mask") else None
        return mask

    def origin(self, index: int) -> Origin | None:
        """Return the origin of an image, if it is known."""
        origin: Origin | None = self.samples.origin(index) if hasattr(self.samples, "origin") else None
        return origin

    def credits(self, index: int) -> Mapping[str, str]:
        """Return what is known about an image's author and licence."""
        credits: Mapping[str, str] = self.samples.credits(index) if hasattr(self.samples, "credits") else {}
        return credits


def group_by_name(dataset: Dataset, pattern: str) -> Grouped:
    """Group a dataset by a pattern of names, which must match at least the first name."""
    try:
        compiled = re.compile(pattern)
    except re.error as error:
        raise ConfigError(f"the pattern {pattern!r} is not a valid regular expression: {error}") from None
    if not {"original", "variant"} <= set(compiled.groupindex):
        raise ConfigError(
            f"the pattern {pattern!r} needs the groups original and variant, as in "
            r"(?P<original>.+?)(_torch(?P<variant>\d+))?\.jpg"
        )
    first = dataset[0].name if len(dataset) else ""
    if compiled.search(first) is None:
        raise DataError(f"the pattern {pattern!r} doesn't match the first name, {first!r}")
    return Grouped(dataset, compiled)
