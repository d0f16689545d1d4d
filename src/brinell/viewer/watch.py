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
    counts = Counter(tuple(unquote(part) for part in file.rsplit("/", 4)[1:3]) for file in files)
    totals = run.manifest.get("units", {})
    times = sorted(filter(None, (written_at(store, file) for file in files)))
    jobs = [
        {"lens": lens, "model": model, "done": counts[lens, model], "total": totals.get(f"{lens}/{model}")}
        for lens in run.lenses
        for model in run.models
    ]
    rate = _rate(times)
    left = sum(max(0, job["total"] - job["done"]) for job in jobs if job["total"] is not None)
    begun = [job for job in jobs if job["total"] is not None or job["done"]]
    return {
        "finished": run.finished,
        "created": run.manifest.get("created"),
        "images": store.table("samples").num_rows if store.exists("samples.parquet") else None,
        "answered": store.exists("clean.parquet"),
        "jobs": jobs,
        "units": len(files),
        "per_minute": None if rate is None else 60 * rate,
        "seconds_left": left / rate if rate and left and not run.finished else None,
        "lenses_left": len(jobs) - len(begun),
        "idle": (datetime.now(UTC).timestamp() - times[-1]) if times else None,
    }


def _rate(times: list[float]) -> float | None:
    """Return units per second, from the latest ones."""
    recent = times[-RECENT:]
    return (len(recent) - 1) / (recent[-1] - recent[0]) if len(recent) > 1 and recent[-1] > recent[0] else None
