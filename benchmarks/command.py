"""A whole command, from the shell to its report: how long its forward passes alone would take, and what the rest is for.

A process of its own is the command, and notes how long its steps take. Afterwards it measures the bare model. Steps are
those of the main thread: what others do meanwhile takes no time there.

python -m benchmarks.command accelerator > benchmarks/results/command_accelerator.json
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from itertools import repeat
from pathlib import Path
from statistics import median
from types import ModuleType
from typing import Any

import numpy as np
from PIL import Image

RUN = ["--model", "efficientnet_lite0", "--data", "demo-photos", "--labels", "prediction", "--lens", "profile"]
ROUNDS, SECONDS = 5, 4.0
BATCH = 512  # of the bare model on an accelerator
_FIRST = """
import compileall, brinell.api, altair, torchvision, vl_convert
compileall.compile_dir(brinell.__path__[0], quiet=2)
"""
# steps of a command: the modules and names under which it calls them
STEPS = {
    "opening the model and the data": ("brinell.engine.setup", "assemble"),
    "estimating the cost": ("brinell.engine.estimates.text", "describe_cost"),
    "reading the images": ("brinell.engine.runner", "_samples"),
    "clean answers and batch size": ("brinell.engine.runner", "_clean"),
    "measuring": ("brinell.engine.measuring", "_measure_stage"),
    "findings": ("brinell.results", "Run.shown_of"),
    "choosing and drawing pictures": ("brinell.engine.runner", "draw_exhibits"),
    "report": ("brinell.results", "Run.report"),
}


def measure() -> dict[str, Any]:
    """Repeat the command of the demo's size, and return the medians."""
    from benchmarks.end_to_end import operators, steady_rounds  # not in the command's own process, whose imports are timed

    named = [word for name in operators() for word in ("--operator", name)]
    last = _in_a_process([*RUN, *named])

    def make() -> dict[str, Any]:
        """Run the command between the bare model of the round before and its own."""
        nonlocal last
        before, last = last, _in_a_process([*RUN, *named])
        bare = (before["bare"] + last["bare"]) / 2
        ratio = last["queries"] / bare / last["seconds"]
        return last | {"bare": bare, "ratio": ratio, "drift": abs(last["bare"] - before["bare"]) / bare}

    rounds = steady_rounds(make, ROUNDS, lambda one: float(one["drift"]))
    return {
        "command": "brinell run " + " ".join(RUN),
        "operators": len(named) // 2,
        "queries": rounds[0]["queries"],
        "bare": median(one["bare"] for one in rounds),
        "seconds": median(one["seconds"] for one in rounds),
        "ratio": median(one["ratio"] for one in rounds),
        "rounds": [one["ratio"] for one in rounds],
        "drifts": [round(one["drift"], 3) for one in rounds],
        "steps": _steps(rounds),
    }


def accelerate(given: argparse.Namespace) -> dict[str, Any]:
    """Measure a command on an accelerator: once with nothing compiled in the cache, then with what that left there."""
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        images = Path(given.data) if given.data else make_photographs(folder / "images", given.images)
        model = given.model or _random_resnet(folder / "resnet50.pth")
        operators = [word for name in given.operators.split(",") for word in ("--operator", name)]
        options = ["--model", model, "--data", str(images), "--labels", "prediction", "--lens", "profile", *operators]
        options += ["--device", given.device, "--precision", given.precision]
        options += ["--workers", str(given.workers)] if given.workers else []
        caches = {"BRINELL_CACHE": f"{folder}/cache", "TRITON_CACHE_DIR": f"{folder}/triton"}
        # where Python keeps no bytecode, libraries would be compiled in every process; pip does that when it installs them
        caches |= {"PYTHONPYCACHEPREFIX": f"{folder}/bytecode", "PYTHONDONTWRITEBYTECODE": ""}
        # libraries are read from the disk once before, which is not what is measured
        subprocess.run([sys.executable, "-c", _FIRST], check=False, env={**os.environ, **caches})
        rounds = [_in_a_process(options, caches) for _ in range(1 + given.rounds)]
        count = sum(1 for file in images.rglob("*") if file.is_file())
    bare = max(one["bare"] for one in rounds)  # a command that doesn't compile has a slower model
    for one in rounds:
        one["ratio"] = one["queries"] / bare / one["seconds"]
    cold, *warm = rounds
    return {
        "command": "brinell run " + " ".join(options).replace(f"{made}/", ""),
        "images": count,
        "queries": cold["queries"],
        "bare": bare,
        "cold": cold,
        "warm": {
            "seconds": median(one["seconds"] for one in warm),
            "ratio": median(one["ratio"] for one in warm),
            "steps": _steps(warm),
            "rounds": warm,
        },
    }


def make_photographs(folder: Path, count: int) -> Path:
    """Write JPEG files of 500x375 pixels in ten class folders: smooth colours with grain, about 60 kB each."""
    for number in range(10):
        (folder / f"class-{number}").mkdir(parents=True)
    with ProcessPoolExecutor() as pool:
        list(pool.map(_write_photograph, repeat(folder), range(count), chunksize=64))
    return folder


def _write_photograph(folder: Path, index: int) -> None:
    generator = np.random.default_rng(index)
    coarse = Image.fromarray(generator.integers(0, 256, (12, 16, 3), dtype=np.uint8))
    smooth = np.asarray(coarse.resize((500, 375), Image.Resampling.BICUBIC)).astype(np.int16)
    pixels = (smooth + generator.integers(-12, 13, smooth.shape)).clip(0, 255).astype(np.uint8)
    Image.fromarray(pixels).save(folder / f"class-{index % 10}" / f"{index:05d}.jpg", quality=90)


