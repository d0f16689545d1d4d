"""What a folder already holds of a run: its manifest, and which of its tables and units can be used."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any

import pyarrow as pa

from brinell.engine.context import RunContext
from brinell.engine.manifest import claim_folder, holds_run, new_manifest
from brinell.engine.setup import Job, RunSetup
from brinell.runs.integrity import damaged_units, read_table
from brinell.runs.lock import share_folder
from brinell.runs.schema import Unit
from brinell.runs.store import Store, digest_of


@contextmanager
def begin_run(store: Store, setup: RunSetup, jobs: Sequence[Job], samples: pa.Table) -> Iterator[dict[str, Any]]:
    """Hold the folder, and return the manifest of the run in it; that of a new run is written first."""
    fresh = cache(lambda: new_manifest(setup, jobs, samples))
    if not holds_run(store, setup, samples):
        fresh()  # measures the batch size, before other processes have to wait

    def claim(alone: bool) -> dict[str, Any]:
        if alone:
            store.remove_parts({job.lens.name for job in jobs})
        return claim_folder(store, setup, samples, fresh, alone=alone)

    with share_folder(store, claim) as manifest:
        store.run = digest_of(manifest)
        if setup.config.execution.batch is not None:
            manifest["execution"]["batch"] = dict.fromkeys(manifest["execution"]["batch"], setup.config.execution.batch)
        yield manifest


def usable_table(context: RunContext, name: str) -> pa.Table | None:
    """Return a table of the run; None if it has to be computed, which is said where it is damaged."""
    table, problem = read_table(context.store, name)
    if problem is not None:
        context.reporter.say(f"{problem}; computing it again")
    return table


def drop_damaged_tables(context: RunContext) -> None:
    """Remove tables that follow from the rows and are damaged."""
    for name in set(context.store.tables()) - {"samples", "clean"}:
        problem = read_table(context.store, name)[1]
        if problem is not None:
            context.reporter.say(f"{problem}; removing it")
            context.store.remove(f"{name}.parquet")


def unusable_units(context: RunContext, units: Sequence[Unit]) -> set[Unit]:
    """Return the units that have to be measured again, and say so."""
    damaged = damaged_units(context.store, units)
    if damaged:
        many = f"{len(damaged)} units" if len(damaged) > 1 else "this unit"
        context.reporter.say(f"{next(iter(damaged.values()))}; measuring {many} again")
    return set(damaged)
