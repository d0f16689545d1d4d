"""One worker of a run: it opens models and data once, and measures shards on request."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any

from brinell.engine.clean import kept_entries
from brinell.engine.context import RunContext
from brinell.engine.measuring import Measurer
from brinell.engine.missing import Wanted
from brinell.engine.progress import Silent
from brinell.engine.setup import assemble, jobs_of
from brinell.engine.shards import worker_count
from brinell.engine.threads import torch_alone
from brinell.engine.truth.objects import Truth
from brinell.run_config import load_config
from brinell.runs.lock import share_folder
from brinell.runs.store import Store, digest_of


@dataclass(frozen=True, order=True)
class ShardTask:
    """A shard of a job, by its number among the run's lenses and models."""

    job: int
    shard: int


@dataclass(frozen=True)
class Order:
    """What a worker needs to know: a config as plain data, and the share of the queries to make."""

    config: Mapping[str, Any]
    wanted: Wanted


class Worker:
    """Measures shards of a run whose images are surveyed and whose clean images are answered."""

    def __init__(self, order: Order) -> None:
        setup = assemble(load_config(order.config))
        store = Store(setup.config.folder())
        self._jobs, self._wanted = jobs_of(setup), order.wanted
        self._open = ExitStack()  # until the process ends
        manifest = self._open.enter_context(share_folder(store, lambda alone: store.manifest()))
        store.run = digest_of(manifest)
        self._open.enter_context(torch_alone())
        workers = worker_count(setup.config.execution.workers)
        pool = self._open.enter_context(ThreadPoolExecutor(workers, "decode"))
        samples, clean = store.table("samples"), store.table("clean")
        context = RunContext(store, setup, samples, manifest, pool, Silent())
        self._measurer = Measurer(context, kept_entries(samples, clean), Truth.of(clean))

    def measure(self, task: ShardTask) -> None:
        """Measure what is missing of a shard, under every change."""
        own = replace(self._measurer, chosen=lambda shard, shards: shard == task.shard)
        own.measure(self._jobs[task.job], self._wanted)
