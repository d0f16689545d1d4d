"""Rows are written while the next unit is measured."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

import brinell
from brinell.engine import measuring
from brinell.engine.writing import Writer
from brinell.errors import RunError

LENS = {"name": "profile", "operators": ["fade_black", "fade_white", "noise"], "levels": 2}
PLAIN = brinell.Execution(runtime="torch", batch=4)


def test_the_next_piece_waits_until_one_is_written() -> None:
    free, done = threading.Event(), list[str]()
    with Writer() as writer:
        writer(lambda: (free.wait(5), done.append("first"))[0] and None)
        assert not done  # in the background
        threading.Timer(0.1, free.set).start()
        writer(lambda: done.append("second"))
        assert done[0] == "first"
    assert done == ["first", "second"]


def test_what_was_brought_is_written_though_measuring_fails() -> None:
    done = list[str]()
    with pytest.raises(KeyboardInterrupt), Writer() as writer:
        writer(lambda: done.append("rows"))
        raise KeyboardInterrupt
    assert done == ["rows"]


def test_what_was_measured_is_written_though_waiting_for_the_piece_before_is_interrupted() -> None:
    done = list[str]()

    def interrupt() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), Writer() as writer:
        writer(interrupt)  # raised where the next piece waits
        writer(lambda: done.append("rows"))
    assert done == ["rows"]


@pytest.mark.parametrize("more", [True, False])
def test_an_error_of_writing_ends_the_run(more: bool) -> None:
    def fail() -> None:
        raise RunError("no space left")

    with pytest.raises(RunError, match="no space left"), Writer() as writer:
        writer(fail)
        if more:
            writer(lambda: pytest.fail("nothing is written after an error"))


def test_a_run_whose_rows_cannot_be_written_keeps_those_before(
    greys: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = measuring.write_rows

    def write(store: Any, part: Any, *given: Any) -> None:
        if part.unit.operator.startswith("fade_white"):
            raise RunError("no space left")
        plain(store, part, *given)

    monkeypatch.setattr(measuring, "write_rows", write)
    with pytest.raises(RunError, match="no space left"):
        brinell.run("fake:grey", greys, lens=LENS, out=tmp_path / "run", execution=PLAIN, quiet=True)
    files = sorted(file.parent.name for file in (tmp_path / "run").glob("rows/*/*/*/*.parquet"))
    assert [name.partition("%")[0] for name in files] == ["fade_black"]
    monkeypatch.setattr(measuring, "write_rows", plain)
    run = brinell.run("fake:grey", greys, lens=LENS, out=tmp_path / "run", execution=PLAIN, quiet=True)
    assert run.finished
