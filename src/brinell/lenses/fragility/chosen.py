"""What a budget leaves of the windows of images: which are judged, which are queried, and what was known before."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from brinell.lenses.fragility.fragile import WindowAnswers
from brinell.lenses.fragility.lattice import choose
from brinell.lenses.fragility.maps import Maps, unpack
from brinell.lenses.fragility.windows import Array, Integers, Mask, Neighbourhood, WindowGrid
from brinell.lenses.method import Shard
from brinell.perturb.change import Change

Masks = tuple[Mask | None, Mask | None]  # of the shifted and of the shrunken windows; None: all


@dataclass(frozen=True)
class ChosenWindows:
    """Windows of an image: those that are `judged`, None if all are, and their share of all windows, the `inclusion`.

    `missing` are those to query now, `known` those with answers afterwards.
    """

    judged: Mask | None
    inclusion: float
    missing: Masks = (None, None)
    known: Masks = (None, None)


@dataclass(frozen=True)
class QueriedGrid:
    """Windows of a sample to query: those of a grid, or some of them."""

    sample: int
    grid: WindowGrid
    mask: Mask | None

    @property
    def count(self) -> int:
        """Number of windows."""
        return len(self.grid) if self.mask is None else int(self.mask.sum())

    def corners(self) -> Integers:
        """Return left and top of every window, int64 (windows, 2), column by column."""
        corners = self.grid.corners()
        return corners if self.mask is None else corners[self.mask.T.ravel()]

    def answers(self, *values: Array) -> WindowAnswers:
        """Return values in the order of `corners` as answers: right or wrong, labels, confidences and ranks."""
        return replace(WindowAnswers(self.grid, *(self._to_map(each) for each in values)), known=self.mask)

    def _to_map(self, values: Array) -> Array:
        if self.mask is None:
            return self.grid.to_map(values)
        found = np.zeros(len(self.grid), values.dtype)
        found[self.mask.T.ravel()] = values
        return self.grid.to_map(found)


def choose_windows(
    shard: Shard, change: Change, images: Sequence[Neighbourhood | None], strides: Sequence[int]
) -> list[ChosenWindows]:
    """Return the windows of every sample that the shard's budget chooses."""
    sampling = shard.sampling
    if sampling is None:
        return [ChosenWindows(None, 1.0)] * len(images)
    found = []
    for windows, stride, place in zip(images, strides, sampling.place(change.id, shard.ids).tolist(), strict=True):
        if windows is None:
            found.append(ChosenWindows(None, 1.0))
            continue
        before, now = (choose(windows, stride, share, place) for share in (sampling.done, sampling.share))
        known = windows.needed(now)
        missing = [mask & ~old for mask, old in zip(known, windows.needed(before), strict=True)]
        whole = sampling.share == 1
        found.append(
            ChosenWindows(
                judged=None if whole else now,
                inclusion=float(now.mean()),
                missing=(missing[0], missing[1]),
                known=(None, None) if whole else known,
            )
        )
    return found


def complete(maps: Maps, chosen: ChosenWindows, stored: bytes | None) -> Maps:
    """Return the answers to all windows that a budget needs: those that were queried now, and those that are stored."""
    old = unpack(stored) if stored is not None else None
    large = _join(maps.large, None if old is None else old.large, chosen.known[0])
    small = None if maps.small is None else _join(maps.small, None if old is None else old.small, chosen.known[1])
    return replace(maps, large=large, small=small, chosen=chosen.judged)


def _join(new: WindowAnswers, old: WindowAnswers | None, known: Mask | None) -> WindowAnswers:
    if old is None or new.known is None:
        return replace(new, known=known)
    maps = {
        name: np.where(new.known, getattr(new, name), getattr(old, name).astype(getattr(new, name).dtype))
        for name in ("correct", "label", "confidence", "rank")
    }
    return replace(new, known=known, **maps)
