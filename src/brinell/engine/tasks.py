"""Runs a lens's tasks in batches of a fixed size, so that what is found for an image depends on that image alone.

The last bits of a network's scores and gradients, and of other sums, depend on how many images are computed at once. A
search that follows slopes turns last bits into other motions. So the batch size of tasks is neither tuned nor an option:
it is a function of the kind of device and the size of the model input. A batch that is not full is filled up, and holds
images of one canvas only (see `moving`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

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
    """Runs tasks on a stage. `layouts` are the canvases of the samples.

    `advance` is called with numbers of queries, `end` with how many images need nothing more.
    """

    def __init__(
        self,
        stage: Stage,
        layouts: Tensor,
        advance: Callable[[int], None],
        end: Callable[[int], None],
    ) -> None:
        self.stage, self.layouts, self._advance, self._end = stage, layouts, advance, end
        pre, self._device = stage.model.preprocess, stage.model.device
        service = stage.model.service
        fixed = fixed_batch(self._device, pre.channels * pre.height * pre.width)
        self._size = fixed if service is None else max(fixed, service.batch)

    def run(self, tasks: Sequence[Task]) -> list[Done]:
        """Return the results of tasks that don't need each other's, on the host; their batches take turns."""
        self._end(max(task.ended for task in tasks))
        plans = [_Plan.of(task, self.layouts[task.samples]) for task in tasks]
        sizes = [self._batch(task) for task in tasks]
        while True:
            parts = [part for plan, size in zip(plans, sizes, strict=True) for part in plan.parts(size)]
            parts.sort(key=lambda part: part.share)
            try:
                found = list(self._each(self._run_part, parts))
                break
            except torch.OutOfMemoryError:  # only this changes the size
                if max(sizes) == 1:
                    raise ModelError("out of memory even with one image at a time; use --device cpu") from None
                self._size = max(sizes) // 2
                sizes = [self._size] * len(tasks)
                torch.cuda.empty_cache()
        done = []
        for plan in plans:
            joined = _joined([result for part, result in zip(parts, found, strict=True) if part.plan is plan])
            back = plan.order.argsort()
            done.append({name: values[back] for name, values in joined.items()})
        return done

    def _batch(self, task: Task) -> int:
        few = max(1, self._size // _FEW.get(self._device.type, 1)) if task.few else self._size
        return task.batch or few

    def _run_part(self, part: _Part) -> Done:
        task, found = part.plan.task, []
        paid = task.queries and self.stage.model.service is not None  # answers of a service don't depend on our batches
        for batch, count in _filled(part.plan.layouts, part.positions, 0 if paid else part.size):
            done = task.do(self.stage, batch)
            found.append({name: values[:count].cpu() for name, values in done.items()})
        if task.queries:
            self._advance(len(part.positions))
        return _joined(found)

    def _each(self, work: Callable[[_Part], Done], parts: list[_Part]) -> Iterable[Done]:
        if self._device.type == "cpu":
            return one_each_core(work, parts)
        return two_in_flight(work, parts, self._device) if self._device.type == "cuda" else map(work, parts)


@dataclass(frozen=True, eq=False)
class _Plan:
    """A task, the canvases of its samples, and its positions in the order in which they are computed."""

    task: Task
    layouts: Tensor
    order: Tensor

    @staticmethod
    def of(task: Task, layouts: Tensor) -> _Plan:
        return _Plan(task, layouts, layouts.argsort(stable=True))

    def parts(self, size: int) -> list[_Part]:
        """Return the task in parts of a batch each."""
        split = torch.split(self.order, size)
        return [_Part(self, positions, size, (index + 0.5) / len(split)) for index, positions in enumerate(split)]


@dataclass(frozen=True, eq=False)
class _Part:
    """Positions of a task that fit into a batch of a `size`, and how far into the task they are."""

    plan: _Plan
    positions: Tensor
    size: int
    share: float


def _filled(layouts: Tensor, positions: Tensor, size: int) -> Iterator[tuple[Tensor, int]]:
    """Yield positions in batches of one layout and at least `size`, and how many of each count: the last is repeated."""
    for layout in torch.unique(layouts[positions]):
        mine = positions[layouts[positions] == layout]
        yield torch.cat([mine, mine[-1:].expand(max(0, size - len(mine)))]), len(mine)


def _joined(parts: list[Done]) -> Done:
    return {name: torch.cat([part[name] for part in parts]) for name in parts[0]}
