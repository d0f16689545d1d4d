"""The real OpenVINO on a CPU: the scores of onnxruntime, and the faster one chosen once."""

from __future__ import annotations

import json
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch

import brinell
from brinell.config.execution import Execution
from brinell.engine.threads import torch_alone
from brinell.models import runtimes
from brinell.models.export import exported_file
from brinell.models.model import Model
from brinell.models.openvino import OpenVinoSession
from small_nets import CLASSES, SIDE, small

pytest.importorskip("openvino", reason="needs openvino: make test-zoo", exc_type=ImportError)
pytest.importorskip("onnxruntime", reason="needs onnxruntime: make test-zoo", exc_type=ImportError)

pytestmark = pytest.mark.filterwarnings("ignore")
IMAGES = torch.randint(0, 256, (11, 3, SIDE, SIDE), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))


def wrapped(runtime: str) -> Model:
    execution = Execution(runtime=runtime, device="cpu")
    return brinell.wrap(small(), size=SIDE, mean=(0.5,), std=(0.25,), classes=CLASSES, name="small", execution=execution)


@pytest.fixture
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("BRINELL_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_openvino_gives_the_scores_of_onnxruntime_in_batches_of_any_size() -> None:
    one, other = wrapped("onnxruntime"), wrapped("openvino")
    assert (one.facts["runtime"], other.facts["runtime"]) == ("onnxruntime", "openvino")
    for size in (1, 4, 11):
        expected, found = one.answer(IMAGES[:size])[0], other.answer(IMAGES[:size])[0]
        assert torch.allclose(expected, found, atol=1e-5) and torch.equal(expected.argmax(1), found.argmax(1))
    assert one.fingerprint == other.fingerprint and other.differentiable is not None  # gradients come from torch


def test_threads_do_not_share_results() -> None:
    model = wrapped("openvino")
    batches = [IMAGES[start : start + 1] for start in range(len(IMAGES))] * 20
    expected = [model.answer(batch)[0] for batch in batches]
    with ThreadPoolExecutor(4) as pool:
        assert all(map(torch.equal, expected, pool.map(lambda batch: model.answer(batch)[0], batches)))


def test_batches_run_side_by_side_though_models_are_opened_on_one_core() -> None:
    file = exported_file(small(), wrapped("onnxruntime").preprocess, "small")
    with torch_alone():
        session = OpenVinoSession(file)
    assert session._model.get_property("NUM_STREAMS") == len(os.sched_getaffinity(0))


@pytest.mark.parametrize("faster", ["onnxruntime", "openvino"])
def test_the_faster_one_is_chosen_once_and_kept(faster: str, own_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    measured: list[set[str]] = []

    def seconds_each(forwards: dict[str, object], batch: torch.Tensor) -> dict[str, float]:
        measured.append(set(forwards))
        return {name: 1.0 if name == faster else 2.0 for name in forwards}

    monkeypatch.setattr(runtimes, "seconds_each", seconds_each)
    assert wrapped("auto").facts["runtime"] == faster
    assert wrapped("auto").facts["runtime"] == faster and measured == [{"onnxruntime", "openvino"}]
    [record] = own_cache.glob("runtimes/*.json")
    assert json.loads(record.read_text())["runtime"] == faster
    record.write_text("{")  # a damaged record is measured again
    assert wrapped("auto").facts["runtime"] == faster and len(measured) == 2


def test_both_are_really_measured(own_cache: Path) -> None:
    model = wrapped("auto")
    [record] = own_cache.glob("runtimes/*.json")
    seconds = json.loads(record.read_text())["cpu_seconds_per_image"]
    assert model.facts["runtime"] == runtimes.choose(seconds) and min(seconds.values()) > 0


def test_one_that_scores_differently_is_not_chosen(own_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Wrong(runtimes.OpenVinoSession):
        def run(self, outputs: list[str], inputs: dict[str, object]) -> list[object]:
            return [1.01 * each for each in super().run(outputs, inputs)]

    monkeypatch.setattr(runtimes, "OpenVinoSession", Wrong)
    monkeypatch.setattr(runtimes, "choose", lambda seconds: "openvino")
    assert wrapped("auto").facts["runtime"] == "onnxruntime"
    with pytest.raises(brinell.ModelError, match=r"scores differently in OpenVINO and in torch \(by 1\.0%\)"):
        wrapped("openvino")


def test_an_onnx_file_runs_in_openvino_if_that_is_asked_for(tmp_path: Path) -> None:
    net = wrapped("torch")
    assert net.internals is not None
    file = tmp_path / "small.onnx"
    file.write_bytes(exported_file(net.internals.module, net.preprocess, "small").read_bytes())
    named = f"onnx:{file}?size={SIDE}&mean=0.5&std=0.25"
    expected = brinell.open_model(named).answer(IMAGES)[0]
    model = brinell.open_model(named, Execution(runtime="openvino"))
    assert model.facts["runtime"] == "openvino" and torch.allclose(model.answer(IMAGES)[0], expected, atol=1e-5)
    broken = tmp_path / "broken.onnx"
    broken.write_bytes(b"no network")
    with pytest.raises(brinell.ModelError, match=r"OpenVINO can't load broken\.onnx"):
        runtimes.OpenVinoSession(broken)


def test_a_run_names_its_runtime(greys: Path, tmp_path: Path) -> None:
    execution = Execution(runtime="openvino", batch=4)
    lens = {"name": "profile", "operators": ["fade_black"], "levels": 2}
    run = brinell.run("fake:grey", greys, lens=lens, out=tmp_path / "run", execution=execution, quiet=True)
    assert run.finished and run.manifest["models"]["grey"]["runtime"] == "openvino"
    assert run.manifest["versions"]["openvino"] is not None
