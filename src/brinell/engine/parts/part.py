"""What one part of a run does besides measuring: it keeps a record of its progress, and the last one finishes the run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import replace
from typing import Any

from brinell.engine.context import RunContext
from brinell.engine.missing import Wanted, missing_parts
from brinell.engine.progress import Advance, Reporter, TimeLeft
from brinell.engine.setup import Job
from brinell.engine.shards import Entry
from brinell.errors import RunError
from brinell.runs.parts import DONE, FOLDER, PartFile, read_records

ALONE = "1/1"  # a process that measures everything that is missing


class PartReporter:
    """Reports progress, and keeps it in the record of a part, for `brinell status`."""

    def __init__(self, reporter: Reporter, part: PartFile) -> None:
        self._reporter, self._part = reporter, part

    def stage(self, what: str, total: int, unit: str, left: TimeLeft | None = None) -> Advance:
        """Start a stage."""
        inner, done = self._reporter.stage(what, total, unit, left), 0
        self._part.write(stage=what, done=0, total=total, unit=unit)

        def advance(count: int) -> None:
            nonlocal done
            done += count
            inner(count)
            with suppress(RunError):  # whoever watches sees an older state; the rows count
                self._part.write(at_once=False, done=done)

        return advance

    def say(self, text: str) -> None:
        """Print a line."""
        self._reporter.say(text)

    def pause(self) -> AbstractContextManager[None]:
        """Step aside while something else is printed."""
        return self._reporter.pause()


def units_left(context: RunContext, jobs: Sequence[Job], kept: Sequence[Entry], wanted: Wanted) -> int:
    """Return the number of units that no part has measured yet.

    Under a budget, files have to be opened to see their share; that is left out while some don't exist.
    """
    execution = context.manifest["execution"]
    for look in (replace(wanted, sampled=False), wanted):
        left = sum(len(missing_parts(context.store, job, kept, execution, look)[1]) for job in jobs)
        if left or not wanted.sampled:
            break
    return left


def end_part(part: PartFile, left: int) -> str:
    """Record that a part is done while others are not, and return that for people."""
    part.write(state=DONE)
    units = "unit" if left == 1 else "units"
    return (
        f"{part.part.words} is done; {left:,} {units} of other parts are missing, and the part that ends last finishes the "
        f"run (brinell status {part.store.url})"
    )


def gather(context: RunContext, seconds: float) -> None:
    """Add up the time and the queries of all who measured the run, in the manifest of a run that is finished.

    The manifest keeps what each part had, so that it can be finished again without counting anything twice.
    """
    store, manifest = context.store, context.manifest
    if context.part is not None:
        context.part.write(state=DONE)
    known = dict(manifest.get("parts", {}))
    records = list(read_records(store, context.settings))
    known |= {f"{one.number}/{one.count}": {"seconds": one.seconds, **one.facts} for one in records}
    if context.part is None:
        before = known.get(ALONE, {}).get("seconds", 0.0) if "parts" in manifest else manifest["seconds"]
        own = {key: manifest[key] for key in ("queries", "warnings") if key in manifest}
        known[ALONE] = {"seconds": round(before + seconds, 1), **own}
    manifest["seconds"] = round(sum(one["seconds"] for one in known.values()), 1)
    if len(known) > 1:
        manifest["parts"] = known
    warnings = [*manifest.get("warnings", ()), *(warning for one in known.values() for warning in one.get("warnings", ()))]
    if warnings:
        manifest["warnings"] = list(dict.fromkeys(warnings))
    counted: dict[str, dict[str, Any]] = {}
    for one in known.values():
        keep_answers(manifest, one.pop("answers", {}))
        for model, counts in one.get("queries", {}).items():
            counted[model] = _added(counted.get(model), counts)
    if counted:
        manifest["queries"] = counted
    for pieces in ("samples", "clean"):
        store.remove(FOLDER, context.settings, pieces)


def keep_answers(manifest: dict[str, Any], answers: Mapping[str, Mapping[str, str]]) -> None:
    """Store the texts behind the outputs of models that answer freely."""
    for model, texts in answers.items():
        manifest["models"][model]["answers"] = manifest["models"][model].get("answers", {}) | texts


def _added(total: Mapping[str, Any] | None, counts: Mapping[str, Any]) -> dict[str, Any]:
    """Return the queries of some parts with those of another one."""
    if total is None:
        return dict(counts)
    summed = {name: total[name] + counts[name] for name in ("sent", "cached", "unanswered")}
    oldest = min(filter(None, (total["oldest"], counts["oldest"])), default=None)
    return {**counts, **summed, "oldest": oldest}
