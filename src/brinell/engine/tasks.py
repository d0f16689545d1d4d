"""Runs a lens's tasks in batches of a fixed size, so that what is found for an image depends on that image alone.

The last bits of a network's scores and gradients, and of other sums, depend on how many images are computed at once. A
search that follows slopes turns last bits into other motions. So the batch size of tasks is neither tuned nor an option:
it is a function of the kind of device and the size of the model input. A batch that is not full is filled up, and holds
images of one canvas only (see `moving`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor

from brinell.engine.stage import Stage
from brinell.engine.threads import one_each_core, two_in_flight
from brinell.errors import ModelError
from brinell.lenses.method import Done, Task

_PHOTOGRAPH = 3 * 256**2
# smallest and largest batch, and the values that fit into one: on a CPU few images are nearly as fast as many; an H200 has
# 0.96 to 0.98 of its highest rate with 256 images for a ResNet-50, and 0.64 to 0.84 with 64
_SIZES = {"cpu": (4, 16, 4 * _PHOTOGRAPH), "cuda": (64, 1024, 256 * _PHOTOGRAPH)}

# by how much batches are smaller where positions are few: a batch of 256 would mostly be filled up with repeated images
_FEW = {"cuda": 4}


def fixed_batch(device: torch.device, values: int) -> int:
    """Return the batch size of tasks for images of this many values: the same on all machines with this kind of device."""
    least, most, room = _SIZES.get(device.type, _SIZES["cpu"])
    return min(most, max(least, 1 << (room // max(1, values)).bit_length() - 1))


class TaskRunner:
    """Runs tasks on a stage. `layouts` are the canvases of the samples; `advance` is called with numbers of queries."""

    def __init__(self, stage: Stage, layouts: Tensor, advance: Callable[[int], None]) -> None:
        self.stage, self.layouts, self._advance = stage, layouts, advance
        pre, self._device = stage.model.preprocess, stage.model.device
        service = stage.model.service
        fixed = fixed_batch(self._device, pre.channels * pre.height * pre.width)
        self._size = fixed if service is None else max(fixed, service.batch)

    def run(self, task: Task) -> Done:
        """Return the results of a task, on the host."""
        layouts = self.layouts[task.samples]
        order = layouts.argsort(stable=True)
        few = max(1, self._size // _FEW.get(self._device.type, 1)) if task.few else None
        parts = self._in_batches(partial(self._run_part, task, layouts), order, task.batch or few)
        done = _joined(parts)
        back = order.argsort()
        return {name: values[back] for name, values in done.items()}

    def _run_part(self, task: Task, layouts: Tensor, part: tuple[Tensor, int]) -> Done:
        """Return the results of a part: positions, and the batch size."""
        positions, size = part
        found = []
        paid = task.queries and self.stage.model.service is not None  # answers of a service don't depend on our batches
        for batch, count in _filled(layouts, positions, 0 if paid else size):
            done = task.do(self.stage, batch)
            found.append({name: values[:count].cpu() for name, values in done.items()})
        if task.queries:
            self._advance(len(positions))
        return _joined(found)

    def _in_batches(self, work: Callable[[tuple[Tensor, int]], Done], order: Tensor, batch: int | None) -> list[Done]:
        """Return the results of work on batches of positions. Only a lack of an accelerator's memory halves their size."""
        each: Callable[..., Iterable[Any]] = map
        if self._device.type == "cpu":
            each = one_each_core
        elif self._device.type == "cuda":
            each = partial(two_in_flight, device=self._device)
        while True:
            size = batch or self._size
            parts = [(order[start : start + size], size) for start in range(0, len(order), size)]
            try:
                return list(each(work, parts))
            except torch.OutOfMemoryError:
                if size == 1:
                    raise ModelError("out of memory even with one image at a time; use --device cpu") from None
                self._size, batch = size // 2, None
                torch.cuda.empty_cache()


def _filled(layouts: Tensor, positions: Tensor, size: int) -> Iterator[tuple[Tensor, int]]:
    """Yield positions in batches of one layout and at least `size`, and how many of each count: the last is repeated."""
    for layout in torch.unique(layouts[positions]):
        mine = positions[layouts[positions] == layout]
        yield torch.cat([mine, mine[-1:].expand(max(0, size - len(mine)))]), len(mine)


def _joined(parts: list[Done]) -> Done:
    return {name: torch.cat([part[name] for part in parts]) for name in parts[0]}
