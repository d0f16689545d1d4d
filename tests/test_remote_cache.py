"""Answers are cached and paid for once; budgets, rates and costs."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch

import brinell
from brinell.cli.main import main
from brinell.config.execution import Execution
from brinell.errors import BudgetSpent, ServiceError
from brinell.models.sources import open_model
from conftest import PLAIN
from services import LENS, Handler, expected_scores, listening, mapping, pixels, respond_with_scores, service

pytestmark = pytest.mark.usefixtures("answer_cache")


def test_equal_images_are_sent_once(tmp_path: Path) -> None:
    with listening(respond_with_scores) as server:
        model = service(server, tmp_path)
        images = pixels(3)[[0, 1, 0, 2, 2, 0]]
        assert torch.allclose(model.predict(images), expected_scores(images), atol=1e-6)
        assert len(server.requests) == 3
        model.predict(images.flip(0))
        service(server, tmp_path).predict(images)
        assert len(server.requests) == 3, "another process finds them in the cache"


def test_two_threads_send_an_image_once(tmp_path: Path) -> None:
    from concurrent.futures import ThreadPoolExecutor

    def slow(handler: Handler, body: bytes) -> Any:
        time.sleep(0.1)
        return respond_with_scores(handler, body)

    with listening(slow) as server:
        model = service(server, tmp_path)
        with ThreadPoolExecutor(4) as pool:
            found = list(pool.map(model.predict, [pixels(5)] * 4))
        assert len(server.requests) == 5
    assert all(torch.allclose(one, expected_scores(pixels(5)), atol=1e-6) for one in found)


def test_other_services_and_versions_are_queried_again(tmp_path: Path) -> None:
    with listening(respond_with_scores) as server:
        service(server, tmp_path).predict(pixels(1))
        path = mapping(tmp_path)
        path.write_text(path.read_text() + "\n        version: second\n")
        open_model({"source": server.url, "mapping": str(path), "size": 32}).predict(pixels(1))
        assert len(server.requests) == 2
        open_model({"source": f"{server.url}?v=3", "mapping": str(path), "size": 32}).predict(pixels(1))
        assert len(server.requests) == 3


def test_a_corrected_mapping_reads_cached_responses(tmp_path: Path) -> None:
    with listening(respond_with_scores) as server:
        with pytest.raises(ServiceError, match="nothing at 'resolt'"):
            service(server, tmp_path, "scores: resolt", "concurrency: 1").predict(pixels(1))
        assert torch.allclose(service(server, tmp_path).predict(pixels(1)), expected_scores(pixels(1)), atol=1e-6)
        assert len(server.requests) == 1


def test_a_spent_budget_stops_a_run_that_can_be_resumed(greys: Path, tmp_path: Path) -> None:
    how: dict[str, Any] = {"lens": LENS, "out": tmp_path / "run", "quiet": True}
    with listening(respond_with_scores) as server:
        options = {"source": server.url, "mapping": str(mapping(tmp_path)), "size": 32, "name": "service"}

        def limited(limit: int | None) -> brinell.Run:
            return brinell.run(options, greys, execution=Execution(max_queries=limit, batch=4, shard=8), **how)

        for limit in (20, 20, 41):
            with pytest.raises(BudgetSpent) as error:
                limited(limit)
            assert f"{limit} of {limit} queries sent" in str(error.value)
            assert "rerun with a larger --max-queries to resume" in str(error.value)
            assert len(server.requests) == limit, "a hard limit, however often the run is resumed"
            assert brinell.Run(tmp_path / "run").manifest["queries"]["service"]["sent"] == limit
        done = limited(None)
        assert len(server.requests) == len(set(server.requests)) == 12 + 12 * 2 * 3
        whole = brinell.run(options, greys, execution=PLAIN, **{**how, "out": tmp_path / "whole"})
        assert len(server.requests) == 84, "another run of the same images sends nothing"
    query = "select * from rows order by operator, image, level"
    assert done.rows(query).fetchall() == whole.rows(query).fetchall()
    assert done.manifest["queries"]["service"]["sent"] == 84
    counts = whole.manifest["queries"]["service"]
    assert counts["sent"] == 0 and counts["cached"] >= 84 + 12


def test_the_budget_is_for_all_services_of_a_run(greys: Path, tmp_path: Path) -> None:
    with listening(respond_with_scores) as server:
        options = [
            {"source": f"{server.url}?{name}", "mapping": str(mapping(tmp_path)), "size": 32, "name": name} for name in "ab"
        ]
        with pytest.raises(BudgetSpent):
            brinell.run(options, greys, lens=LENS, execution=Execution(max_queries=20), out=tmp_path / "run", quiet=True)
        assert len(server.requests) == 20


@pytest.mark.slow
def test_a_killed_run_sends_nothing_twice(greys: Path, tmp_path: Path) -> None:
    def slow(handler: Handler, body: bytes) -> Any:
        time.sleep(0.05)
        return respond_with_scores(handler, body)

    with listening(slow) as server:
        source = f"{server.url}#size=32&name=service&mapping={mapping(tmp_path, '', 'concurrency: 2')}"
        arguments = ["--model", source, "--data", str(greys), "--operator", "noise", "--levels", "5"]
        command = [sys.executable, "-m", "brinell", "run", *arguments, "--out", str(tmp_path / "run")]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while len(server.requests) < 20:
            assert process.poll() is None
            time.sleep(0.01)
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        time.sleep(0.2)
        main(["run", *arguments, "--out", str(tmp_path / "run")])
        assert len(set(server.requests)) == 72
        assert 72 <= len(server.requests) <= 72 + 2, "at most the requests in flight are repeated"
        counts = brinell.Run(tmp_path / "run").manifest["queries"]["service"]
        assert counts["sent"] == len(server.requests), "queries before the kill count, too"


# ---- rates and costs ----


def test_concurrency_and_rate_are_limits(tmp_path: Path) -> None:
    def slow(handler: Handler, body: bytes) -> Any:
        time.sleep(0.03)
        return respond_with_scores(handler, body)

    with listening(slow) as server:
        service(server, tmp_path, "", "concurrency: 3").predict(pixels(12))
        assert server.most_parallel == 3
    with listening(respond_with_scores) as server:
        service(server, tmp_path, "", "rate: 20").predict(pixels(9))
        assert server.times[-1] - server.times[0] > 0.3, "eight pauses of a twentieth of a second"


def test_plan_and_summary_report_the_cost_and_plan_sends_nothing(
    greys: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "300")
    with listening(respond_with_scores) as server:
        model = (
            f"{server.url}#size=32&name=service&mapping={mapping(tmp_path, '', 'price: 0.01, currency: EUR, rate: 100')}"
        )
        what = ["--model", model, "--data", str(greys), "--operator", "noise", "--levels", "5"]
        main(["plan", *what])
        plan = capsys.readouterr().out
        assert "at most 72 queries for 0.72 EUR (at 0.01 EUR each)" in plan and server.requests == []
        main(["run", *what, "--out", str(tmp_path / "run")])
        line = "service: 72 images sent for 0.72 EUR (at 0.01 EUR each), "
        assert line in capsys.readouterr().out
        main(["summary", str(tmp_path / "run")])
        assert line in capsys.readouterr().out
        assert line in (tmp_path / "run" / "report.html").read_text()
        main(["summary", "--json", str(tmp_path / "run")])
        assert json.loads(capsys.readouterr().out)["queries"]["service"]["sent"] == 72
        assert len(server.requests) == 72


def test_a_price_needs_its_currency(tmp_path: Path) -> None:
    model = f"http://localhost:1#size=32&mapping={mapping(tmp_path, '', 'price: 0.01')}"
    with pytest.raises(
        brinell.BrinellError, match=r"calls.price needs its currency; add one, as in price: 0\.01, currency: USD"
    ):
        open_model(model, PLAIN)


@pytest.mark.slow
def test_max_queries_on_the_command_line(greys: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with listening(respond_with_scores) as server:
        model = f"{server.url}#size=32&mapping={mapping(tmp_path)}"
        command = ["run", "--model", model, "--data", str(greys), "--operator", "noise", "--out", str(tmp_path / "run")]
        with pytest.raises(SystemExit) as left:
            main([*command, "--max-queries", "5"])
        message = capsys.readouterr().err.splitlines()[-1]
        assert left.value.code == 3
        assert message.startswith("Query budget used up: 5 of 5 queries sent; rerun with a larger --max-queries to resume")
        main([*command, "--levels", "30", "--max-queries", "1000"])  # the same run: execution options don't change it
        assert brinell.Run(tmp_path / "run").manifest["finished"]
