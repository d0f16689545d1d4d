"""Workers of a run in processes of this machine.

A `Workers` is what a run needs of workers, wherever they are. This imports no torch.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import TYPE_CHECKING, Literal, Protocol

from brinell.config.devices import parse_devices
from brinell.config.execution import Execution
from brinell.errors import BrinellError

if TYPE_CHECKING:
    from brinell.engine.workers.worker import Order, ShardTask

THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


@dataclass(frozen=True)
class Event:
    """What a worker reports: it is ready for a task, has done one, is gone, or failed in a way that others would, too."""

    worker: int
    kind: Literal["ready", "done", "lost", "failed"]
    reason: str = ""


class Workers(Protocol):
    """Workers by number. A worker that is lost is replaced by one with another number."""

    size: int

    def start(self) -> int:
        """Start a worker, and return its number; it reports when it is ready."""
        ...

    def send(self, worker: int, task: ShardTask) -> None:
        """Give a worker a task."""
        ...

    def wait(self, seconds: float) -> list[Event]:
        """Return what workers have reported, or nothing after some time."""
        ...

    def stop(self) -> None:
        """End all workers."""
        ...


def worker_number(execution: Execution) -> int:
    """Return the number of workers of a run; a cluster is connected by then."""
    if execution.devices is not None:
        return len(parse_devices(execution.devices))
    if execution.cluster is None:
        return 1
    from brinell.engine.workers import ray_actors

    return ray_actors.actors_of(execution)[0]


def serve(connection: Connection, order: Order) -> None:
    """Measure what comes through a connection, until it is closed."""
    from brinell.engine.workers.worker import Worker

    try:
        worker = Worker(order)
        connection.send("ready")
        while True:
            worker.measure(connection.recv())
            connection.send("done")
    except (EOFError, BrokenPipeError, KeyboardInterrupt):  # the run has ended
        return
    except BrinellError as error:
        with suppress(OSError):
            connection.send(f"failed {error}")


class Processes:
    """A process for each device."""

    def __init__(self, orders: Sequence[Order]) -> None:
        self.size, self._orders = len(orders), orders
        self._started = 0
        self._workers: dict[int, tuple[BaseProcess, Connection, Order]] = {}

    def start(self) -> int:
        """Start a worker, on the device that has the fewest."""
        number, context = self._started, get_context("spawn")
        self._started += 1
        busy = [id(order) for _, _, order in self._workers.values()]
        order = min(self._orders, key=lambda one: busy.count(id(one)))
        own, other = context.Pipe()
        process = context.Process(target=serve, args=(other, order), name=f"worker {number}", daemon=True)
        with _threads(max(1, (os.cpu_count() or 1) // self.size)):
            process.start()
        other.close()
        self._workers[number] = (process, own, order)
        return number

    def send(self, worker: int, task: ShardTask) -> None:
        """Give a worker a task. If it is gone, that is reported next."""
        with suppress(OSError):
            self._workers[worker][1].send(task)

    def wait(self, seconds: float) -> list[Event]:
        """Return what workers have reported."""
        connections = {connection: number for number, (_, connection, _) in self._workers.items()}
        return [self._read(connections[ready]) for ready in wait(list(connections), seconds)]  # type: ignore[index]

    def _read(self, number: int) -> Event:
        process, connection, _ = self._workers[number]
        try:
            text: str = connection.recv()
        except (EOFError, OSError):
            connection.close()
            process.join()
            del self._workers[number]
            return Event(number, "lost", f"exit code {process.exitcode}")
        if text.startswith("failed "):
            return Event(number, "failed", text.removeprefix("failed "))
        return Event(number, "ready" if text == "ready" else "done")

    def stop(self) -> None:
        """End all processes: those that wait for a task by themselves, the others at once."""
        for process, connection, _ in self._workers.values():
            connection.close()
            process.terminate()
        for process, _, _ in self._workers.values():
            process.join()
        self._workers.clear()


@contextmanager
def _threads(count: int) -> Iterator[None]:
    """Have processes that are started share the cores; numbers that are set already stay."""
    missing = [name for name in THREADS if name not in os.environ]
    os.environ.update(dict.fromkeys(missing, str(count)))
    try:
        yield
    finally:
        for name in missing:
            del os.environ[name]
