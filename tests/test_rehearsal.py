"""Changes are applied once while images are read, so that an accelerator's kernels are ready when they are measured."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from threading import Event
from typing import Any

import pytest
import torch

import brinell
from brinell.api import open_setup
from brinell.engine import rehearsal, runner
from brinell.engine.rehearsal import rehearse, rehearsing
from brinell.engine.setup import Job, jobs_of
from brinell.models.model import Model
from conftest import PLAIN


def jobs(greys: Path, *lenses: Any) -> list[Job]:
    return jobs_of(open_setup("fake:grey", greys, {"lens": list(lenses)}, PLAIN))


def counted(job: Job, sizes: list[int]) -> Job:
    """Return a job whose model notes how many images it gets."""
    plain = job.model

    def forward(images: torch.Tensor) -> torch.Tensor:
        sizes.append(len(images))
        return plain.forward(images)

    return replace(job, model=replace(plain, forward=forward))


@pytest.mark.parametrize("lens", [{"name": "profile"}, {"name": "knob"}], ids=["profile", "knob"])
def test_every_change_of_model_inputs_is_queried_once(lens: dict[str, Any], greys: Path) -> None:
    sizes: list[int] = []
    (job,) = jobs(greys, lens)
    assert rehearse(counted(job, sizes), 5, Event()) == len(job.changes)
    assert len(job.changes) > 10
    assert sum(sizes) == 5 * len(job.changes)


def test_what_cannot_be_rehearsed_is_left_to_the_run(greys: Path) -> None:
    def fail(images: torch.Tensor) -> torch.Tensor:
        raise RuntimeError("no")

    geometry, profile = jobs(greys, {"name": "geometry", "operators": ["rotation"]}, {"name": "profile", "levels": 1})
    assert rehearse(geometry, 2, Event()) == 0
    assert rehearse(replace(profile, model=replace(profile.model, forward=fail)), 2, Event()) == 0


def test_nothing_is_begun_after_the_run_has_ended(greys: Path) -> None:
    (job,) = jobs(greys, {"name": "profile"})
    ended = Event()
    ended.set()
    assert rehearse(job, 2, ended) == 0


class Paid:
    """A service, each query of which costs something."""


def test_only_models_on_accelerators_rehearse(greys: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And no services, whose device is that of the machine: their queries may be paid for."""
    rehearsed: list[Model] = []

    def note(job: Job, batch: int | None, ended: Event) -> int:
        rehearsed.append(job.model)
        return 0

    monkeypatch.setattr(rehearsal, "rehearse", note)
    (job,) = jobs(greys, {"name": "profile"})
    cuda = torch.device("cuda")
    accelerated = replace(job, model=replace(job.model, device=cuda))
    paid: Any = Paid()
    service = replace(job, model=replace(job.model, device=cuda, service=paid))
    with rehearsing([job, accelerated, service], None):
        pass
    assert rehearsed == [accelerated.model]


def test_what_follows_a_rehearsal_is_not_disturbed(greys: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may be timed: nothing runs beside it."""
    begun, over = Event(), Event()

    def slow(job: Job, batch: int | None, ended: Event) -> int:
        begun.set()
        assert ended.wait(60)
        time.sleep(0.1)
        over.set()
        return 0

    monkeypatch.setattr(rehearsal, "rehearse", slow)
    (job,) = jobs(greys, {"name": "profile"})
    with rehearsing([replace(job, model=replace(job.model, device=torch.device("cuda")))], None):
        assert begun.wait(60)
    assert over.is_set()


def test_runs_rehearse_their_jobs(greys: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Sequence[Job]] = []

    def note(given: Sequence[Job], batch: int | None) -> Any:
        asked.append(given)
        return nullcontext()

    monkeypatch.setattr(runner, "rehearsing", note)
    lens = {"name": "profile", "operators": ["fade_white"], "levels": 2}
    brinell.run("fake:grey", greys, lens=lens, out=tmp_path / "run", execution=PLAIN, quiet=True)
    brinell.run("fake:grey", greys, lens=lens, out=tmp_path / "run", execution=PLAIN, quiet=True)
    assert [[job.lens.name for job in given] for given in asked] == [["profile"], []]  # a rerun has rows already
