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
from brinell.engine.journal import Journal
from brinell.engine.renderer import Renderer
from brinell.engine.tasks import TaskRunner
from brinell.lenses.geometry.lens import measure as measure_motions
from brinell.lenses.geometry.manifool import ManiFoolSettings, _Pairs, _Search
from brinell.lenses.geometry.options import GeometryOptions
from brinell.lenses.geometry.search import FOOLED, LEFT_FRAME, NO_EFFECT, OUT_OF_STEPS, SearchResult
from brinell.lenses.method import Done, Measuring, Stage, Task
from brinell.motion.groups import GROUPS
from brinell.perturb.motion import Motion
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
        (done,) = bench.run(Task(torch.arange(3).repeat(5), do, few=few))
        assert torch.equal(done["position"], torch.arange(15)) and sizes == expected
        sizes.clear()


@pytest.mark.parametrize("method", ["manifool", "random"])
def test_searches_say_how_many_images_need_nothing_more(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("brinell.lenses.geometry.black_box.RAYS", 3)
    model = brinell.wrap(Seen(), size=28, name="seen", execution=brinell.Execution(device="cpu", runtime="torch"))
    images = torch.rand(8, 3, 28, 28, generator=torch.Generator().manual_seed(0)).mul(255).to(torch.uint8)
    ended: list[int] = []
    bench = Evaluator(
        model,
        Renderer(model.preprocess, images, torch.arange(8), seed=0, device=model.device),
        torch.zeros(8, dtype=torch.int64),
        criterion=find_criterion("misclassification"),
        batch=8,
        end=ended.append,
    )
    options = GeometryOptions(operators=("similarity",), **{**QUICK, "max_steps": 12})
    columns = bench.drive(measure_motions(bench.shard(), Motion(GROUPS["similarity"], method, searching=True), options))
    assert len(columns["sample"]) >= 8 and 0 < max(ended) < 8
    assert ended[0] == 0


def test_an_image_that_gets_a_second_try_has_not_ended() -> None:
    result = SearchResult.empty(4, 1, OUT_OF_STEPS)
    result.reason[:3] = torch.tensor([FOOLED, LEFT_FRAME, NO_EFFECT])
    pairs = _Pairs(torch.tensor([3, 3]), torch.tensor([0, 1]), torch.eye(3).repeat(2, 1, 1), torch.zeros(2, 1))
    for retry, step, ended in ((torch.ones(1), 50, 2), (torch.ones(1), 51, 3), (None, 50, 3)):
        settings = ManiFoolSettings(torch.ones(1), 0.0, retry_lengths=retry, max_steps=50)
        search = _Search(GROUPS["rotation"], settings, torch.zeros(4, dtype=torch.int64), result)
        assert search._count_ended(pairs, step) == ended


def test_tasks_that_run_together_take_turns() -> None:
    """A long task and a short one; results are those of each alone, also from a journal that has one of them."""
    model = brinell.wrap(Seen(), size=28, name="seen", execution=brinell.Execution(device="cpu", runtime="torch"))
    images, labels = torch.zeros(3, 3, 28, 28, dtype=torch.uint8), torch.zeros(3, dtype=torch.int64)
    criterion = find_criterion("misclassification")
    bench = Evaluator.of(model, images, torch.arange(3), labels, criterion=criterion, seed=0, batch=8)
    begun: list[str] = []

    def task(name: str, count: int) -> Task:
        def do(stage: Stage, part: torch.Tensor) -> Done:
            begun.append(name)
            return {name: part**2}

        return Task(torch.arange(3).repeat(count), do, batch=3)

    def lens() -> Measuring:
        first = yield task("first", 1)
        both = yield task("long", 9), task("short", 3)
        last = yield task("last", 1)
        return {"found": torch.cat([*first.values(), *both[0].values(), *both[1].values(), *last.values()])}

    expected = torch.cat([torch.arange(3 * count) ** 2 for count in (1, 9, 3, 1)])
    assert torch.equal(bench.drive(lens())["found"], expected)
    assert begun[1:13].index("short") < 4 and "long" in begun[10:13]

    class Kept(Journal):
        """What the journal of an interrupted run holds: the first task, and one of two that ran together."""

        def __init__(self) -> None:
            self.held: dict[int, Done] = {0: {"first": torch.arange(3) ** 2}, 1: {"long": torch.arange(27) ** 2}}
            self.trials = False

        def read_done(self, index: int, count: int) -> Done | None:
            return self.held.get(index)

        def write_done(self, index: int, done: Done) -> None:
            self.held[index] = done

    begun.clear()
    journal = Kept()
    assert torch.equal(bench.drive(lens(), journal)["found"], expected)
    assert set(begun) == {"short", "last"} and list(journal.held) == [0, 1, 2, 3]


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
