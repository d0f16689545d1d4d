"""Real exports of the YOLO family: metadata, letterbox and boxes as the exporter's own predictor uses them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

import brinell
from brinell.models.model import Model

REFERENCE = Path(__file__).parent / "golden" / "nudenet_by_ultralytics.json"
WIDTH, HEIGHT, SIDE = 320, 240, 320  # of photographs, which need bars and no resize, and of the model input
BAR = (SIDE - HEIGHT) // 2


def photograph(assets: Path, name: str) -> Image.Image:
    """The centre of a photograph, at its own resolution."""
    image = Image.open(assets / "images" / "coco_val_128" / "images" / f"{name}.jpg").convert("RGB")
    left, top = (image.width - WIDTH) // 2, (image.height - HEIGHT) // 2
    return image.crop((left, top, left + WIDTH, top + HEIGHT))


def detect(model: Model, image: Image.Image) -> tuple[Tensor, Tensor, Tensor]:
    """Boxes in pixels of the photograph, labels and scores."""
    pixels = torch.from_numpy(np.asarray(image).copy()).permute(2, 0, 1)
    _, detections = model.answer(model.preprocess.model_input(pixels)[None])
    assert detections is not None and model.detector is not None
    found = model.detector.found(detections)
    kept = found.labels[0] >= 0
    boxes = (found.boxes[0][kept] - torch.tensor([0.0, BAR, 0, BAR])).clamp(min=0)
    boxes = torch.minimum(boxes, torch.tensor([WIDTH, HEIGHT, WIDTH, HEIGHT]))
    return boxes, found.labels[0][kept], found.scores[0][kept]


@pytest.mark.slow
def test_a_deployed_yolo_finds_what_its_own_predictor_finds(nudenet: Path, assets: Path) -> None:
    model = brinell.open_model(f"onnx:{nudenet}")
    assert model.classes is not None and model.classes.names[:2] == ("FEMALE_GENITALIA_COVERED", "FACE_FEMALE")
    assert (model.preprocess.height, model.preprocess.width, model.preprocess.fill) == (SIDE, SIDE, 114)
    for name, expected in json.loads(REFERENCE.read_text())["photographs"].items():
        boxes, labels, scores = detect(model, photograph(assets, name))
        for box, label, score in zip(*(expected[key] for key in ("boxes", "labels", "scores")), strict=True):
            gaps = (boxes - torch.tensor(box)).abs().amax(1).masked_fill(labels != label, torch.inf)
            best = int(gaps.argmin())
            assert float(gaps[best]) < 0.05, (name, label, "a box of a twentieth of a pixel or nearer")
            assert float(scores[best]) == pytest.approx(score, abs=1e-3)
        extra = len(labels) - len(expected["labels"])  # a box counts for each of its classes; there, for the best one
        assert 0 <= extra <= 2, name


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["yolov8n", "yolo11n"])
def test_what_the_exporter_writes_is_read(kind: str, assets: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A network from its configuration, with random weights that find something."""
    ultralytics = pytest.importorskip(
        "ultralytics", reason="needs ultralytics (AGPL, no dependency): pip install ultralytics"
    )
    monkeypatch.chdir(tmp_path)
    photographs = [photograph(assets, name) for name in list(json.loads(REFERENCE.read_text())["photographs"])[:4]]
    yolo = untrained(ultralytics, kind, photographs)
    file = yolo.export(format="onnx", imgsz=(SIDE, SIDE), simplify=False)
    model = brinell.open_model(f"onnx:{file}")
    assert model.classes is not None and model.classes.names == ("ant", "bee", "cat")
    assert (model.preprocess.height, model.preprocess.width, model.preprocess.fill) == (SIDE, SIDE, 114)
    predictor, compared = ultralytics.YOLO(file, task="detect"), 0
    for image in photographs:
        given: dict[str, Any] = {"imgsz": SIDE, "conf": 0.3, "iou": 0.5, "rect": False, "verbose": False, "device": "cpu"}
        (theirs,) = predictor.predict(image, **given)
        boxes, labels, scores = detect(model, image)
        if not len(theirs.boxes):
            continue
        compared += 1  # the best box; of others, some are suppressed by boxes of their second class
        assert float(scores[0]) == pytest.approx(float(theirs.boxes.conf[0]), abs=1e-3)
        if float(scores[0] - scores[1:].amax()) > 1e-4 if len(scores) > 1 else True:
            assert int(labels[0]) == int(theirs.boxes.cls[0])
            torch.testing.assert_close(boxes[0], theirs.boxes.xyxy[0], atol=0.05, rtol=0)
    assert compared


def untrained(ultralytics: Any, kind: str, photographs: list[Image.Image]) -> Any:
    """A YOLO from its configuration, whose norms and class scores are fitted to some photographs."""
    from ultralytics.nn.tasks import DetectionModel

    inputs = torch.full((len(photographs), 3, SIDE, SIDE), 114 / 255)
    for place, image in enumerate(photographs):
        inputs[place, :, BAR:-BAR] = torch.from_numpy(np.asarray(image).copy()).permute(2, 0, 1) / 255
    yolo = ultralytics.YOLO(f"{kind}.yaml")
    with torch.random.fork_rng(), torch.no_grad():
        torch.manual_seed(0)
        net = DetectionModel(f"{kind}.yaml", nc=3, verbose=False).train()
        for part in net.modules():
            if isinstance(part, torch.nn.BatchNorm2d):
                part.momentum = 1.0
        net(inputs)
        net.eval()
        for head in net.model[-1].cv3:
            last = [part for part in head.modules() if isinstance(part, torch.nn.Conv2d)][-1]
            outputs: list[Tensor] = []
            hook = last.register_forward_hook(lambda part, given, output, outputs=outputs: outputs.append(output))
            net(inputs)
            hook.remove()
            scale = 3 / outputs[-1].std()
            plain = (outputs[-1] - last.bias[:, None, None]) * scale
            last.weight *= scale
            last.bias.copy_(-plain.mean((0, 2, 3)) - 9)
    net.args, net.task, net.pt_path, net.names = yolo.model.args, "detect", None, {0: "ant", 1: "bee", 2: "cat"}
    yolo.model = net
    return yolo
