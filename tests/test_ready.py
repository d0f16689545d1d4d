"""Images are decoded once: the survey makes the inputs that clean answers and the first shards need."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import brinell
from brinell.engine import ready as ready_module
from brinell.engine import runner
from brinell.engine.ready import Ready
from brinell.models.preprocess import Preprocess
from brinell.types import Sample

PLAIN = brinell.Execution(runtime="torch", batch=4)
PRE = Preprocess(height=4, width=4)
IMAGE = torch.arange(3 * 8 * 6, dtype=torch.uint8).view(3, 8, 6)


class Counted:
    """Grey images that count how often they are read."""

    name, classes = "counted", ("dark", "light")

    def __init__(self) -> None:
        self.read: Counter[int] = Counter()

    def __len__(self) -> int:
        return 20

    def __getitem__(self, index: int, /) -> Sample:
        self.read[index] += 1
        return Sample(torch.full((3, 40, 36), 5 * index, dtype=torch.uint8), 0, f"grey-{index}")


@pytest.mark.parametrize(("room", "times"), [(1 << 20, {1}), (6 * 3 * 32 * 32, {1, 3}), (0, {3})])
def test_images_are_read_once_where_there_is_room(
    room: int, times: set[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise once more for the clean answers and once more for their shard; rows are the same."""
    monkeypatch.setattr(runner, "draw_exhibits", lambda run, context: None)
    monkeypatch.setitem(ready_module.ROOM, "cpu", room)
    data = Counted()
    lens = {"name": "profile", "operators": ["fade_white"], "levels": 3}
    run = brinell.run("fake:grey", data, lens=lens, out=tmp_path / "run", execution=PLAIN, quiet=True)
    assert set(data.read.values()) == times
    assert len(data.read) == 20
    rows = run.query("select image, level, prediction, confidence from rows order by all")
    monkeypatch.setitem(ready_module.ROOM, "cpu", 0)
    plain = brinell.run("fake:grey", Counted(), lens=lens, out=tmp_path / "plain", execution=PLAIN, quiet=True)
    assert plain.query("select image, level, prediction, confidence from rows order by all") == rows


def test_inputs_serve_models_that_differ_in_their_normalisation_alone() -> None:
    ready = Ready(PRE, 1 << 10)
    ready.add(7, IMAGE)
    assert torch.equal(ready.inputs(replace(PRE, mean=(0.5,), bgr=True))[7], PRE.model_input(IMAGE))
    assert not ready.inputs(replace(PRE, interpolation="bilinear"))


def test_a_kept_input_holds_no_more_than_its_pixels() -> None:
    ready = Ready(replace(PRE, short_side=6), 1 << 10)
    ready.add(0, IMAGE)
    assert ready.inputs(ready.preprocess)[0].untyped_storage().nbytes() == 3 * 4 * 4


def test_no_more_are_kept_than_there_is_room_for() -> None:
    ready = Ready(PRE, 2 * 3 * 4 * 4 + 1)
    for index in range(5):
        ready.add(index, IMAGE)
    assert list(ready.inputs(PRE)) == [0, 1]
