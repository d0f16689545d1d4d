"""Which part of a run a process measures, as given or as a cluster's scheduler says."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from brinell.errors import ConfigError

# The number of a task and how many there are, by the scheduler that sets these variables; (first number, step) by name.
_SCHEDULERS = (
    ("SLURM_ARRAY_TASK_ID", "SLURM_ARRAY_TASK_COUNT", ("SLURM_ARRAY_TASK_MIN", "SLURM_ARRAY_TASK_STEP")),
    ("JOB_COMPLETION_INDEX", "JOB_COMPLETIONS", ()),  # Kubernetes sets the index alone; a manifest sets the other
    ("AWS_BATCH_JOB_ARRAY_INDEX", "AWS_BATCH_JOB_ARRAY_SIZE", ()),
    ("BATCH_TASK_INDEX", "BATCH_TASK_COUNT", ()),  # Google Cloud Batch
)


@dataclass(frozen=True)
class PartOfRun:
    """One of `count` parts, numbered from 1."""

    number: int
    count: int

    def __str__(self) -> str:
        return f"{self.number}/{self.count}"

    @property
    def words(self) -> str:
        """The part, for people."""
        return f"part {self.number} of {self.count}"

    def owns(self, shard: int, shards: int) -> bool:
        """Whether a shard, out of so many, is measured by this part."""
        return owners(shards, self.count)[shard] == self.number


def parse_part(text: str) -> PartOfRun:
    """Return a part from "3/16"."""
    found = re.fullmatch(r"\s*([0-9]{1,7})\s*/\s*([0-9]{1,7})\s*", text)
    if found is None or not 1 <= int(found[1]) <= int(found[2]):
        raise ConfigError(f"expected a part as i/n with i from 1 to n (3/16), got {text!r}")
    return PartOfRun(int(found[1]), int(found[2]))


@lru_cache(maxsize=64)
def owners(shards: int, count: int) -> tuple[int, ...]:
    """Return the part that measures each shard.

    Shards are dealt in the order of a hash of their numbers: as evenly as possible, and without regard to the order of the
    images, which may be by size or class.
    """
    order = sorted(range(shards), key=lambda shard: hashlib.blake2b(b"%d" % shard, digest_size=8).digest())
    owner = [0] * shards
    for rank, shard in enumerate(order):
        owner[shard] = rank % count + 1
    return tuple(owner)


def scheduled_part(environment: Mapping[str, str]) -> tuple[PartOfRun, str] | None:
    """Return the part that a scheduler's variables name and the variable that does; None if this is no array job."""
    for index, count, offsets in _SCHEDULERS:
        if index not in environment:
            continue
        if count not in environment:
            raise ConfigError(
                f"{index} is set, but {count}, the number of parts, is not; set it, or use --part i/n (--part 1/1 measures "
                "the whole run here)"
            )
        names = (index, count, *(name for name in offsets if name in environment))
        try:
            values = {name: int(environment[name]) for name in names}
        except ValueError:
            raise ConfigError(f"expected whole numbers in {' and '.join(names)}; use --part i/n instead") from None
        first, step = (
            ([values.get(name, default) for name, default in zip(offsets, (0, 1), strict=True)]) if offsets else (0, 1)
        )
        number, left = divmod(values[index] - first, max(1, step))
        if left or not 0 <= number < values[count]:
            raise ConfigError(
                f"{index}={values[index]} is out of range for {values[count]} tasks; number tasks without gaps, or use "
                "--part i/n"
            )
        return PartOfRun(number + 1, values[count]), index
    return None
