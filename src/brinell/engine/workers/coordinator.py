"""Measures a run with several workers: hands out shards, replaces workers that die, and reports progress of all."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from brinell.config.devices import parse_devices
from brinell.config.execution import Execution
from brinell.engine.checks import OBJECT
from brinell.engine.manifest import WHO
from brinell.engine.measuring import Measurer
from brinell.engine.missing import Wanted, missing_parts
from brinell.engine.setup import Job, RunSetup
from brinell.engine.workers.processes import Processes, Workers
from brinell.engine.workers.schedule import Exhausted, Schedule
from brinell.engine.workers.worker import Order, ShardTask
from brinell.errors import ConfigError, RunError
from brinell.run_config import RunConfig

DEATHS = 3  # workers that may die before one of them is ready
PAUSE = 1.0  # seconds between two looks at tasks that are late
PATIENCE = 60.0  # seconds without a worker before that is said: a cluster may have no room


@contextmanager
def connected(execution: Execution) -> Iterator[None]:
    """Be connected to the cluster that measures a run, if there is one."""
    if execution.cluster is None:
        yield
        return
    from brinell.engine.workers import ray_actors

    with ray_actors.connected(execution.cluster):
        yield


def refuse_objects(setup: RunSetup) -> None:
    """Raise if other processes can't open what the run is about."""
    config = setup.config
    if config.data.source.startswith(OBJECT) or any(model.source.startswith(OBJECT) for model in config.models):
        raise ConfigError(
            "workers open models and data by name, and this run has Python objects; leave out --devices and --on"
        )
    if any(model.service is not None for model in setup.models):
        raise ConfigError("models behind HTTP need no workers; leave out --devices and --on")


def measure_with_workers(measurer: Measurer, jobs: Sequence[Job], wanted: Wanted) -> None:
    """Measure what is missing with the workers that the config names."""
    context = measurer.context
    tasks, units = _tasks(measurer, jobs, wanted)
    if not tasks:
        return
    workers = _workers(context.setup.config, wanted)
    advance = context.reporter.stage(f"{workers.size} workers", sum(units.values()), "units")

    def done(task: ShardTask) -> None:
        advance(units[task])

    try:
        run_workers(workers, Schedule(tasks), done, context.reporter.say)
    finally:
        workers.stop()


def run_workers(
    workers: Workers, schedule: Schedule[ShardTask], done: Callable[[ShardTask], None], say: Callable[[str], None]
) -> None:
    """Have workers do all tasks. A task of a worker that dies is done by another one; an error ends the run."""
    idle: set[int] = set()
    ready, deaths = 0, 0
    began: float | None = time.monotonic()
    for _ in range(min(workers.size, schedule.left)):
        workers.start()
    while schedule.left:
        if not ready and began is not None and time.monotonic() - began > PATIENCE:
            say(f"no worker is ready after {PATIENCE:.0f} s; there may be no room for one (Ctrl-C stops)")
            began = None
        for event in workers.wait(PAUSE):
            if event.kind == "failed":
                raise RunError(event.reason)
            if event.kind == "lost":
                idle.discard(event.worker)
                deaths += not ready
                task = _lose(schedule, event.worker)
                if deaths >= DEATHS:
                    raise RunError(f"{deaths} workers ended before they were ready ({event.reason})")
                again = "" if task is None else "; its shard is measured again"
                say(f"a worker ended ({event.reason}) and is replaced{again}")
                workers.start()
                continue
            if event.kind == "done" and (finished := schedule.finish(event.worker, time.monotonic())) is not None:
                done(finished)
            ready += event.kind == "ready"
            idle.add(event.worker)
        for worker in sorted(idle):
            if (task := schedule.next(worker, time.monotonic())) is not None:
                idle.discard(worker)
                workers.send(worker, task)


def _lose(schedule: Schedule[ShardTask], worker: int) -> ShardTask | None:
    try:
        return schedule.lose(worker)
    except Exhausted as error:
        raise RunError(f"{error}; try it in one process, without --devices or --on") from error


def _tasks(measurer: Measurer, jobs: Sequence[Job], wanted: Wanted) -> tuple[list[ShardTask], dict[ShardTask, int]]:
    """Return the shards of which something is missing, and the number of units that is."""
    context, units = measurer.context, dict[ShardTask, int]()
    execution = context.manifest["execution"]
    for number, job in enumerate(jobs):
        _, missing = missing_parts(context.store, job, measurer.kept, execution, wanted, measurer.chosen)
        for part in missing:
            task = ShardTask(number, part.unit.shard)
            units[task] = units.get(task, 0) + 1
    return list(units), units


def _workers(config: RunConfig, wanted: Wanted) -> Workers:
    execution = config.execution
    if execution.devices is not None:
        return Processes([order_of(config, wanted, device) for device in parse_devices(execution.devices)])
    from brinell.engine.workers import ray_actors

    size, share = ray_actors.actors_of(execution)
    # an actor sees its own accelerators alone, whatever their numbers are
    return ray_actors.Actors(order_of(config, wanted, "cuda" if share else "cpu"), size, share)


def order_of(config: RunConfig, wanted: Wanted, device: str) -> Order:
    """Return what a worker on a device has to do."""
    execution = config.execution.model_copy(update={**dict.fromkeys(WHO), "device": device})
    own = config.model_copy(update={"execution": execution, "budget": None, "saliency": None, "track": None})
    return Order({**own.model_dump(mode="json"), "out": config.folder()}, wanted)
