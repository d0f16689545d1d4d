"""`brinell serve`: the paths of the protocol, images in all forms, and errors."""

from __future__ import annotations

import base64
import io
import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import urllib3
from PIL import Image

import brinell
from brinell.models.model import Model
from brinell.models.sources import open_model
from brinell.serve.server import Server
from conftest import PLAIN

HTTP = urllib3.PoolManager()


class Sides(torch.nn.Module):
    """Compares the red of the left part with the blue of the lower part, so that no two axes can be confused."""

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        more = 9 * (images[:, 0, :, :16].mean((1, 2)) - images[:, 2, 20:].mean((1, 2)))
        return torch.stack([more, -more], 1)


@pytest.fixture(scope="module")
def model() -> Model:
    """Light or dark, from images of 32 by 32."""
    return brinell.wrap(Sides(), size=32, classes=["light", "dark"], name="light or dark", execution=PLAIN)


@pytest.fixture(scope="module")
def server(model: Model) -> Iterator[Server]:
    with Server(model, port=0) as server:
        yield server.start()


def send(server: Server, path: str, body: Any = None, method: str | None = None, **headers: str) -> tuple[int, Any]:
    data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
    answer = HTTP.request(
        method or ("GET" if body is None else "POST"),
        server.url + path,
        body=data,
        headers={name.replace("_", "-"): value for name, value in headers.items()},
        retries=False,
    )
    assert answer.headers["content-type"] == "application/json"
    return answer.status, json.loads(answer.data)


def inputs(count: int = 3) -> torch.Tensor:
    images = torch.randint(0, 256, (count, 3, 32, 32), generator=torch.Generator().manual_seed(4)).to(torch.uint8)
    images[0] = images[0] // 4
    return images


def file_of(image: torch.Tensor, kind: str = "png") -> bytes:
    sink = io.BytesIO()
    Image.fromarray(image.permute(1, 2, 0).numpy()).save(sink, kind)
    return sink.getvalue()


def tensor(images: torch.Tensor, datatype: str = "UINT8", **changed: Any) -> dict[str, Any]:
    one = {"name": "images", "datatype": datatype, "shape": list(images.shape), "data": images.flatten().tolist()}
    return {"inputs": [{**one, **changed}]}


INFER = "/v2/models/light%20or%20dark/infer"


def test_metadata(server: Server, model: Model) -> None:
    assert send(server, "/v2")[1]["name"] == "brinell"
    for path in ("/v2/health/live", "/v2/health/ready", "/v2/models/light%20or%20dark/ready"):
        assert send(server, path)[0] == 200
    status, metadata = send(server, "/v2/models/light%20or%20dark")
    assert (status, metadata["versions"]) == (200, [model.fingerprint])
    assert metadata["inputs"] == [{"name": "images", "datatype": "UINT8", "shape": [-1, 3, 32, 32]}]
    assert metadata["outputs"] == [{"name": "probabilities", "datatype": "FP32", "shape": [-1, 2]}]
    assert metadata["parameters"]["classes"] == ["light", "dark"]
    assert send(server, f"/v2/models/light%20or%20dark/versions/{model.fingerprint}")[1] == metadata
    assert [entry["name"] for entry in send(server, "/v2/repository/index", {})[1]] == ["light or dark"]


def infer(server: Server, request: Any) -> torch.Tensor:
    status, answer = send(server, INFER, request)
    assert status == 200, answer
    (output,) = answer["outputs"]
    return torch.tensor(output["data"]).reshape(output["shape"])


