"""Workers of a run as actors of a Ray cluster, each of which holds the models."""

from __future__ import annotations

from typing import Any

from brinell.config.devices import RayCluster
from brinell.engine.crew import Event
from brinell.engine.worker import Order, ShardTask, Worker
from brinell.errors import BrinellError, MissingExtra

GONE = "its process or its machine is gone"


class Actor:
    """A worker in a process of Ray's."""

    def __init__(self, order: Order) -> None:
        self._order = order

    def open(self) -> str | None:
        """Open models and data, and return why that is not possible; None if it is."""
        try:
            self._worker = Worker(self._order)
        except BrinellError as error:
            return str(error)
        return None

    def measure(self, task: ShardTask) -> str | None:
        """Measure a shard, and return why that is not possible; None if it is done."""
        try:
            self._worker.measure(task)
        except BrinellError as error:
            return str(error)
        return None


class RayCrew:
    """Actors on a cluster. Ray starts them where there is room."""

    def __init__(self, cluster: RayCluster) -> None:
        try:
            import ray
        except ImportError as error:
            raise MissingExtra("Ray", "ray") from error
        self._ray = ray
        self._owned = not ray.is_initialized()
        if self._owned:
            ray.init(address=cluster.address, log_to_driver=False, logging_level="ERROR", include_dashboard=False)
        there = ray.cluster_resources()
        self.gpus = cluster.gpus if cluster.gpus is not None else float(bool(there.get("GPU", 0)))
        room = there.get("GPU", 0) / self.gpus if self.gpus else there.get("CPU", 1) / cluster.cpus
        self.size = cluster.workers or max(1, int(room))
        self._actor = ray.remote(num_cpus=cluster.cpus, num_gpus=self.gpus, max_restarts=0)(Actor)
        self._order: Order | None = None
        self._actors: dict[int, Any] = {}
        self._pending: dict[Any, tuple[int, str]] = {}
        self._started = 0

    def give(self, order: Order) -> None:
        """Say what the workers have to do."""
        self._order = order

    def start(self) -> int:
        """Start an actor."""
        number = self._started
        self._started += 1
        self._actors[number] = self._actor.remote(self._order)
        self._pending[self._actors[number].open.remote()] = (number, "ready")
        return number

    def send(self, worker: int, task: ShardTask) -> None:
        """Give an actor a task."""
        self._pending[self._actors[worker].measure.remote(task)] = (worker, "done")

    def wait(self, seconds: float) -> list[Event]:
        """Return what actors have reported."""
        ready, _ = self._ray.wait(list(self._pending), num_returns=1, timeout=seconds)
        return [self._read(each) for each in ready]

    def _read(self, reference: Any) -> Event:
        worker, kind = self._pending.pop(reference)
        try:
            problem: str | None = self._ray.get(reference)
        except self._ray.exceptions.RayActorError:
            del self._actors[worker]
            return Event(worker, "lost", GONE)
        return (
            Event(worker, "ready" if kind == "ready" else "done") if problem is None else Event(worker, "failed", problem)
        )

    def stop(self) -> None:
        """End all actors, and the cluster if it was started for this run."""
        for actor in self._actors.values():
            self._ray.kill(actor)
        self._actors.clear()
        self._pending.clear()
        if self._owned:
            self._ray.shutdown()
