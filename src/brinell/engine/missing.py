"""What is missing of a job: the part of each unit from the share that has rows to the share that is wanted."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from brinell.engine.setup import Job
from brinell.engine.shards import Entry, id_numbers
from brinell.engine.units import unit_size
from brinell.lenses.sampling import Sampling, count_images, shuffled_ranks
from brinell.perturb.change import Change
from brinell.runs.schema import Unit
from brinell.runs.store import Store

Chosen = Callable[[int, int], bool]  # whether a shard, out of so many, is measured by this process


def everything(shard: int, shards: int) -> bool:
    """Choose all shards."""
    return True


@dataclass(frozen=True)
class Wanted:
    """The share of queries to make. `sampled`: a budget has left some out before; `damaged` units have to start again.

    With `cells`, a share up to it is of images: in a random order, each gets this share of its cells. So few images are
    enough to see whether a run can stop. Without, every image gets the share.
    """

    seed: int
    share: float = 1.0
    sampled: bool = False
    damaged: frozenset[Unit] = frozenset()
    cells: float | None = None

    @property
    def stages(self) -> list[Wanted]:
        """What to measure one after the other: all images first, then more cells of each."""
        first = [] if self.cells is None or self.share <= self.cells else [replace(self, share=self.cells)]
        return [*first, self]

    def images_of(self, share: float) -> float:
        """Return the share of images that have rows when a share of the queries is made."""
        return 1.0 if self.cells is None else min(1.0, share / self.cells)

    def split(self, done: float, share: float, *, by_image: bool) -> tuple[tuple[float, float], tuple[float, float]]:
        """Return from which to which share of the images, and of their cells, it takes to go from a share to another."""
        if self.cells is None:
            return ((done, share), (0.0, 1.0)) if by_image else ((0.0, 1.0), (done, share))
        if done < self.cells:
            return (self.images_of(done), self.images_of(share)), (0.0, 1.0 if by_image else self.cells)
        return ((1.0, 1.0), (0.0, 1.0)) if by_image else ((0.0, 1.0), (done, share))


@dataclass(frozen=True)
class Part:
    """What is missing of a unit: the `samples` of its shard to measure, and how much of their queries.

    `done` is the share that has rows, `share` the one that is wanted; `cells` are the same for the cells of each image.
    Where a change can't be divided, images are chosen (`by_image`); else the lens chooses cells by `sampling`, None if all
    of them. `inclusion` is the probability of an image, before and now.
    """

    unit: Unit
    change: Change
    samples: tuple[int, ...]
    done: float
    share: float
    seed: int
    by_image: bool
    cells: tuple[float, float]
    inclusion: tuple[float, float] = (0.0, 1.0)

    @property
    def whole(self) -> bool:
        """Whether nothing is left out, and nothing was measured before."""
        return self.done == 0 and self.share == 1

    @property
    def sampling(self) -> Sampling | None:
        """Which cells the lens queries."""
        before, now = self.cells
        return None if self.whole or self.by_image else Sampling(self.seed, now, before)

    def trials(self, job: Job, shard: Sequence[Entry]) -> int:
        """Return the most trials that the part can take."""
        most = job.trials(self.change, [shard[sample] for sample in self.samples])
        return round(most * (self.cells[1] - self.cells[0]))


def units_of(job: Job, shards: int, chosen: Chosen = everything) -> dict[Unit, Change]:
    """Return a job's units of the chosen shards, shard by shard, each with its change."""
    return {
        Unit(job.lens.name, job.model.name, change.id, number): change
        for number in range(shards)
        if chosen(number, shards)
        for change in job.changes
    }


def missing_parts(
    store: Store,
    job: Job,
    kept: Sequence[Entry],
    execution: Mapping[str, Any],
    wanted: Wanted,
    chosen: Chosen = everything,
) -> tuple[list[list[Entry]], list[Part]]:
    """Return the images of a job's units, and what is missing of the chosen units, shard by shard."""
    size = unit_size(execution, job, kept)
    shards = [list(kept[start : start + size]) for start in range(0, len(kept), size)]
    units = units_of(job, len(shards), chosen)
    shares = {change.id: wanted.share if job.trials(change, kept) else 1.0 for change in job.changes}
    ranks = (
        shuffled_ranks(wanted.seed, id_numbers(kept)).tolist() if wanted.share < 1 or wanted.sampled else range(len(kept))
    )
    parts = []
    for unit, done in store.shares(units, sampled=wanted.sampled).items():
        share, change = shares[unit.operator], units[unit]
        done = 0.0 if unit in wanted.damaged else done
        if done >= share:
            continue
        by_image = job.lens.reader.cells(unit.operator) is None
        images, cells = wanted.split(done, share, by_image=by_image)
        first, stop = (count_images(each, len(kept)) for each in images)
        own = ranks[unit.shard * size : unit.shard * size + len(shards[unit.shard])]
        samples = tuple(sample for sample, rank in enumerate(own) if first <= rank < stop)
        inclusion = (first or stop) / len(kept), stop / len(kept)
        parts.append(Part(unit, change, samples, done, share, wanted.seed, by_image, cells, inclusion))
    return shards, parts


def share_left(store: Store, job: Job, kept: Sequence[Entry], wanted: Wanted) -> float:
    """Return the share of a job's trials that are still to do, in a folder that holds its run."""
    shards, parts = missing_parts(store, job, kept, store.manifest()["execution"], wanted)
    left = sum(part.trials(job, shards[part.unit.shard]) for part in parts)
    total = sum(job.trials(change, kept) for change in job.changes)
    return left / total if total else float(bool(parts))
