"""Detectors behind HTTP, and services without an answer for some images."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import brinell
from brinell.classes import Classes
from brinell.config.execution import Execution
from brinell.errors import ConfigError, ServiceError
from brinell.models.model import Model
from brinell.models.remote.detections import read_objects
from brinell.models.remote.mapping import ResponseOptions
from brinell.models.remote.protocol import encode_image
from brinell.models.sources import open_model
from brinell.serve.server import Server
from conftest import PLAIN
from services import (
    LENS,
    Handler,
    decode_image,
    expected_scores,
    listening,
    mapping,
    pixels,
    respond_with_scores,
    service,
)

pytestmark = pytest.mark.usefixtures("answer_cache")

OBJECTS = "response: {labels: 'objects[].label', scores: 'objects[].score', boxes: 'objects[].box'}"


@pytest.fixture(scope="module")
def detector(assets: Path) -> Model:
    """A real detector, run locally."""
    models = assets / "models"
    options = f"task=detection&classes={models / 'coco80.txt'}&interpolation=bilinear"
    return open_model(f"onnx:{models / 'yolo_fastest_1.1_coco.onnx'}?{options}", PLAIN)


@pytest.fixture(scope="module")
def behind_http(detector: Model) -> Iterator[Server]:
    with Server(detector, port=0) as server:
        yield server.start()


@pytest.fixture(scope="module")
def scenes(assets: Path, detector: Model) -> Tensor:
    data = brinell.open_dataset(str(assets / "images" / "coco_val_128" / "instances.json"))
    return torch.stack([detector.preprocess.model_input(data[index].image) for index in range(4)])


def by_mapping(folder: Path, server: Server, classes: Path, response: str = OBJECTS) -> Model:
    path = folder / "objects.yaml"
    path.write_text(f"request: {{body: raw}}\n{response}\n")
    source = {"source": f"{server.url}/predict", "mapping": str(path), "size": 320, "classes": str(classes)}
    return open_model({**source, "interpolation": "bilinear"}, PLAIN)


@pytest.mark.parametrize("way", ["v2", "mapping"])
def test_a_real_detector_finds_the_same_over_http(
    way: str, detector: Model, behind_http: Server, scenes: Tensor, assets: Path, tmp_path: Path
) -> None:
    if way == "v2":
        model = open_model(f"{behind_http.url}/v2/models/{detector.name}", PLAIN)
    else:
        model = by_mapping(tmp_path, behind_http, assets / "models" / "coco80.txt")
    assert model.detector is not None and model.classes is not None and len(model.classes) == 80
    scores, found = model.answer(scenes)
    expected, here = detector.answer(scenes)
    assert found is not None and here is not None and bool((here.scores > 0.5).any())
    torch.testing.assert_close(scores, expected, rtol=1e-5, atol=1e-6)
    there = here.labels >= 0
    assert torch.equal(found.labels[:, : there.shape[1]][there], here.labels[there])
    torch.testing.assert_close(found.boxes[:, : there.shape[1]][there], here.boxes[there], rtol=1e-4, atol=1e-2)


@pytest.mark.slow
def test_a_run_over_http_has_the_same_rows_as_a_local_one(
    detector: Model, behind_http: Server, assets: Path, tmp_path: Path
) -> None:
    data = {"source": str(assets / "images" / "coco_val_128" / "instances.json"), "limit": 2, "min_area": 0.05}
    lens = {"name": "knob", "operators": ["rotation", "contrast"], "search": "bracket", "points": 60}
    rows = []
    for number, model in enumerate((detector, open_model(f"{behind_http.url}/v2/models/{detector.name}", PLAIN))):
        run = brinell.run(model, data, lens=lens, out=tmp_path / str(number), execution=PLAIN, quiet=True)
        query = "select operator, image, direction, status, level, prediction from rows order by all"
        rows.append(run.rows(query).fetchall())
    assert rows[0] == rows[1] and any(row[3] == "broken" for row in rows[0])


def test_boxes_are_in_the_pixels_of_the_file(detector: Model, behind_http: Server, assets: Path) -> None:
    import urllib3

    sample = brinell.open_dataset(str(assets / "images" / "coco_val_128" / "instances.json"))[0]
    height, width = sample.image.shape[1:]
    file = encode_image(sample.image.numpy(), brinell.models.remote.mapping.RequestOptions())
    answer = urllib3.PoolManager().request("POST", f"{behind_http.url}/predict", body=file)
    objects = json.loads(answer.data)["objects"]
    best = objects[0]
    _, here = detector.answer(detector.preprocess.model_input(sample.image)[None])
    assert here is not None
    scale = torch.tensor([width, height, width, height]) / 320
    torch.testing.assert_close(torch.tensor(best["box"]), here.boxes[0, 0] * scale, rtol=1e-4, atol=1e-2)
    assert set(best) == {"label", "score", "box"}


CLASSES = Classes(("cat", "dog", "other"))


@pytest.mark.parametrize(
    ("options", "answer", "expected"),
    [
        (
            {"labels": "o[].n", "scores": "o[].s", "boxes": "o[].b"},
            {"o": [{"n": "dog", "s": 0.5, "b": [1, 2, 3, 4]}]},
            [([1, 2, 3, 4], 1, 0.5)],
        ),
        (
            {"labels": "n", "scores": "s", "boxes": ["l", "t", "r", "b"], "scale": 0.01},
            {"n": ["cat", "dog"], "s": [90, 20], "l": [0, 1], "t": [2, 3], "r": [4, 5], "b": [6, 7]},
            [([0, 2, 4, 6], 0, 0.9), ([1, 3, 5, 7], 1, 0.2)],
        ),
        (
            {"labels": "n", "boxes": "b", "rest": "other"},
            {"n": ["cow"], "b": [[0, 0, 1, 1]]},
            [([0, 0, 1, 1], 2, 1.0)],
        ),
        ({"labels": "n", "boxes": "b"}, {"n": [], "b": []}, []),
    ],
)
def test_objects_in_responses_of_every_shape(options: Any, answer: Any, expected: list[Any]) -> None:
    boxes, labels, scores = read_objects(answer, ResponseOptions(**options), CLASSES)
    found = list(zip(boxes.tolist(), labels.tolist(), scores.tolist(), strict=True))
    assert found == [(box, label, pytest.approx(score)) for box, label, score in expected]


@pytest.mark.parametrize(
    ("answer", "part"),
    [
        ({"n": ["cow"], "b": [[0, 0, 1, 1]]}, "names 'cow', which is not one of the mapping's classes"),
        ({"n": ["cat"], "b": []}, "has 1 labels, 0 boxes"),
        ({"n": ["cat"], "b": [[0, 0, 1]]}, "four numbers for each box"),
        ({"n": "cat", "b": [[0, 0, 1, 1]]}, "should have a list at 'n'"),
    ],
)
def test_responses_that_do_not_fit_raise(answer: Any, part: str) -> None:
    with pytest.raises(ServiceError, match=part):
        read_objects(answer, ResponseOptions(labels="n", boxes="b"), CLASSES)


def test_mappings_of_detectors_that_can_t_be_used(tmp_path: Path) -> None:
    path = tmp_path / "m.yaml"
    path.write_text("classes: [a, b]\nresponse: {scores: s}\n")
    with pytest.raises(ConfigError, match=r"needs a path to boxes \(response.boxes\)"):
        open_model(f"http://127.0.0.1:9/x#task=detection&mapping={path}")
    path.write_text("classes: [a, b]\nresponse: {scores: s, boxes: b}\n")
    with pytest.raises(ConfigError, match="boxes need a path to their labels"):
        open_model(f"http://127.0.0.1:9/x#mapping={path}")


# ---- images without an answer ----


def too_dark(handler: Handler, body: bytes) -> Any:
    """Refuse dark images."""
    return (
        handler.send(422, b'{"error": "too dark"}')
        if decode_image(body).mean() < 60
        else respond_with_scores(handler, body)
    )


def test_some_images_may_remain_without_an_answer(tmp_path: Path) -> None:
    images = pixels(5)
    dark = images.float().mean((1, 2, 3)) < 60
    assert 0 < int(dark.sum()) < 5
    with listening(too_dark) as server:
        model = service(server, tmp_path, "", f"failures: {2 * int(dark.sum())}, concurrency: 1")
        first = model.predict(images.flip(0))  # the light ones first: an answer's shape is known
        assert torch.equal(first.isnan().all(1), dark.flip(0))
        assert torch.allclose(first[~dark.flip(0)], expected_scores(images.flip(0))[~dark.flip(0)], atol=1e-6)
        assert model.service is not None and model.service.unanswered == int(dark.sum())
        sent = len(server.requests)
        model.predict(images)
        assert len(server.requests) == sent + int(dark.sum()), "only images without an answer are sent again"
        with pytest.raises(ServiceError, match=r"responded with status 422 \(too dark\)"):
            model.predict(images // 4)


@pytest.mark.slow
def test_a_search_counts_them_as_failed_and_continues(greys: Path, tmp_path: Path) -> None:
    """Brightness goes both ways: down to where the service refuses, and up to where it breaks."""
    with listening(too_dark) as server:
        path = mapping(tmp_path, "", "failures: 1000, concurrency: 2")
        options = {"source": server.url, "mapping": str(path), "size": 32, "name": "fussy"}
        lens = {"name": "knob", "operators": ["brightness"], "points": 20}
        data = {"source": str(greys), "labels": "prediction"}
        run = brinell.run(options, data, lens=lens, out=tmp_path / "run", execution=PLAIN, quiet=True)
        statuses = dict(run.rows("select status, count(*) from rows group by all").fetchall())
        assert statuses.get("failed", 0) > 0 and len(statuses) > 1
        queries = run.manifest["queries"]["fussy"]
        assert queries["unanswered"] > 0
        profile = brinell.run(options, data, lens=LENS, out=tmp_path / "profile", execution=PLAIN, quiet=True)
        rows = profile.rows(
            "select level, count(*) from rows where operator like 'fade%' group by all order by all"
        ).fetchall()
        assert rows[0][1] > rows[-1][1], "an image without an answer has no row"
        assert profile.rows("select count(*) from rows where isnan(confidence)").fetchall() == [(0,)]


def test_a_batch_with_a_refused_image_is_sent_one_by_one(tmp_path: Path) -> None:
    def answer(handler: Handler, body: bytes) -> Any:
        if handler.command == "GET":
            entry = {"name": "x", "datatype": "UINT8", "shape": [-1, 3, 8, 8]}
            return {"name": "m", "inputs": [entry], "outputs": [{"name": "y"}]}
        tensor = json.loads(body)["inputs"][0]
        images = torch.tensor(tensor["data"], dtype=torch.float32).reshape(tensor["shape"])
        light = images.mean((1, 2, 3)) / 255
        if bool((light > 0.95).any()):
            return handler.send(413, b"")
        return {"outputs": [{"name": "y", "data": torch.stack([light, 1 - light], 1).tolist()}]}

    with listening(answer) as server:
        (tmp_path / "v2.yaml").write_text("protocol: v2\ncalls: {failures: 1, concurrency: 1, batch: 4}\n")
        url = server.url.replace("/predict", "/v2/models/m")
        model = open_model({"source": url, "mapping": str(tmp_path / "v2.yaml")}, Execution())
        images = torch.full((4, 3, 8, 8), 100, dtype=torch.uint8)
        images[2] = 255
        assert model.predict(images)[:, 0].isnan().tolist() == [False, False, True, False]
