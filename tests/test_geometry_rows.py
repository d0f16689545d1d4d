"""Rows of the geometry lens depend on their image alone: not on batches, order, shards or the other images."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import brinell
from brinell.cli.main import main
from brinell.criteria.criterion import find_criterion
from brinell.engine import tasks
from brinell.engine.evaluator import Evaluator
from brinell.engine.tasks import TaskRunner
from brinell.lenses.method import Done, Stage, Task
from golden.record import LENET, RESNET

METHODS = ("manifool", "random", "manitest", "grid")
QUICK = {
    "max_steps": 4,
    "targets": 3,
    "step_lengths": 4,
    "max_step": 1.0,
    "retry": 4.0,
    "radii": [1.0],
    "draws": 2,
    "grid_motions": 27,
    "grid_pixels": 4.0,
}


def pick(file: Path, order: list[int]) -> list[tuple[torch.Tensor, int]]:
    """Return some images of a file in a given order."""
    with np.load(file) as content:
        pixels, labels = content["images"][order], content["labels"][order].tolist()
    images = torch.from_numpy(pixels[..., None] if pixels.ndim == 3 else pixels).permute(0, 3, 1, 2).contiguous()
    return list(zip(images, labels, strict=True))


def measure(model: brinell.Model, data: Any, out: Path, groups: list[str], **execution: int) -> dict[Any, Any]:
    """Return the rows of a run, by what names them, without times."""
    lens = {"name": "geometry", "operators": groups, "methods": METHODS, **QUICK}
    run = brinell.run(model, data, lens=lens, out=out, quiet=True, execution=brinell.Execution(**execution))
    found = run.rows("select * exclude (seconds) from rows").fetchall()
    names = [column[0] for column in run.rows("select * exclude (seconds) from rows limit 0").description]
    keys = [names.index(name) for name in ("operator", "image", "level", "draw")]
    return {tuple(row[key] for key in keys): repr(row) for row in found}


@pytest.mark.parametrize(
    ("source", "runtime", "file", "group"),
    [
        pytest.param(RESNET, "torch", "cifar10_test_2000.npz", "rotation_scale", marks=pytest.mark.slow),
        (LENET, "torch", "mnist_test.npz", "rotation_translation"),
        pytest.param(LENET, "onnxruntime", "mnist_test.npz", "rotation_translation", marks=pytest.mark.slow),
    ],
    ids=["resnet20", "lenet5", "lenet5-onnxruntime"],
)
def test_rows_of_real_networks_depend_on_their_image_alone(
    assets: Path, tmp_path: Path, source: str, runtime: Any, file: str, group: str
) -> None:
    if runtime == "onnxruntime":
        pytest.importorskip("onnxscript", reason="needs the exporter to onnxruntime")
    model = brinell.open_model(source, brinell.Execution(device="cpu", runtime=runtime))
    images, many = assets / "images" / file, 5
    plain = measure(model, pick(images, list(range(many))), tmp_path / "plain", [group], batch=8, shard=many)
    statuses = [row for row in plain.values() if "'broken'" in row]
    assert len(plain) == many * 5 and len(statuses) > many
    others = {
        "batch 1": (list(range(many)), {"batch": 1, "shard": many}),
        "batch 2, small shards": (list(range(many)), {"batch": 2, "shard": 2}),
        "reversed": (list(range(many))[::-1], {"batch": 8, "shard": 3}),
        "alone": ([4], {"batch": 8, "shard": 1}),
    }
    for name, (order, execution) in others.items():
        found = measure(model, pick(images, order), tmp_path / name, [group], **execution)
        expected = {key: plain[key] for key in found}
        assert len(found) == 5 * len(order)
        assert found == expected, name


class Seen(torch.nn.Module):
    """A small network of random weights."""

    def __init__(self) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        self.layers = torch.nn.Sequential(
            torch.nn.Conv2d(3, 6, 5, 2), torch.nn.Tanh(), torch.nn.Conv2d(6, 8, 5, 2), torch.nn.Tanh(), torch.nn.Flatten()
        )
        self.last = torch.nn.Linear(8 * 4 * 4, 10)
        for parameter in self.parameters():
            torch.nn.init.normal_(parameter, std=0.3, generator=generator)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        scores: torch.Tensor = self.last(self.layers(images))
        return scores


@pytest.mark.slow
def test_rows_of_photographs_do_not_depend_on_the_sizes_of_the_others(photographs: torch.Tensor, tmp_path: Path) -> None:
    """Whole images of one size, of others and of several canvases: each as if it were alone."""
    execution = brinell.Execution(device="cpu", runtime="torch")
    model = brinell.wrap(Seen(), size=28, short_side=32, name="seen", execution=execution)
    sizes = [(224, 224), (224, 180), (150, 224), (224, 90), (100, 224), (224, 170)]
    images = [(photographs[index % 2, :, :tall, :wide], 0) for index, (tall, wide) in enumerate(sizes)]
    together = measure(model, images, tmp_path / "together", ["rotation_scale"], batch=8, shard=6)
    assert sum("'broken'" in row for row in together.values()) > len(sizes)
    for number, order in enumerate(([3, 1], [5], [4, 2, 0])):
        apart = measure(
            model, [images[index] for index in order], tmp_path / str(number), ["rotation_scale"], batch=1, shard=2
        )
        assert apart == {key: together[key] for key in apart}
        assert len(apart) == 5 * len(order)


def test_batches_are_smaller_where_positions_are_few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only on accelerators; either way the last batch is filled up, and what is done for it does not count."""
    model = brinell.wrap(Seen(), size=28, name="seen", execution=brinell.Execution(device="cpu", runtime="torch"))
    images, labels = torch.zeros(3, 3, 28, 28, dtype=torch.uint8), torch.zeros(3, dtype=torch.int64)
    criterion = find_criterion("misclassification")
    bench = Evaluator.of(model, images, torch.arange(3), labels, criterion=criterion, seed=0, batch=8)
    sizes: list[int] = []

    def do(stage: Stage, part: torch.Tensor) -> Done:
        sizes.append(len(part))
        return {"position": part}

    for share, few, expected in ((1, True, [16]), (4, False, [16]), (4, True, [4] * 4)):
        monkeypatch.setattr(tasks, "_FEW", {"cpu": share})
        done = bench.run(Task(torch.arange(3).repeat(5), do, few=few))
        assert torch.equal(done["position"], torch.arange(15)) and sizes == expected
        sizes.clear()