def _random_resnet(file: Path) -> str:
    """Store a ResNet-50 with random weights, on which speed doesn't depend, and return how a run names it."""
    import torch
    import torchvision

    torch.manual_seed(0)
    torch.save(torchvision.models.resnet50(weights=None).state_dict(), file)
    return f"torchvision:resnet50?checkpoint={file}&pretrained=false"


def _steps(rounds: list[dict[str, Any]]) -> dict[str, float]:
    """Return the median seconds of each step."""
    return {name: median(one["steps"].get(name, 0.0) for one in rounds) for name in rounds[0]["steps"]}


def _in_a_process(options: list[str], variables: Mapping[str, str] = {}) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder) / "result.json"
        called = [sys.executable, "-m", "benchmarks.command", str(result), repr(time.time()), folder, *options]
        subprocess.run(called, check=True, stdout=subprocess.DEVNULL, env={**os.environ, **variables})
        found: dict[str, Any] = json.loads(result.read_text())
    return found


def command(result: Path, began: float, folder: str, options: list[str]) -> None:
    """Be the command, note the seconds of its steps, and then measure the bare model."""
    main = importlib.import_module("brinell.cli.main").main
    started = time.time()
    clock = _Clock()
    sys.meta_path.insert(0, clock)
    main(["run", *options, "--out", f"{folder}/run", "--yes"])
    seconds = time.time() - began
    spent = {
        "starting Python and importing the command line": started - began,
        "importing torch and the engine": clock.assembling - started,
        **clock.spent,
    }
    spent["everything else"] = seconds - sum(spent.values())
    model = clock.models[0]
    run = importlib.import_module("brinell").Run(f"{folder}/run")
    queries = run.query("select count(*) from rows where level > 0")[0][0] + run.query("select count(*) from clean")[0][0]
    batch = run.manifest["execution"]["batch"][model.name]
    bare = _bare_rate(model, batch)
    found = {"queries": queries, "bare": bare, "seconds": seconds, "ratio": queries / bare / seconds, "steps": spent}
    found |= {"batch": batch, "runtime": model.facts.get("runtime"), "load": os.getloadavg()[0]}
    result.write_text(json.dumps(found))


class _Clock(MetaPathFinder):
    """Notes the seconds of steps: as soon as a module has been imported, its functions are replaced by ones that do."""

    def __init__(self) -> None:
        self.spent = dict.fromkeys(STEPS, 0.0)
        self.assembling = 0.0  # when the first step begins
        self.models: list[Any] = []
        self._waiting = {module for module, _ in STEPS.values()}

    def find_spec(self, name: str, path: Any, target: Any = None) -> ModuleSpec | None:
        """Return how to import a module and replace its functions; None for those that have no steps."""
        if name not in self._waiting:
            return None
        self._waiting.remove(name)
        spec = find_spec(name)
        assert spec is not None and spec.loader is not None
        plain = spec.loader.exec_module

        def execute(module: ModuleType) -> None:
            plain(module)
            for step, (owner, attribute) in STEPS.items():
                if owner == name:
                    self._note(step, module, attribute)

        spec.loader.exec_module = execute  # type: ignore[method-assign]
        return spec

    def _note(self, step: str, owner: Any, path: str) -> None:
        """Replace a function by one that adds its seconds; what `assemble` returns has the models."""
        *classes, attribute = path.split(".")
        for each in classes:
            owner = getattr(owner, each)
        plain: Callable[..., Any] = getattr(owner, attribute)

        def timed(*given: Any, **named: Any) -> Any:
            if threading.current_thread() is not threading.main_thread():
                return plain(*given, **named)
            start = time.time()
            self.assembling = self.assembling or start
            try:
                made = plain(*given, **named)
            finally:
                self.spent[step] += time.time() - start
            self.models.extend(getattr(made, "models", []))
            return made

        setattr(owner, attribute, timed)


def _bare_rate(model: Any, batch: int) -> float:
    """Return the images per second of the model alone: on a CPU in the batches of the run, on an accelerator in the usual
    ones.
    """
    import torch

    from benchmarks.accelerator import bare_model
    from benchmarks.end_to_end import per_second
    from brinell.engine.threads import answers, torch_alone

    if model.device.type != "cpu":
        return per_second(bare_model(model, BATCH), SECONDS)
    pre = model.preprocess
    images = torch.full((96, pre.channels, pre.height, pre.width), 128, dtype=torch.uint8)
    with torch_alone():
        return per_second(lambda: len(answers(model, images, batch)), SECONDS)


def main() -> None:
    """Print the figures of an accelerator as JSON."""
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=["accelerator"])
    parser.add_argument("--images", type=int, default=5000)
    parser.add_argument("--data", help="a folder of images instead")
    parser.add_argument("--model", help="default: a ResNet-50 with random weights")
    parser.add_argument("--operators", default="noise,white_fog,posterise")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--precision", default="bf16")
    parser.add_argument("--rounds", type=int, default=1, help="with a warm cache")
    parser.add_argument("--workers", type=int, help="threads that read images (default: as many as a run has)")
    print(json.dumps(accelerate(parser.parse_args()), indent=1))


if __name__ == "__main__" and sys.argv[1:2] == ["accelerator"]:
    main()
elif __name__ == "__main__":
    command(Path(sys.argv[1]), float(sys.argv[2]), sys.argv[3], sys.argv[4:])