def test_tensors_in_every_form_give_the_model_s_scores(server: Server, model: Model) -> None:
    images = inputs()
    expected = model.predict(images)
    last = images.permute(0, 2, 3, 1)
    files = [base64.b64encode(file_of(image)).decode() for image in images]
    requests = {
        "planes": tensor(images),
        "nested": tensor(images, data=images.tolist()),
        "interleaved": tensor(last),
        "floats": tensor(images / 255, "FP32"),
        "files": {"inputs": [{"name": "images", "datatype": "BYTES", "shape": [3], "data": files}]},
        "files in rows": {
            "inputs": [{"name": "images", "datatype": "BYTES", "shape": [3, 1], "data": [[f] for f in files]}]
        },
    }
    for form, request in requests.items():
        assert torch.allclose(infer(server, request), expected, atol=1e-5), form
    assert send(server, INFER, {**tensor(images), "id": "seven"})[1]["id"] == "seven"


def test_image_files_of_any_size_are_preprocessed(server: Server, model: Model) -> None:
    image = torch.from_numpy(np.random.default_rng(2).integers(0, 200, (3, 50, 41), dtype=np.uint8))
    expected = model.predict(model.preprocess.model_input(image)[None])[0]
    file = file_of(image)
    body, kind = urllib3.encode_multipart_formdata({"more": "words", "anything": ("a.png", file, "image/png")})
    answers = [
        send(server, "/predict", file),
        send(server, "/predict", body, content_type=kind),
        send(server, "/predict", {"image": base64.b64encode(file).decode()}, content_type="application/json"),
    ]
    for status, answer in answers:
        assert (status, list(answer["scores"])) == (200, ["light", "dark"])
        assert torch.allclose(torch.tensor(list(answer["scores"].values())), expected, atol=1e-6)
        assert answer["label"] == ["light", "dark"][int(expected.argmax())]
    assert send(server, "/predict", file_of(image, "jpeg"))[0] == 200


@pytest.mark.parametrize(
    ("path", "body", "status", "part"),
    [
        ("/nothing", None, 404, "try /v2"),
        ("/v2/models/other", None, 404, "the model is /v2/models/light%20or%20dark"),
        (INFER, None, 405, "expected POST"),
        ("/v2", {}, 405, "expected GET"),
        ("/v2/models/light%20or%20dark", {}, 405, "expected GET"),
        (INFER, b"{", 400, "not JSON"),
        (INFER, [1], 400, "inputs"),
        (INFER, {"inputs": []}, 400, "inputs"),
        (INFER, tensor(inputs()[:, :, :16]), 400, "the shape should be [-1, 3, 32, 32]"),
        (INFER, tensor(inputs(), "FP16"), 400, "the datatype should be"),
        (INFER, tensor(inputs(), data=[1, 2]), 400, "numbers of shape"),
        (INFER, tensor(inputs(), data=["a"] * 9216), 400, "numbers of shape"),
        (INFER, tensor(inputs().float(), "FP32"), 400, "should be in 0..1"),
        (INFER, {**tensor(inputs()), "outputs": [{"name": "boxes"}]}, 400, "expected outputs among probabilities"),
        (INFER, {"inputs": [{"datatype": "BYTES", "shape": [1], "data": ["?"]}]}, 400, "base64"),
        ("/predict", b"no image", 400, "can't be read"),
        ("/predict", b"", 400, "empty"),
    ],
)
def test_invalid_requests_get_an_error(server: Server, path: str, body: Any, status: int, part: str) -> None:
    method = "POST" if body is not None else "GET"
    found, answer = send(server, path, body, method)
    assert found == status and part in answer["error"], answer
    assert send(server, "/v2/health/live")[0] == 200, "the server is still running"


