"""Peak memory of a run over 100 and over 10,000 images, each in a process of its own."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

COUNTS = (100, 1_000, 10_000)


def measure() -> dict[str, Any]:
    """Peak resident memory in MB by the number of images."""
    peaks = {}
    for count in COUNTS:
        with tempfile.TemporaryDirectory() as folder:
            _write_images(Path(folder) / "images" / "light", count)
            told = subprocess.run(
                [sys.executable, "-m", "benchmarks.memory", folder], check=True, capture_output=True, text=True
            ).stdout
            peaks[str(count)] = json.loads(told.splitlines()[-1])
    return {"peaks": peaks}


def _write_images(folder: Path, count: int) -> None:
    """Different JPEG files of 320x240: a photograph's size on disk, made quickly."""
    folder.mkdir(parents=True)
    generator = np.random.default_rng(0)
    for index in range(count):
        coarse = Image.fromarray(generator.integers(60, 256, (12, 16, 3), dtype=np.uint8))
        coarse.resize((320, 240), Image.Resampling.BICUBIC).save(folder / f"{index:05d}.jpg")


def _run(folder: Path) -> float:
    import brinell
    from brinell.execution import Execution

    brinell.run(
        "fake:grey:0.25?size=224",
        folder / "images",
        lens={"name": "profile", "operators": ["fade_black", "pixel_exchange"], "levels": 3},
        out=folder / "run",
        execution=Execution(batch=16, runtime="torch"),
        quiet=True,
    )
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "2")
    print(json.dumps(_run(Path(sys.argv[1]))))
