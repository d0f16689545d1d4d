"""How far a run is: units of work by lens and model, their rate, and the time that is left."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from typing import Any
from urllib.parse import unquote

from brinell.runs.run import Run
from brinell.viewer.tables import written_at

RECENT = 12  # units that a rate is computed from


def watch_run(run: Run) -> dict[str, Any]:
    """Return a run's progress as plain data. Totals are known of lenses and models that have begun."""
    run.refresh()
    store = run.store
    files = store.unit_files()
    owners = [tuple(unquote(part) for part in file.rsplit("/", 4)[1:3]) for file in files]
    counts, totals = Counter(owners), run.manifest.get("units", {})
    known = sorted((at, lens) for file, (lens, _) in zip(files, owners, strict=True) if (at := written_at(store, file)))
    times = [at for at, _ in known]
    jobs = [
        {"lens": lens, "model": model, "done": counts[lens, model], "total": totals.get(f"{lens}/{model}")}
        for lens in run.lenses
        for model in run.models
    ]
    rate = _rate(times)
    begun = [job for job in jobs if job["total"] is not None or job["done"]]
    return {
        "finished": run.finished,
        "created": run.manifest.get("created"),
        "images": store.table("samples").num_rows if store.exists("samples.parquet") else None,
        "answered": store.exists("clean.parquet"),
        "jobs": jobs,
        "units": len(files),
        "per_minute": None if rate is None else 60 * rate,
        "seconds_left": None if run.finished else _seconds_left(jobs, known),
        "lenses_left": len(jobs) - len(begun),
        "idle": (datetime.now(UTC).timestamp() - times[-1]) if times else None,
    }


def _seconds_left(jobs: list[dict[str, Any]], times: list[tuple[float, str]]) -> float | None:
    """Return the time that begun jobs still take, by the rates of their own lenses; None before those are known."""
    total = 0.0
    for job in jobs:
        left = max(0, (job["total"] or 0) - job["done"])
        rate = _rate([at for at, lens in times if lens == job["lens"]])
        if left and rate is None:
            return None
        total += left / rate if left and rate else 0
    return total or None


def _rate(times: list[float]) -> float | None:
    """Return units per second, from the latest ones."""
    recent = times[-RECENT:]
    return (len(recent) - 1) / (recent[-1] - recent[0]) if len(recent) > 1 and recent[-1] > recent[0] else None
