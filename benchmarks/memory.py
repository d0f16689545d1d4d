"""Peak memory of runs over 100 and 10,000 images, each in a separate process, several times."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from brinell.api import open_setup
from brinell.config.execution import Execution
from brinell.engine.progress import Advance, Silent
from brinell.engine.runner import execute

COUNTS, REPEATS = (100, 10_000), 3
SHARD = 32  # so that even the smallest run has several shards


def measure() -> dict[str, Any]:
    """Return, by number of images, the peaks of several processes in MB, and the memory in use during a run."""
    return {"shard": SHARD, "runs": {str(count): _processes(count) for count in COUNTS}}


def _processes(count: int) -> dict[str, Any]:
    found = []
    for _ in range(REPEATS):
        with tempfile.TemporaryDirectory() as folder:
            _write_images(Path(folder) / "images" / "light", count)
            line = [sys.executable, "-m", "benchmarks.memory", folder]
            output = subprocess.run(line, check=True, capture_output=True, text=True).stdout
            found.append(json.loads(output.splitlines()[-1]))
    return {"peaks": [run["peak"] for run in found], "eighths": found[-1]["eighths"]}


def _write_images(folder: Path, count: int) -> None:
    """Write different 320x240 JPEG files, about as large as photographs."""
    folder.mkdir(parents=True)
    generator = np.random.default_rng(0)
    for index in range(count):
        coarse = Image.fromarray(generator.integers(60, 256, (12, 16, 3), dtype=np.uint8))
        coarse.resize((320, 240), Image.Resampling.BICUBIC).save(folder / f"{index:05d}.jpg")


class Scale(Silent):
    """Records the resident memory, in MB, at every eighth of a stage."""

    def __init__(self) -> None:
        self.records: list[float] = []

    def stage(self, what: str, total: int, unit: str) -> Advance:
        """Start a stage and discard the records of the last one."""
        self.records = []
        done = 0

        def advance(count: int) -> None:
            nonlocal done
            done += count
            if done * 8 // total > len(self.records):
                pages = int(Path("/proc/self/statm").read_text().split()[1])
                self.records.append(pages * resource.getpagesize() / 2**20)

        return advance


def _run(folder: Path) -> dict[str, Any]:
    scale = Scale()
    lens = {"name": "profile", "operators": ["fade_black:published", "pixel_exchange:published"], "levels": 3}
    setup = open_setup(
        "fake:grey:0.25?size=224",
        str(folder / "images"),
        {"lens": lens, "out": folder / "run"},
        Execution(batch=16, shard=SHARD, runtime="torch"),
    )
    execute(setup, scale)
    return {"peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, "eighths": scale.records}


if __name__ == "__main__":
    print(json.dumps(_run(Path(sys.argv[1]))))
