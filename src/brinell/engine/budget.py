"""A budget as a share of a run's queries."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from brinell.config.budget import CELLS, Budget
from brinell.engine.context import RunContext
from brinell.engine.missing import Wanted, missing_parts
from brinell.engine.setup import Job
from brinell.engine.shards import Entry
from brinell.errors import ConfigError
from brinell.lenses.sampling import count_images
from brinell.report.exhibits import FILE as EXHIBITS
from brinell.run_config import RunConfig


@dataclass(frozen=True)
class Work:
    """The most trials of a run, and the number of clean images that its models are queried about in any case."""

    trials: int
    clean: int


def work_of(jobs: Sequence[Job], kept: Sequence[Entry]) -> Work:
    """Return the work of jobs on images."""
    trials = sum(job.trials(change, kept) for job in jobs for change in job.changes)
    return Work(trials, len(kept) * len({job.model.name for job in jobs}))


def share_of(budget: Budget | None, work: Work) -> float:
    """Return the share of the trials that a budget is; for a target width, the most that it may take."""
    if budget is None:
        return 1.0
    if budget.share is not None:
        return budget.share
    if budget.queries is None:
        return CELLS
    if budget.queries <= work.clean:
        raise ConfigError(
            f"the clean images alone take {work.clean:,} queries; expected a budget of more, got {budget.queries:,}"
        )
    return min(1.0, (budget.queries - work.clean) / max(1, work.trials))


def wanted_of(config: RunConfig, work: Work, manifest: dict[str, Any], *, early: bool = False) -> Wanted:
    """Return what a run has to measure: at least what it holds, if it is finished.

    A run that may stop `early`, or began so, takes image by image.
    """
    held = manifest.get("budget")
    share = CELLS if early else share_of(config.budget, work)
    if held is not None and manifest["finished"]:
        share = max(share, held["share"])
    cells = (held or {}).get("cells")
    if early:
        if held is not None and cells is None and held["share"] < 1:
            raise ConfigError(
                "a run that may stop early takes image by image, and this folder has a share of every image; "
                "use another --out, or a larger share as --budget"
            )
        cells = CELLS
    return Wanted(config.seed, share, sampled=held is not None, cells=cells)


def decide_share(context: RunContext, jobs: Sequence[Job], kept: list[Entry], *, early: bool = False) -> Wanted:
    """Return the share of the queries to make; if a run may stop early, the most of them."""
    manifest = context.manifest
    wanted = wanted_of(context.setup.config, work_of(jobs, kept), manifest, early=early)
    if not early and (wanted.sampled or wanted.share < 1):
        begin_share(context, jobs, kept, wanted)
    return replace(wanted, sampled="budget" in manifest)


def begin_share(context: RunContext, jobs: Sequence[Job], kept: Sequence[Entry], wanted: Wanted) -> None:
    """Store which share of the queries is made, and of how many images that is for searches.

    If that adds to a finished run, what was computed from it is removed.
    """
    manifest, store = context.manifest, context.store
    changed = ["budget", "units"]
    if manifest["finished"] and any(missing_parts(store, job, kept, manifest["execution"], wanted)[1] for job in jobs):
        manifest["finished"] = False
        changed.append("finished")
        for job in jobs:
            for table in job.lens.reader.tables:
                store.remove(f"{table}.parquet")
        store.remove(EXHIBITS)
    images = wanted.share if wanted.cells is None else wanted.images_of(wanted.share)
    content = {"share": wanted.share, "images": count_images(images, len(kept)), "of": len(kept)}
    manifest["budget"] = content if wanted.cells is None else {**content, "cells": wanted.cells}
    context.save(*changed)
