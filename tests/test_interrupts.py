"""Ctrl-C and SIGTERM: paid queries stop at once, the message is clean, and nothing is swallowed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import duckdb
import pytest
import torch

from brinell.cli.main import main
from brinell.interrupts import interrupted, raise_if_interrupted, stoppable
from brinell.models import export as exporting
from brinell.models.preprocess import Preprocess
from services import Handler, listening, mapping, respond_with_scores

pytestmark = pytest.mark.usefixtures("answer_cache")


def start_queries(server: Any, folder: Path, calls: str) -> subprocess.Popen[str]:
    given = [
        "run", "--model", f"{server.url}#mapping={mapping(folder, '', calls)}&size=32", "--data", "greys",
        "--labels", "index",
        "--operator", "noise", "--levels", "30", "--yes", "--out", "run",
    ]  # fmt: skip
    return subprocess.Popen(
        [sys.executable, "-m", "brinell", *given],
        cwd=folder,
        env={**os.environ, "BRINELL_CACHE": str(folder / "cache")},
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
    )


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("how", ["fast", "hanging", "failing"])
def test_paid_queries_stop_at_once(how: str, number: int, greys: Path, tmp_path: Path) -> None:
    def respond(handler: Handler, body: bytes) -> Any:
        if handler.number > 20 and how == "hanging":
            time.sleep(30)
        if handler.number > 20 and how == "failing":
            return handler.send(503, b"{}", retry_after="20")
        time.sleep(0.05)
        return respond_with_scores(handler, body)

    with listening(respond) as server:
        process = start_queries(server, tmp_path, "concurrency: 4, timeout: 60, retries: 5")
        while len(server.requests) < 24 and process.poll() is None:
            time.sleep(0.02)
        sent = len(server.requests)
        process.send_signal(number)
        _, error = process.communicate(timeout=20)  # before a response (30 s) or the last of five retries (20 s each)
        assert process.returncode == 130, error
        assert error.splitlines()[-1] == "Interrupted; rerun to resume."
        time.sleep(0.3)
        assert len(server.requests) - sent <= 4  # those that were being sent


def kill_soon(number: int = signal.SIGINT) -> None:
    threading.Timer(0.3, os.kill, (os.getpid(), number)).start()


def test_ctrl_c_during_an_export_is_not_swallowed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def swallowing(*_: Any, **__: Any) -> None:
        try:
            kill_soon()
            time.sleep(5)
        except KeyboardInterrupt:
            raise RuntimeError("a pass failed") from None

    pytest.importorskip("onnxscript", reason="needs the extra onnx")
    monkeypatch.setattr(torch.onnx, "export", swallowing)
    with pytest.raises(KeyboardInterrupt):
        exporting.export(torch.nn.Identity(), torch.zeros(1, 3, Preprocess().height, 4), tmp_path / "x.onnx", "net")


def test_ctrl_c_inside_a_library_is_an_interrupt(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def query(*_: Any) -> None:
        kill_soon()
        try:
            time.sleep(5)
        except KeyboardInterrupt:
            raise duckdb.InterruptException("INTERRUPT Error: Interrupted!") from None

    monkeypatch.setattr("brinell.cli.listing.listing", query)
    with pytest.raises(SystemExit) as left:
        main(["ls", "lenses"])
    assert left.value.code == 130
    assert capsys.readouterr().err == "Interrupted.\n"


def test_handlers_are_restored_and_ignored_signals_stay_ignored() -> None:
    before = signal.getsignal(signal.SIGINT)
    old = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        with stoppable():
            assert signal.getsignal(signal.SIGINT) is not before
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(0.05)
            assert not interrupted()
            raise_if_interrupted()
        assert signal.getsignal(signal.SIGINT) is before
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGTERM, old)


def test_other_threads_may_not_set_handlers() -> None:
    seen: list[bool] = []

    def work() -> None:
        with stoppable():
            seen.append(True)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [True]
