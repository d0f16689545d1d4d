"""Models behind HTTP, over loopback: the same results as without HTTP."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import brinell
from brinell.config.execution import Execution
from brinell.errors import ConfigError
from brinell.models.model import Model
from brinell.models.sources import open_model
from brinell.serve.server import Server
from conftest import PLAIN
from services import (
    LENS,
    SECRET,
    Handler,
    decode_image,
    expected_scores,
    light_or_dark,
    listening,
    pixels,
    respond_with_scores,
    service,
    v2,
)

pytestmark = pytest.mark.usefixtures("answer_cache")


@pytest.fixture(scope="module")
def moderator(assets: Path) -> Model:
    """A real content moderator, run locally."""
    models = assets / "models"
    source = f"onnx:{models / 'nsfw_mobilenet_v2_mid.onnx'}?classes={models / 'nsfw.txt'}&interpolation=bilinear"
    return open_model(source, PLAIN)


@pytest.fixture(scope="module")
def behind_http(moderator: Model) -> Iterator[Server]:
    with Server(moderator, port=0) as server:
        yield server.start()


def moderator_mapping(folder: Path, request: str) -> str:
    names = "[drawing, hentai, neutral, porn, sexy]"
    (folder / "moderator.yaml").write_text(f"classes: {names}\nrequest: {request}\nresponse: {{scores: scores}}\n")
    return str(folder / "moderator.yaml")


def test_a_real_moderator_gives_the_same_scores_by_every_protocol(
    moderator: Model, behind_http: Server, photographs: torch.Tensor, tmp_path: Path
) -> None:
    expected = moderator.predict(photographs)
    by_protocol = open_model(behind_http.url, PLAIN)
    assert by_protocol.name == behind_http.url.removeprefix("http://")
    assert by_protocol.classes == moderator.classes and by_protocol.preprocess == moderator.preprocess
    assert torch.allclose(by_protocol.predict(photographs), expected, atol=1e-5)
    for request in ("{body: raw}", "{body: multipart}", "{body: base64}"):
        options = {"source": f"{behind_http.url}/predict", "mapping": moderator_mapping(tmp_path, request)}
        found = open_model(options, PLAIN).predict(photographs)
        assert torch.allclose(found, expected, atol=1e-5), request
    options["mapping"] = moderator_mapping(tmp_path, "{body: raw, format: jpeg, quality: 98}")
    lossy = open_model(options, PLAIN).predict(photographs)
    assert torch.allclose(lossy, expected, atol=0.2) and not torch.allclose(lossy, expected, atol=1e-5)


def test_a_run_over_http_has_the_same_rows_as_a_local_one(
    moderator: Model, behind_http: Server, assets: Path, tmp_path: Path
) -> None:
    data = {"source": str(assets / "images" / "coco_val_128" / "images"), "limit": 4, "labels": "prediction"}
    lens = {"name": "profile", "operators": ["white_fog", "jpeg"], "levels": 2}
    url = f"{behind_http.url}/v2/models/{moderator.name}"
    execution = Execution(runtime="torch", shard=8)
    here = brinell.run(moderator, data, lens=lens, out=tmp_path / "here", execution=PLAIN, quiet=True)
    there = brinell.run(url, data, lens=lens, out=tmp_path / "there", execution=execution, quiet=True)
    columns = "operator, image, level, label, prediction, rank, correct, confidence, probability"
    query = f"select {columns} from rows order by all"
    ours, theirs = (run.rows(query).fetchall() for run in (here, there))
    assert len(ours) == 4 * 2 * 3
    assert [row[:7] for row in ours] == [row[:7] for row in theirs]
    assert np.allclose([row[7:] for row in ours], [row[7:] for row in theirs], atol=1e-5)
    queries = there.manifest["queries"][moderator.name]
    assert queries["sent"] == 3 + 4 + 4 * 2 * 2, "three plain images to probe it, then each image once"
    assert queries["cached"] >= 4, "clean images are sent once"


def test_images_are_sent_in_whole_grey_levels(tmp_path: Path) -> None:
    with listening(respond_with_scores) as server:
        images = pixels(8)
        service(server, tmp_path).predict(images)
        sent = {decode_image(body).tobytes() for body in server.requests}
    assert sent == {image.permute(1, 2, 0).contiguous().numpy().tobytes() for image in images}


def test_scores_are_in_the_order_of_the_images(tmp_path: Path) -> None:
    def slow_for_some(handler: Handler, body: bytes) -> Any:
        time.sleep(0.1 if handler.number % 2 else 0)
        return respond_with_scores(handler, body)

    with listening(slow_for_some) as server:
        assert torch.allclose(service(server, tmp_path).predict(pixels(6)), expected_scores(pixels(6)), atol=1e-6)


@pytest.mark.parametrize(
    ("datatype", "shape"),
    [
        ("UINT8", [-1, 32, 32, 3]),
        ("FP32", [-1, 3, 32, 32]),
        ("FP32", [4, 32, 32, 3]),
        ("FP32", [1, 3, -1, -1]),
        ("UINT8", [3, 32, 32]),
        ("BYTES", [-1]),
        ("BYTES", [-1, 1]),
    ],
)
def test_inputs_of_every_kind(datatype: str, shape: list[int]) -> None:
    sizes = []
    seen: set[bytes] = set()

    def answer(request: Any) -> Any:
        (tensor,) = request["inputs"]
        sizes.append(tensor["shape"])
        assert (tensor["name"], tensor["datatype"]) == ("x", datatype)
        if datatype == "BYTES":
            images = np.stack([decode_image(base64.b64decode(file)) for file in tensor["data"]])
        else:
            images = np.array(tensor["data"]).reshape(tensor["shape"])
            if datatype == "FP32":
                images = (images * 0.5 + 0.5) * 255
        images = images.reshape(-1, *images.shape[-3:]).round().astype(np.uint8)
        planes = images if images.shape[1] == 3 else images.transpose(0, 3, 1, 2)
        seen.update(image.tobytes() for image in planes)
        scores = [list(light_or_dark(image).values()) for image in images]
        return {"outputs": [{"name": "other", "data": []}, {"name": "y", "shape": [len(images), 2], "data": scores}]}

    with listening(v2({"name": "x", "datatype": datatype, "shape": shape}, answer)) as server:
        url = server.url.replace("/predict", "/v2/models/m")
        model = open_model(f"{url}#size=32&output=y&mean=0.5&std=0.5", PLAIN)
        assert (model.name, model.outputs, model.probabilities) == ("m", 2, True)
        assert torch.allclose(model.predict(pixels(5)), expected_scores(pixels(5)), atol=1e-4)
    assert {image.numpy().tobytes() for image in pixels(5)} <= seen
    for size in sizes:
        assert all(wanted in (-1, found) for wanted, found in zip(shape, size, strict=True)), "as in the metadata"


def test_a_tensor_server_that_needs_a_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("API_TOKEN", SECRET)
    (tmp_path / "m.yaml").write_text(
        "protocol: v2\nrequest: {headers: {X-Key: '${API_TOKEN}'}}\ncalls: {batch: 2, concurrency: 1}\n"
    )

    def answer(request: Any) -> Any:
        return {"outputs": [{"name": "y", "data": [[3.0, 1.0]] * request["inputs"][0]["shape"][0]}]}

    with listening(v2({"name": "x", "datatype": "UINT8", "shape": [-1, 3, 32, 32]}, answer)) as server:
        model = open_model(f"{server.url.replace('/predict', '/v2/models/m')}#mapping={tmp_path / 'm.yaml'}")
        assert not model.probabilities, "logits are recognised"
        assert torch.allclose(model.predict(pixels(5)).sum(1), torch.ones(5))
        assert {headers.get("X-Key") for headers in server.headers} == {SECRET}
        shapes = [json.loads(body)["inputs"][0]["shape"][0] for body in server.requests if body]
    assert sorted(shapes) == [1, 1, 2, 2, 2], "three plain images and five, two at a time"


def respond_with_label(handler: Handler, body: bytes) -> Any:
    scores = light_or_dark(decode_image(body))
    return {"label": max(scores, key=lambda name: scores[name])}


def test_a_service_that_returns_only_labels(greys: Path, tmp_path: Path) -> None:
    with listening(respond_with_label) as server:
        model = service(server, tmp_path, "labels: label")
        assert not model.scores
        run = brinell.run(model, greys, lens=LENS, out=tmp_path / "run", execution=PLAIN, quiet=True)
        sent = len(server.requests)
        for criterion in ("confident_misclassification(0.5)", "misclassification & top_k_misclassification(2)"):
            with pytest.raises(ConfigError, match="needs scores, but model service returns labels alone"):
                brinell.run(model, greys, lens={**LENS, "criterion": criterion}, out=tmp_path / "other", quiet=True)
        assert len(server.requests) == sent
    unknown = run.rows("select count(*), count(confidence), count(rank), count(probability) from rows").fetchall()
    assert unknown == [(12 * 2 * 4, 0, 0, 0)], "unknown values are null"
    assert run.rows("select count(confidence) from clean").fetchall() == [(0,)]
    assert run.rows("select avg(correct::int) from rows where level = 3 and operator like 'fade%'").fetchall()[0][0] < 1
    assert "service is right on" in run.summary().verdict("service")
    assert json.dumps(run.summary().to_json(), allow_nan=False)
    assert "None" not in Path(run.report()).read_text().partition("<summary>manifest")[0]
