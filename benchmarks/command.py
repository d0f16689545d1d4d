"""A whole command, from the shell to its report: how long its forward passes alone would take, and what the rest is for.

A process of its own is the command, and notes how long its steps take. Afterwards it measures the bare model.
"""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

RUN = ["--model", "efficientnet_lite0", "--data", "demo-photos", "--labels", "prediction", "--lens", "profile"]
ROUNDS, SECONDS = 3, 4.0
# steps of a command: the modules and names under which it calls them
STEPS = {
    "opening the model and the data": ("brinell.engine.setup", "assemble"),
    "estimating the cost": ("brinell.engine.estimates.text", "describe_cost"),
    "reading the images": ("brinell.engine.runner", "_samples"),
    "clean answers and batch size": ("brinell.engine.runner", "_clean"),
    "measuring": ("brinell.engine.measuring", "_measure_stage"),
    "choosing and drawing pictures": ("brinell.engine.runner", "draw_exhibits"),
    "report": ("brinell.results", "Run.report"),
}


def measure() -> dict[str, Any]:
    """Repeat the command of the demo's size, and return the medians."""
    from benchmarks.end_to_end import operators  # not in the command's own process, whose imports are timed

    named = [word for name in operators() for word in ("--operator", name)]
    rounds = [_in_a_process([*RUN, *named]) for _ in range(ROUNDS)]
    steps = {name: median(one["steps"][name] for one in rounds) for name in rounds[0]["steps"]}
    return {
        "command": "brinell run " + " ".join(RUN),
        "operators": len(named) // 2,
        "queries": rounds[0]["queries"],
        "bare": median(one["bare"] for one in rounds),
        "seconds": median(one["seconds"] for one in rounds),
        "ratio": median(one["ratio"] for one in rounds),
        "rounds": [one["ratio"] for one in rounds],
        "steps": steps,
    }


def _in_a_process(options: list[str]) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder) / "result.json"
        called = [sys.executable, "-m", "benchmarks.command", str(result), repr(time.time()), folder, *options]
        subprocess.run(called, check=True, stdout=subprocess.DEVNULL)
        found: dict[str, Any] = json.loads(result.read_text())
    return found


def command(result: Path, began: float, folder: str, options: list[str]) -> None:
    """Be the command, note the seconds of its steps, and then measure the bare model."""
    spent: dict[str, float] = {}
    main = importlib.import_module("brinell.cli.main").main
    spent["starting Python and importing the command line"] = time.time() - began
    models: list[Any] = []
    for name, (module, path) in STEPS.items():
        _note(name, module, path, spent, models)
    main(["run", *options, "--out", f"{folder}/run", "--yes"])
    seconds = time.time() - began
    spent["everything else"] = seconds - sum(spent.values())
    run = importlib.import_module("brinell").Run(f"{folder}/run")
    queries = run.query("select count(*) from rows where level > 0")[0][0] + run.query("select count(*) from clean")[0][0]
    bare = _bare_rate(models[0], run.manifest["execution"]["batch"][models[0].name])
    found = {"queries": queries, "bare": bare, "seconds": seconds, "ratio": queries / bare / seconds, "steps": spent}
    result.write_text(json.dumps(found))


def _note(name: str, module: str, path: str, spent: dict[str, float], models: list[Any]) -> None:
    """Replace a function by one that adds its seconds to `spent`; what `assemble` returns has the models."""
    owner = importlib.import_module(module)
    *classes, attribute = path.split(".")
    for each in classes:
        owner = getattr(owner, each)
    plain: Callable[..., Any] = getattr(owner, attribute)

    def timed(*given: Any, **named: Any) -> Any:
        start = time.time()
        try:
            made = plain(*given, **named)
        finally:
            spent[name] = spent.get(name, 0.0) + time.time() - start
        models.extend(getattr(made, "models", []))
        return made

    setattr(owner, attribute, timed)


def _bare_rate(model: Any, batch: int) -> float:
    """Return the images per second of the model alone, in the batches of the run."""
    import torch

    from benchmarks.end_to_end import per_second
    from brinell.engine.threads import answers, torch_alone

    pre = model.preprocess
    images = torch.full((96, pre.channels, pre.height, pre.width), 128, dtype=torch.uint8)
    with torch_alone():
        return per_second(lambda: len(answers(model, images, batch)), SECONDS)


if __name__ == "__main__":
    command(Path(sys.argv[1]), float(sys.argv[2]), sys.argv[3], sys.argv[4:])
