"""Workers of a run as actors of Ray, on this machine or a cluster. The only module that imports ray.

It imports no torch: an actor sets its number of threads before torch reads it.
"""

from __future__ import annotations

import logging
import math
import os
import pickle
import re
import signal
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from brinell.engine.workers.processes import THREADS, Event
from brinell.errors import BrinellError, MissingExtra, RunError

if TYPE_CHECKING:
    from brinell.config.execution import Execution
    from brinell.engine.workers.worker import Order, ShardTask

LOG = logging.getLogger(__name__)
CORES = 1  # of an actor: one thread computes, as in a process of --devices that shares its machine
# Ray's server for a client dies now and then while it starts (ray-project/ray#63202); the next one is another process
ATTEMPTS = 3
STARTING = "Starting Ray client server failed"


@contextmanager
def connected(cluster: str) -> Iterator[None]:
    """Connect to a cluster, or start one on this machine; a connection that exists already is used, and stays."""
    ray = _ray()
    if cluster != "ray" and find_spec("grpc") is None:
        raise MissingExtra("ray[client]", "ray")
    if ray.is_initialized():
        yield
        return
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what goes wrong is said below
            _connect(ray, None if cluster == "ray" else cluster)
    except (ConnectionError, RuntimeError, ValueError, OSError) as error:
        raise RunError(f"can't connect to Ray ({_reason(str(error))}); is the cluster running ({cluster})?") from error
    finally:
        for number, handler in handlers.items():  # Ray sets its own, which would end a run without a word
            with suppress(ValueError):  # not the main thread
                signal.signal(number, signal.SIG_DFL if handler is None else handler)
    try:
        yield
    finally:
        ray.shutdown()


def _connect(ray: Any, address: str | None) -> None:
    for attempt in range(1, ATTEMPTS + 1):
        try:
            ray.init(address, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
        except (ConnectionError, RuntimeError) as error:
            if attempt == ATTEMPTS or STARTING not in str(error):
                raise
            LOG.warning("Ray's client server did not start; trying again (%d of %d) …", attempt + 1, ATTEMPTS)
        else:
            return


def actors_of(execution: Execution) -> tuple[int, float]:
    """Return how many actors a run has, and the share of an accelerator that each gets."""
    return divide(_ray().cluster_resources(), execution)


def divide(resources: Mapping[str, float], execution: Execution) -> tuple[int, float]:
    """Return the same for the resources of a cluster: as many actors as it has room for, unless a number is given."""
    accelerators = resources.get("GPU", 0.0)
    share = execution.actor_gpus
    if share is None:
        share = 1.0 if accelerators and execution.device != "cpu" else 0.0
    if execution.actors is not None:
        return execution.actors, share
    room = resources.get("CPU", 1.0) / CORES
    if share:
        room = min(room, accelerators * math.floor(1 / share + 1e-9))  # an actor's share is of one accelerator
    return max(1, int(room)), share


class Holder:
    """What an actor holds: a worker, with its models and data opened once."""

    def __init__(self, order: bytes, folder: str) -> None:
        self._order, self._folder = order, folder

    def open(self) -> str:
        """Open models and data, and report as a process of --devices does."""
        for name in THREADS:
            os.environ.setdefault(name, str(CORES))
        if Path(self._folder).is_dir():  # names of models, data and the run may be relative to it
            os.chdir(self._folder)
        try:
            from brinell.engine.workers.worker import Worker

            self._worker = Worker(pickle.loads(self._order))
        except BrinellError as error:
            return f"failed {error}"
        return "ready"

    def measure(self, task: bytes) -> str:
        """Measure a shard, and report."""
        try:
            self._worker.measure(pickle.loads(task))
        except BrinellError as error:
            return f"failed {error}"
        return "done"


class Actors:
    """Workers that are actors of Ray. Every actor has at most one call under way, whose end says how it is."""

    def __init__(self, order: Order, size: int, share: float) -> None:
        ray = _ray()
        self.size, self._order = size, pickle.dumps(order)
        # an actor that dies is replaced by the schedule, which knows what is left of its work
        options = ray.remote(num_cpus=CORES, num_gpus=share, max_restarts=0, max_task_retries=0)
        self._class, self._ray = options(Holder), ray
        self._started = 0
        self.actors: dict[int, Any] = {}
        self._calls: dict[Any, int] = {}  # the worker of each call that is under way

    def start(self) -> int:
        """Ask the cluster for an actor; it is ready when there is room for it and its model is opened."""
        number = self._started
        self._started += 1
        actor = self._class.remote(self._order, str(Path.cwd()))
        self.actors[number] = actor
        self._calls[actor.open.remote()] = number
        return number

    def send(self, worker: int, task: ShardTask) -> None:
        """Give an actor a task. If it is gone, that is reported next."""
        self._calls[self.actors[worker].measure.remote(pickle.dumps(task))] = worker

    def wait(self, seconds: float) -> list[Event]:
        """Return what actors have reported."""
        calls = list(self._calls)
        ended, _ = self._ray.wait(calls, num_returns=1, timeout=seconds)
        if ended:
            ended, _ = self._ray.wait(calls, num_returns=len(calls), timeout=0)
        return [self._read(call) for call in ended]

    def _read(self, call: Any) -> Event:
        number = self._calls.pop(call)
        try:
            text: str = self._ray.get(call)
        except self._ray.exceptions.RayError as error:  # the actor or its machine is gone, or it raised something else
            self._end(self.actors.pop(number))
            return Event(number, "lost", _reason(str(error)))
        if text.startswith("failed "):
            return Event(number, "failed", text.removeprefix("failed "))
        return Event(number, "ready" if text == "ready" else "done")

    def stop(self) -> None:
        """End all actors at once."""
        for actor in self.actors.values():
            self._end(actor)
        self.actors.clear()
        self._calls.clear()

    def _end(self, actor: Any) -> None:
        with suppress(self._ray.exceptions.RayError, ConnectionError):
            self._ray.kill(actor)


def _ray() -> Any:
    try:
        import ray
    except ImportError:
        raise MissingExtra("ray", "ray") from None
    return ray


def _reason(text: str) -> str:
    """Return in a line what went wrong: why an actor ended in Ray's own words, or the message of an exception."""
    if (found := re.search(r"Worker exit type: (\S+) Worker exit detail: ([^.\n]+)", text)) is not None:
        return f"{found[1]}: {found[2].strip()}"
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return (lines[-1] if "Traceback" in text or len(lines) == 1 else lines[0]) if lines else "no reason given"