def test_an_image_starts_no_program(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pillow would give PostScript to Ghostscript."""
    started: list[Any] = []
    monkeypatch.setattr("subprocess.check_call", lambda *arguments, **_: started.append(arguments))
    body = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 8 8\n%%EndComments\nshowpage\n%%EOF\n"
    status, answer = send(server, "/predict", body, content_type="image/jpeg")
    assert (status, started) == (400, []) and "not an image of a known kind" in answer["error"]


def test_forms_without_a_file_and_json_without_an_image(server: Server) -> None:
    body, kind = urllib3.encode_multipart_formdata({"more": "words"})
    assert "no file" in send(server, "/predict", body, content_type=kind)[1]["error"]
    assert "image" in send(server, "/predict", {"picture": ""}, content_type="application/json")[1]["error"]


class Broken(torch.nn.Module):
    """Works on three images, raises on two and returns NaN for one."""

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        if len(images) == 2:
            raise RuntimeError("two are too many")
        return images.mean((2, 3)) + (float("nan") if len(images) == 1 else 0.0)


def test_an_error_of_the_model_does_not_stop_the_server() -> None:
    model = brinell.wrap(Broken(), size=32, execution=PLAIN)
    with Server(model, port=0) as server:
        server.start()
        path = "/v2/models/Broken/infer"
        assert send(server, path, tensor(inputs(3)))[0] == 200
        status, answer = send(server, path, tensor(inputs(2)))
        assert status == 500 and "two are too many" in answer["error"]
        status, answer = send(server, path, tensor(inputs(1)))
        assert status == 500 and "NaN" in answer["error"]
        assert send(server, "/predict", file_of(inputs(1)[0]))[0] == 500


def test_classes_with_the_same_name_get_numbers(tmp_path: Path) -> None:
    (tmp_path / "classes.txt").write_text("crane\ncrane\n")
    with Server(open_model(f"fake:grey?classes={tmp_path / 'classes.txt'}", PLAIN), port=0) as server:
        server.start()
        assert list(send(server, "/predict", file_of(inputs(1)[0]))[1]["scores"]) == ["crane (0)", "crane (1)"]


def test_a_port_in_use_raises(server: Server, model: Model) -> None:
    port = int(server.url.rpartition(":")[2])
    with pytest.raises(brinell.ConfigError, match="choose another --port"):
        Server(model, port=port)


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads a process's memory as Linux tells it")
def test_large_images_sent_together_take_the_memory_of_one(tmp_path: Path) -> None:
    sink = io.BytesIO()
    Image.new("RGBA", (9434, 9434), (90, 120, 200, 255)).save(sink, "png", compress_level=1)  # 89 megapixels
    command = [sys.executable, "-m", "brinell", "serve", "fake:grey", "--port", "0"]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            found = re.search(r"http://127\.0\.0\.1:\d+", process.stdout.readline())
            assert found is not None
            with ThreadPoolExecutor(8) as pool:
                answers = [pool.submit(_post, f"{found[0]}/predict", sink.getvalue()) for _ in range(8)]
                assert [answer.result() for answer in answers] == [200] * 8
            (peak,) = re.findall(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{process.pid}/status").read_text())
            assert int(peak) < 3_000_000, "it was 5.8 GB when each was decoded at once"
        finally:
            process.kill()


def _post(url: str, body: bytes) -> int:
    return HTTP.request("POST", url, body=body, headers={"content-type": "image/png"}, timeout=300, retries=False).status


@pytest.mark.slow
def test_the_command_prints_its_usage_and_stops_on_ctrl_c(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "brinell", "serve", "fake:grey", "--port", "0"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}

    def restore_ctrl_c() -> None:  # it is ignored if the tests run in the background
        signal.signal(signal.SIGINT, signal.SIG_DFL)

    process = subprocess.Popen(command, cwd=tmp_path, preexec_fn=restore_ctrl_c, **pipes)
    try:
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(3)]
        found = re.search(r"http://127\.0\.0\.1:\d+/v2/models/grey", lines[0])
        assert found is not None, lines
        assert "curl --data-binary @photo.jpg" in lines[1] and f"brinell run --model {found[0]} --data" in lines[2]
        assert HTTP.request("GET", found[0]).status == 200
        process.send_signal(signal.SIGINT)
        rest, errors = process.communicate(timeout=20)
        assert (process.returncode, rest, errors) == (0, "stopped\n", "")
    finally:
        process.kill()
        process.wait()