# ---- interrupted ----

_STOPPED = """
import os, signal, sys
from brinell.cli.main import main
from brinell.engine import journal, tasks

signal.signal(signal.SIGINT, signal.default_int_handler)  # a process in the background ignores it
own, runs = tasks.TaskRunner.run, []

def run(self, task):
    runs.append(task)
    if len(runs) == 14:
        os.kill(os.getpid(), signal.Signals[sys.argv[1]])
    return own(self, task)

tasks.TaskRunner.run, journal.EVERY = run, float(sys.argv[2])
main(sys.argv[3:])
"""


@pytest.mark.parametrize(("stop", "every"), [("SIGINT", "20"), pytest.param("SIGKILL", "0", marks=pytest.mark.slow)])
def test_an_interrupted_search_resumes_inside_its_unit(
    assets: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stop: str, every: str
) -> None:
    """Ctrl-C in a unit loses the step under way, a kill some seconds; the rows are those of a run without either."""
    given = [
        *("run", "--model", LENET, "--data", str(assets / "images" / "mnist_test.npz"), "--limit", "6"),
        *(
            "--lens",
            "geometry",
            "--operator",
            "similarity",
            "--method",
            "manifool",
            "--runtime",
            "torch",
            "--device",
            "cpu",
        ),
        *("--targets", "2", "--max-steps", "12", "--step-lengths", "4", "--batch", "8", "--out"),
    ]
    run, whole = tmp_path / "run", tmp_path / "whole"
    command = [sys.executable, "-c", _STOPPED, stop, every, *given, str(run)]
    stopped = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert stopped.returncode == (130 if stop == "SIGINT" else -signal.SIGKILL), stopped.stderr
    assert not list(run.glob("rows/**/*.parquet"))
    assert list(run.glob("unfinished/**/tasks-*.npz"))

    done, own = [], TaskRunner.run
    monkeypatch.setattr(TaskRunner, "run", lambda self, task: [own(self, task), done.append(task)][0])
    main([*given, str(run)])
    resumed, done = done, []
    main([*given, str(whole)])
    assert len(resumed) == len(done) - 13, "13 tasks were done before the run was stopped"
    assert not (run / "unfinished").exists()
    sql = "select * exclude (seconds) from rows order by image"
    assert brinell.Run(run).rows(sql).fetchall() == brinell.Run(whole).rows(sql).fetchall()
