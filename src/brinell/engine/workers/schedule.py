"""Which worker measures what, and when: plain bookkeeping that knows no process, no machine and no clock.

Tasks are handed out one by one, so that a slow worker gets fewer. The task of a lost worker goes to the next one that asks.
When nothing is left to hand out, a task that takes much longer than others, and some seconds, is given to a second worker:
whoever is first counts, and both write the same file.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from statistics import median
from typing import Generic, TypeVar

Task = TypeVar("Task", bound=Hashable)

ATTEMPTS = 3  # workers that a task may lose before the run fails: it may be the task that kills them
LATE = 2.0  # a task that takes so many times as long as the median is given to a second worker
SOON = 10.0  # seconds: a task that has taken less is waited for: a worker's first one is slow, and ends by itself
KNOWN = 512  # latest durations, for the median


@dataclass(frozen=True)
class Assigned(Generic[Task]):
    """A task that a worker has, since a time in seconds."""

    task: Task
    since: float


class Exhausted(Exception):
    """A task has lost as many workers as it may."""


class Schedule(Generic[Task]):
    """Hands tasks to workers, which are known by number."""

    def __init__(self, tasks: Iterable[Task]) -> None:
        self._waiting = deque(tasks)
        self._at: dict[int, Assigned[Task]] = {}
        self._workers: Counter[Task] = Counter()  # how many have a task: none, one or two
        self._lost: Counter[Task] = Counter()
        self._seconds: deque[float] = deque(maxlen=KNOWN)
        self.left = len(self._waiting)
        self._done: set[Task] = set()  # only of tasks that two workers have

    def next(self, worker: int, now: float) -> Task | None:
        """Return the next task of a worker; None if there is nothing for it to do now."""
        task = self._waiting.popleft() if self._waiting else self._late(now)
        if task is not None:
            self._at[worker] = Assigned(task, now)
            self._workers[task] += 1
        return task

    def finish(self, worker: int, now: float) -> Task | None:
        """Note that a worker has done its task, and return it; None if another worker was first."""
        assigned = self._at.pop(worker)
        self._leave(assigned.task)
        if assigned.task in self._done:
            self._done.discard(assigned.task)
            return None
        if self._workers[assigned.task]:
            self._done.add(assigned.task)
        self._seconds.append(now - assigned.since)
        self.left -= 1
        return assigned.task

    def lose(self, worker: int) -> Task | None:
        """Note that a worker is gone, and return its task, which is handed out again; None if that is not needed."""
        assigned = self._at.pop(worker, None)
        if assigned is None:
            return None
        task = assigned.task
        self._leave(task)
        if task in self._done:
            self._done.discard(task)
            return None
        self._lost[task] += 1
        if self._lost[task] >= ATTEMPTS:
            raise Exhausted(f"{task} has lost {ATTEMPTS} workers")
        if self._workers[task]:
            return None
        self._waiting.appendleft(task)
        return task

    def _limit(self) -> float:
        """Return how long a task may take before it is late."""
        return max(SOON, LATE * median(self._seconds))

    def _leave(self, task: Task) -> None:
        self._workers[task] -= 1
        if not self._workers[task]:
            del self._workers[task]

    def _late(self, now: float) -> Task | None:
        """Return the task that has taken longest, if it is late and only one worker has it."""
        if not self._seconds:
            return None
        limit = self._limit()
        late = [
            assigned
            for assigned in self._at.values()
            if now - assigned.since > limit and self._workers[assigned.task] == 1 and assigned.task not in self._done
        ]
        return min(late, key=lambda assigned: assigned.since).task if late else None
