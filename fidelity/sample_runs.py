"""The full runs that samples are drawn from: `python -m fidelity.sample_runs RUNS` measures them, lens by lens.

Images are small enough that all of them take some minutes on an idle core.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import brinell
from fidelity.measure import ASSETS

DIGITS = ("mnist_lenet5_clean", "mnist_lenet5_robust")
DATA = {"digits": "mnist_test.npz", "cifar": "cifar10_test_2000.npz"}
RUNS: dict[str, tuple[tuple[str, ...], int, dict[str, Any]]] = {  # models, number of images, and lens
    "digits-profile": (
        DIGITS,
        2000,
        {"name": "profile", "operators": ["global_blur", "noise", "fade_black", "posterise"]},
    ),
    "digits-highlights": (DIGITS[:1], 500, {"name": "highlights", "operators": ["highlight"]}),
    "digits-fragility": (DIGITS[:1], 100, {"name": "fragility", "sizes": [0.4, 0.8]}),
    "digits-knob": (DIGITS[:1], 200, {"name": "knob", "operators": ["brightness", "gaussian_noise"]}),
    "digits-motions": (
        DIGITS[:1],
        200,
        {"name": "geometry", "operators": ["similarity"], "methods": ["random"], "draws": 10},
    ),
    "digits-least": (DIGITS[:1], 200, {"name": "highlights", "operators": ["highlight:least"]}),
    "digits-manitest": (DIGITS[:1], 100, {"name": "geometry", "operators": ["similarity"], "methods": ["manitest"]}),
    "cifar-profile": (
        ("cifar10_resnet20",),
        500,
        {"name": "profile", "operators": ["global_blur", "fade_black", "posterise"]},
    ),
}


def measure(name: str, folder: Path) -> brinell.Run:
    """Return one of the runs; what is missing of it is measured."""
    models, images, lens = RUNS[name]
    return brinell.run(
        [f"onnx:{ASSETS / 'models' / model}.onnx" for model in models],
        {"source": ASSETS / "images" / DATA[name.partition("-")[0]], "limit": images},
        out=folder / name,
        lens=lens,
        execution=brinell.Execution(batch=256),
        quiet=True,
    )


def main(folder: str) -> None:
    """Measure all runs."""
    for name in RUNS:
        run = measure(name, Path(folder))
        print(name, run.manifest["seconds"], "s", flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
