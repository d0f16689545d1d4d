"""ONNX files give the scores that onnxruntime gives by itself, on real networks and photographs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnxruntime
import pytest
import torch
from PIL import Image

import brinell
from conftest import PLAIN

CLASSIFIERS = {"mobilenet_v2": 224, "squeezenet1_1": 224, "mobilenet_v1_075_192": 192, "cifar10_resnet20": 32}


def photographs(assets: Path, side: int, count: int = 4) -> list[np.ndarray]:
    files = sorted((assets / "images" / "imagenet_dev_300").glob("*.png"))[:count]
    return [np.array(Image.open(file).convert("RGB").resize((side, side), Image.Resampling.BICUBIC)) for file in files]


def alone(file: Path, images: list[np.ndarray]) -> list[np.ndarray]:
    """What onnxruntime returns for images in [0, 1], one by one."""
    session = onnxruntime.InferenceSession(str(file), providers=["CPUExecutionProvider"])
    given = [image.astype(np.float32).transpose(2, 0, 1)[None] / 255 for image in images]
    parts = [session.run(None, {session.get_inputs()[0].name: each}) for each in given]
    return [np.concatenate(each) for each in zip(*parts, strict=True)]


@pytest.mark.parametrize("name", CLASSIFIERS)
def test_classifiers(name: str, assets: Path) -> None:
    file, side = assets / "models" / f"{name}.onnx", CLASSIFIERS[name]
    images = photographs(assets, side)
    (logits,) = alone(file, images)
    model = brinell.open_model(f"onnx:{file}", PLAIN)
    inputs = torch.stack([model.preprocess.model_input(torch.from_numpy(each).permute(2, 0, 1)) for each in images])
    expected = torch.from_numpy(logits).softmax(1)
    torch.testing.assert_close(model.predict(inputs), expected, atol=1e-5, rtol=0)
    assert len(set(expected.argmax(1).tolist())) > 1, "photographs of several classes"


@pytest.mark.parametrize(("name", "side"), [("yolo_fastest_1.1_coco", 320), ("ssdlite_mobilenet_v2_coco", 300)])
def test_detectors(name: str, side: int, assets: Path) -> None:
    """A class's score is that of its best box."""
    file = assets / "models" / f"{name}.onnx"
    images = photographs(assets, side)
    boxes, scores = alone(file, images)
    model = brinell.open_model(f"onnx:{file}?task=detection&classes={assets / 'models' / 'coco80.txt'}", PLAIN)
    inputs = torch.stack([model.preprocess.model_input(torch.from_numpy(each).permute(2, 0, 1)) for each in images])
    found, detections = model.answer(inputs)
    best = torch.from_numpy(scores).amax(1)
    kept = best >= 0.3  # what counts as found; at most 100 boxes are kept, the best
    assert int(kept.sum()) >= len(images)
    torch.testing.assert_close(found[kept], best[kept], atol=1e-5, rtol=0)
    assert detections is not None
    for place in range(len(images)):
        anchor, label = divmod(int(scores[place].argmax()), scores.shape[2])
        assert int(detections.labels[place, 0]) == label
        expected = torch.from_numpy(boxes[place, anchor]) * side
        torch.testing.assert_close(detections.boxes[place, 0], expected, atol=1e-2, rtol=0)
