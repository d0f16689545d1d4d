"""How long `brinell status` takes on a run of many units, and how much memory: `python -m benchmarks.status`."""

from __future__ import annotations

import json
import math
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

from brinell.config.part import owners
from brinell.runs.parts import FOLDER, settings_digest

RESULT = Path(__file__).parent / "results" / "status.json"
OPERATORS, MODELS, ROUNDS = 14, 20, 5


def make_run(folder: Path, units: int, parts: int) -> None:
    """Make the folder of a run of many units, whose last part has stopped halfway. The files of rows are empty."""
    shards = math.ceil(units / OPERATORS / MODELS)
    models = [f"model{number}" for number in range(MODELS)]
    identity = {"config": {"lenses": [{"name": "profile"}]}, "models": {model: {} for model in models}, "data": {}}
    jobs = [f"profile/{model}" for model in models]
    manifest = {
        "format": 1,
        "identity": identity,
        "units": dict.fromkeys(jobs, shards * OPERATORS),
        "shards": dict.fromkeys(jobs, shards),
        "finished": False,
    }
    last = [shard for shard, owner in enumerate(owners(shards, parts)) if owner == parts]
    missing = set(last[len(last) // 2 :])
    for model in models:
        for operator in range(OPERATORS):
            place = folder / "rows" / "profile" / model / f"operator{operator}"
            place.mkdir(parents=True)
            for shard in range(shards):
                if shard not in missing:
                    (place / f"{shard:05d}.parquet").touch()
    (folder / "manifest.json").write_text(json.dumps(manifest))
    own = folder / FOLDER / settings_digest(identity)
    own.mkdir(parents=True)
    now = time.time()
    for number in range(1, parts + 1):
        record = {"number": number, "count": parts, "state": "measuring" if number == parts else "done", "updated": now}
        (own / f"part-{number:05d}-of-{parts:05d}.json").write_text(json.dumps(record))


def measure(units: int, parts: int) -> dict[str, Any]:
    """Return the medians of what the command takes."""
    with tempfile.TemporaryDirectory() as folder:
        make_run(Path(folder), units, parts)
        rounds = [ask(folder) for _ in range(ROUNDS)]
    middle = {key: round(median(one[key] for one in rounds), 2) for key in rounds[0]}
    return {
        "units": units,
        "parts": parts,
        "rounds": ROUNDS,
        **middle,
        "slowest": round(max(one["seconds"] for one in rounds), 2),
    }


def ask(folder: str) -> dict[str, float]:
    """Return the seconds and the memory that the command takes, from its start to its end, and its CPU time."""
    code = "from brinell.cli.main import main; import resource, sys\nmain(['status', sys.argv[1]])\n"
    code += "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, file=sys.stderr)"
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run([sys.executable, "-c", code, folder], check=True, capture_output=True, text=True)
    seconds = time.perf_counter() - began
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {"seconds": seconds, "cpu_seconds": cpu, "megabytes": int(done.stderr.split()[-1]) / 1024}


if __name__ == "__main__":
    found = [measure(units, parts) for units, parts in ((1_000, 16), (100_000, 16), (100_000, 1_000))]
    RESULT.write_text(json.dumps(found, indent=1) + "\n")
    print(*found, sep="\n")
