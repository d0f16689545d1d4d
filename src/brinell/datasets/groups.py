"""Photographs that belong together: an original, and others of the same scene under something real (a torch, rain, a
print).

Which belong together is told by their names: a pattern (a regular expression) whose group `original` is what photographs
of one scene have in common, and whose group `variant` tells them apart; the original is the one without it. A manifest
may have columns of these names instead.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from brinell.errors import ConfigError, DataError
from brinell.types import Dataset, Sample


@dataclass(frozen=True)
class Grouped:
    """A dataset whose names say what belongs together."""

    samples: Dataset
    pattern: re.Pattern[str]

    @property
    def name(self) -> str:
        """What the dataset is called in reports."""
        return self.samples.name

    @property
    def classes(self) -> tuple[str, ...] | None:
        """The names of its integer labels."""
        return self.samples.classes

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: int, /) -> Sample:
        sample = self.samples[index]
        found = self.pattern.search(sample.name)
        if found is None:
            return sample
        told = found.groupdict()
        return replace(sample, original=told["original"], variant=told.get("variant") or None)


def grouped(dataset: Dataset, pattern: str) -> Grouped:
    """A dataset in groups by a pattern of names, which must fit the first one at least."""
    try:
        compiled = re.compile(pattern)
    except re.error as error:
        raise ConfigError(f"the pattern {pattern!r} is no regular expression: {error}") from None
    if not {"original", "variant"} <= set(compiled.groupindex):
        raise ConfigError(
            f"the pattern {pattern!r} needs the groups original and variant, as in "
            r"(?P<original>.+?)(_torch(?P<variant>\d+))?\.jpg"
        )
    first = dataset[0].name if len(dataset) else ""
    if compiled.search(first) is None:
        raise DataError(f"the pattern {pattern!r} doesn't fit the first name, {first!r}")
    return Grouped(dataset, compiled)
