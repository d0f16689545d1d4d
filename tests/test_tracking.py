"""Runs in MLflow: what a real server, started here, has of them when it is asked again."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
import urllib3
from pytest import approx

import brinell
from brinell.cli.main import main
from brinell.engine.runner import execute
from brinell.engine.setup import assemble
from brinell.lenses.fragility.findings import FragilityFindings, MinimalImages
from brinell.run_config import load_config
from brinell.runs.statistics import Estimate
from brinell.tracking.figures import Part, collect_figures, flatten, to_word
from brinell.tracking.server import Server
from conftest import PLAIN

pytest.importorskip("mlflow", reason="needs the extra mlflow")
from mlflow import MlflowClient
from mlflow.entities import ViewType

STARTING = 60  # seconds that the server may take
MODELS = ["fake:grey:0.25?name=a", "fake:grey:0.4?name=b/ü"]
LENSES: list[dict[str, Any]] = [
    {"name": "profile", "operators": ["fade_black", "white_fog"], "levels": 6},
    {"name": "knob", "operators": ["brightness"], "points": 20},
    {"name": "highlights", "operators": ["highlight"], "sigmas": [8, 16], "cells": 3},
    {"name": "geometry", "operators": ["similarity"], "methods": ["random"], "radii": [0.5, 1.0], "draws": 2},
]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A real tracking server on this machine: SQLite, and artifacts that it serves itself."""
    folder = tmp_path_factory.mktemp("mlflow")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    place = f"http://127.0.0.1:{port}"
    command = [
        *(sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(port), "--workers", "1"),
        *("--backend-store-uri", f"sqlite:///{folder}/runs.db", "--artifacts-destination", str(folder / "files")),
        *("--gunicorn-opts", "--no-control-socket --timeout 60 --log-level warning"),
    ]
    environment = {**os.environ, "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false", "MLFLOW_DISABLE_TELEMETRY": "true"}
    with (folder / "log.txt").open("w") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, env=environment, cwd=folder, start_new_session=True)
    try:
        pool, until = urllib3.PoolManager(retries=False), time.monotonic() + STARTING
        while time.monotonic() < until:
            try:
                if pool.request("GET", f"{place}/health").status == 200:
                    break
            except urllib3.exceptions.HTTPError:
                time.sleep(0.1)
            assert process.poll() is None, (folder / "log.txt").read_text()
        else:
            pytest.fail((folder / "log.txt").read_text())
        yield place
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        process.wait(20)


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of the user's settings, and no waiting."""
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    monkeypatch.setenv("MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR", "false")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    for name in ("MLFLOW_TRACKING_URI", "MLFLOW_EXPERIMENT_NAME"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def plain(monkeypatch: pytest.MonkeyPatch) -> None:
    """No figures, which take longest."""
    monkeypatch.setattr(brinell.Run, "figures", lambda run: [])


def measured(data: Path, out: Path, models: list[str] = MODELS, lenses: list[dict[str, Any]] = LENSES) -> brinell.Run:
    config = {"models": models, "data": str(data), "lenses": lenses, "out": str(out), "seed": 7}
    return brinell.Run(execute(assemble(load_config({**config, "execution": PLAIN.model_dump()}))).folder)


class Told:
    """What a server has of one experiment."""

    def __init__(self, place: str, name: str) -> None:
        self.client = MlflowClient(place)
        self.experiment = self.client.get_experiment_by_name(name).experiment_id

    def runs(self, query: str = "", view: int = ViewType.ACTIVE_ONLY) -> list[Any]:
        return list(self.client.search_runs([self.experiment], query, view))

    def parent(self) -> Any:
        (one,) = [run for run in self.runs() if "mlflow.parentRunId" not in run.data.tags]
        return one

    def nested(self) -> dict[tuple[str, str, str], Any]:
        runs = [run for run in self.runs() if "mlflow.parentRunId" in run.data.tags]
        assert {run.data.tags["mlflow.parentRunId"] for run in runs} == {self.parent().info.run_id}
        found = {tuple(run.data.params[key] for key in ("lens", "model", "operator")): run for run in runs}
        assert len(found) == len(runs), "each part is there once"
        return found

    def curve(self, run: Any, name: str) -> list[tuple[int, float]]:
        return sorted((one.step, one.value) for one in self.client.get_metric_history(run.info.run_id, name))


def approx_curve(points: Iterable[tuple[int, float]]) -> list[Any]:
    return [approx(point) for point in points]


def test_a_run_is_a_parent_and_a_nested_run_for_each_lens_model_and_operator(
    server: str, greys: Path, tmp_path: Path
) -> None:
    run = measured(greys, tmp_path / "run")
    tracked = run.track(server, experiment="whole", quiet=True)
    told, found = Told(server, "whole"), run.findings()
    asked = set(run.rows("select distinct lens, model, operator from rows").fetchall())
    nested = told.nested()
    assert set(nested) == asked and len(asked) == 10 == tracked.logged and tracked.kept == 0

    # profiles: a number a level
    for (model, operator), points in found["profile"].curves.items():
        one = nested["profile", model, operator]
        for name in ("accuracy", "rank", "probability", "confidence"):
            assert told.curve(one, name) == approx_curve((point.level, getattr(point, name).value) for point in points)
        assert told.curve(one, "accuracy_low") == approx_curve((point.level, point.accuracy.low) for point in points)
        assert one.data.metrics["area"] == approx(found["profile"].areas[model, operator].value)
        assert told.curve(one, "level_below_0.5") == [
            (0, each.level)
            for each in found["profile"].failure_points
            if (each.model, each.operator, each.threshold) == (model, operator, 0.5) and each.level is not None
        ]
    # the other lenses' figures
    hard = found["knob"].hardness["a", "brightness:standard"]
    metrics = nested["knob", "a", "brightness:standard"].data.metrics
    assert metrics["robustness"] == approx(hard.robustness.value) and metrics["broken"] == hard.broken > 0
    assert {name: value for name, value in metrics.items() if name.startswith("median/")} == approx(
        {f"median/{way}": value for way, value in hard.median.items() if value is not None}
    )
    glare = found["highlights"].glare["a", "highlight:exact"]
    metrics = nested["highlights", "a", "highlight:exact"].data.metrics
    assert metrics["at_least/5"] == approx(glare.at_least[5].value) and metrics["cells/4"] == approx(glare.cells[4])
    for size in glare.sizes:
        assert metrics[f"size/{to_word(size.sigma)}/rate"] == approx(size.rate.value)
    rates = found["geometry"].rates["a", "similarity:random"]
    one = nested["geometry", "a", "similarity:random"]
    assert told.curve(one, "score") == [(1, 0.5), (2, 1.0)]
    assert told.curve(one, "changed") == approx_curve((step, rate.changed.value) for step, rate in enumerate(rates, 1))

    # what was measured, on what, and with what
    parent, manifest = told.parent(), run.manifest
    assert told.client.get_experiment(told.experiment).tags["mlflow.experimentKind"] == "custom_model_development"
    assert parent.info.run_id == tracked.run and parent.info.status == "FINISHED" and tracked.run in tracked.link
    params = parent.data.params
    assert params["seed"] == "7" and params["lenses.profile.operators"] == "fade_black, white_fog"
    assert params["models.a.fingerprint"] == manifest["identity"]["models"]["a"]["fingerprint"]
    assert params["data.fingerprint"] == manifest["identity"]["data"]["fingerprint"]
    assert nested["profile", "b/ü", "white_fog:published"].data.params["levels"] == "6"
    tags = parent.data.tags
    assert {name: tags[f"version.{name}"] for name in ("brinell", "torch")} == {
        name: manifest["versions"][name] for name in ("brinell", "torch")
    }
    assert found["knob"].verdict("a") in tags["mlflow.note.content"]
    assert [(one.dataset.name, one.dataset.digest) for one in parent.inputs.dataset_inputs] == [
        (manifest["identity"]["data"]["name"], manifest["identity"]["data"]["fingerprint"])
    ]
    assert parent.info.end_time - parent.info.start_time == round(1000 * manifest["seconds"])

    # means over operators, as elsewhere
    areas = found["profile"].average_areas
    assert parent.data.metrics["a/area"] == approx(areas["a"].value)
    assert parent.data.metrics["b_ü/area"] == approx(areas["b/ü"].value)
    board = {one.model: one.figures for one in brinell.leaderboard(run).rows}
    assert parent.data.metrics["a/glare"] == approx(board["a"]["glare"].value)
    assert len(told.curve(parent, "a/accuracy")) == 7

    # the report and the figures, byte by byte
    (tmp_path / "back").mkdir()
    files = Path(told.client.download_artifacts(parent.info.run_id, "", str(tmp_path / "back")))
    drawn = [path for path in (tmp_path / "run" / "figures").rglob("*") if path.is_file()]
    assert len(drawn) > 10
    for path in (tmp_path / "run" / "report.html", tmp_path / "run" / "manifest.json", *drawn):
        assert (files / path.relative_to(tmp_path / "run")).read_bytes() == path.read_bytes()
    assert set(json.loads((files / "summary.json").read_text())) == set(found)


@pytest.mark.slow
@pytest.mark.usefixtures("plain")
def test_logging_twice_is_logging_once(server: str, greys: Path, tmp_path: Path, capsys: Any) -> None:
    run = measured(greys, tmp_path / "run", ["fake:grey:0.25"], LENSES[:2])
    command = ["track", run.folder, "--to", server, "--experiment", "twice"]
    main(command)
    assert "3 nested runs logged: http" in capsys.readouterr().out
    told = Told(server, "twice")
    before, parent = told.nested(), told.parent()
    assert parent.data.metrics["area"] == approx(run.summary().average_areas["grey:0.25"].value)
    main(command)
    assert "0 nested runs logged, 3 already there" in capsys.readouterr().out
    assert told.parent().info.run_id == parent.info.run_id and len(told.runs()) == 4
    assert {key: one.info.run_id for key, one in told.nested().items()} == {
        key: one.info.run_id for key, one in before.items()
    }

    # what was left unfinished, changed since, or doubled, is mended, and the rest is left alone
    knob, fade, fog = sorted(told.nested().values(), key=lambda one: one.data.params["operator"])
    told.client.delete_tag(fade.info.run_id, "brinell.content")
    told.client.set_tag(fog.info.run_id, "brinell.content", "of an older version")
    twin = told.client.create_run(told.experiment, tags={key: knob.data.tags[key] for key in TWIN})
    told.client.set_tag(parent.info.run_id, "brinell.content", "of an older version")
    main(command)
    assert "2 nested runs logged, 1 already there" in capsys.readouterr().out
    after = told.nested()
    assert set(after) == set(before) and told.parent().info.run_id == parent.info.run_id
    kept = {one.info.run_id for one in after.values()}
    assert knob.info.run_id in kept and not {fade.info.run_id, fog.info.run_id, twin.info.run_id} & kept
    assert len(told.curve(told.parent(), "accuracy")) == 7, "no figure is there twice"
    assert len(told.parent().inputs.dataset_inputs) == 1

    # the same measured another day is another run
    manifest = run.manifest
    run.store.write_manifest({**manifest, "created": "2020-02-02 02:02:02"})
    run.refresh()
    run.track(server, experiment="twice", quiet=True)
    assert len(told.runs()) == 8


TWIN = ("mlflow.parentRunId", "brinell.part", "brinell.content")


@pytest.mark.usefixtures("plain")
def test_a_stopped_logging_goes_on(server: str, greys: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = measured(greys, tmp_path / "run", ["fake:grey:0.25"], LENSES[:2])
    calls = 0
    ended = Server.end

    def stop(self: Server, *given: Any) -> None:
        nonlocal calls
        calls += 1
        if calls == 2:
            raise KeyboardInterrupt
        ended(self, *given)

    monkeypatch.setattr(Server, "end", stop)
    with pytest.raises(KeyboardInterrupt):
        run.track(server, experiment="stopped", quiet=True)
    monkeypatch.setattr(Server, "end", ended)
    told = Told(server, "stopped")
    assert told.parent().info.status == "RUNNING" and len(told.runs()) == 3
    tracked = run.track(server, experiment="stopped", quiet=True)
    assert (tracked.logged, tracked.kept) == (2, 1) and len(told.nested()) == 3
    assert {one.info.status for one in told.runs()} == {"FINISHED"}
    assert told.parent().data.params["seed"] == "7"


@pytest.mark.usefixtures("plain")
def test_a_run_can_be_logged_when_it_ends(server: str, greys: Path, tmp_path: Path, capsys: Any) -> None:
    arguments = ["run", "--model", "fake:grey", "--data", str(greys), "--operator", "fade_black", "--levels", "2"]
    arguments += ["--out", str(tmp_path / "run"), "--runtime", "torch", "--batch", "4"]
    main([*arguments, "--track", server, "--set", "track.experiment=at the end"])
    assert "1 nested runs logged" in capsys.readouterr().out
    assert len(Told(server, "at the end").nested()) == 1
    assert server not in (tmp_path / "run" / "manifest.json").read_text(), "a URI may hold a password"
    main([*arguments, "--track", server])  # where it is logged is no part of what was measured
    assert len(Told(server, "brinell").nested()) == 1


@pytest.mark.usefixtures("plain")
@pytest.mark.usefixtures("plain")
def test_a_lens_from_another_package_can_be_tracked(server: str, tmp_path: Path) -> None:
    pytest.importorskip("brinell_mirror", reason="needs the package tests/plugin: pip install --editable tests/plugin")
    run = brinell.run("left_or_right:", "bars:6", lens="mirror", out=tmp_path / "run", quiet=True)
    run.track(server, experiment="mirror", quiet=True)
    told = Told(server, "mirror")
    nested = {operator: one for (_, _, operator), one in told.nested().items()}
    assert set(nested) == {"mirror:horizontal", "mirror:vertical"}
    assert nested["mirror:horizontal"].data.metrics["accuracy"] == 0
    assert nested["mirror:vertical"].data.metrics["accuracy"] == 1
    assert run.summary().verdict("left_or_right") in told.parent().data.tags["mlflow.note.content"]


def test_refusals_are_one_line_with_the_fix(
    server: str, greys: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = measured(greys, tmp_path / "run", ["fake:grey:0.25"], LENSES[:1])

    def refused(*given: Any, **options: Any) -> str:
        with pytest.raises(brinell.BrinellError) as told:
            run.track(*given, quiet=True, **options)
        assert "\n" not in str(told.value)
        return str(told.value)

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        nobody = f"http://127.0.0.1:{free.getsockname()[1]}"
    began = time.monotonic()
    assert f"no MLflow server answers at {nobody}" in refused(nobody) and time.monotonic() - began < 5
    assert "no tracking server given; use --to http://HOST:5000, or set MLFLOW_TRACKING_URI" in refused()
    client = MlflowClient(server)
    client.delete_experiment(client.create_experiment("gone"))
    assert "'gone' was deleted" in refused(server, experiment="gone")
    manifest = run.manifest
    run.store.write_manifest({**manifest, "finished": False})
    run.refresh()
    assert "is not finished; rerun its command to finish it" in refused(server)
    run.store.write_manifest(manifest)
    run.refresh()
    monkeypatch.setenv("MLFLOW_TRACKING_URI", server)
    monkeypatch.setenv("MLFLOW_EXPERIMENT_NAME", "from outside")
    run.track(quiet=True)
    assert len(Told(server, "from outside").nested()) == 2
    monkeypatch.setitem(sys.modules, "mlflow", None)
    assert "pip install " in (told := refused(server)) and "[mlflow]" in told


def test_fragile_windows_and_minimal_images_have_figures(greys: Path, tmp_path: Path) -> None:
    lens = {"name": "fragility", "operators": ["windows"], "sizes": [0.5], "stride": 16}
    found = measured(greys, tmp_path / "run", MODELS[:1], [lens]).findings()
    share = found["fragility"].share("a", "windows:0.5", "loose shift")
    numbers = {one.name: one.value for one in collect_figures(found)[Part("fragility", "a", "windows:0.5")]}
    assert numbers["loose_shift/correct/share"] == share.share.value and numbers["loose_shift/correct/images"] == 12
    windows = ((20, 0, 0, 0.9), (16, 2, 2, 0.8))
    images = [MinimalImages("a", "one", windows, 50, True), MinimalImages("a", "two", (), 10, False)]
    (told,) = collect_figures({"fragility": FragilityFindings({}, [], [], images, {}, {})}).items()
    assert told[0] == Part("fragility", "a", "minimal")
    assert {one.name: one.value for one in told[1]} == {"images": 2, "minimal_images": 1, "queries": 30, "complete": 0.5}


def test_figures_are_flat_and_finite() -> None:
    told = {"a": Estimate(0.5, float("nan"), 0.7), "b c": {1: 2, "x": None, "y": "word"}, "d": [1.0, float("inf")]}
    assert dict(flatten(told)) == {"a": 0.5, "a_high": 0.7, "b_c/1": 2.0, "d/0": 1.0}
    assert collect_figures({}) == {}
