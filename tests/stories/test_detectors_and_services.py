"""With an ONNX detector, with labels and without, and with a classifier behind a REST service."""

from __future__ import annotations

import base64
import io
import json
import re
import shutil
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from story import Story

import brinell
from services import Handler, listening

ort = pytest.importorskip("onnxruntime", reason="needs onnxruntime: make test-all")


def onnx_inputs(image: Image.Image, side: int) -> np.ndarray:
    """Return an image as the input of a network that takes RGB in [0, 1]: stretched, (1, 3, side, side)."""
    resized = image.convert("RGB").resize((side, side), Image.Resampling.BICUBIC)
    return np.asarray(resized, dtype=np.float32).transpose(2, 0, 1)[None] / 255


# ---- a YOLO-family file, and annotated images ----


@pytest.mark.slow
def test_an_onnx_detector(assets: Path, tmp_path: Path) -> None:
    (tmp_path / "yolo.onnx").symlink_to(assets / "models" / "yolo_fastest_1.1_coco.onnx")
    (tmp_path / "coco.txt").symlink_to(assets / "models" / "coco80.txt")
    (tmp_path / "coco").symlink_to(assets / "images" / "coco_val_128")
    story = Story("an ONNX detector of the YOLO family", tmp_path)
    assert "onnx:FILE" in story.type("brinell ls models")
    told = story.type(
        "brinell run --model 'onnx:yolo.onnx?task=detection&classes=coco.txt' --data coco/instances.json --limit 16 "
        "--preferred person --operator noise --levels 8 --out runs/yolo",
        attempt=True,
    )
    story.correct()
    assert "warning" not in told, told

    run = brinell.Run(tmp_path / "runs" / "yolo")
    assert run.rows("select count(*) from rows where correct and level = 0").fetchall()[0][0] > 0
    session = ort.InferenceSession(assets / "models" / "yolo_fastest_1.1_coco.onnx")
    names = run.rows("select distinct name, correct from clean join samples using (index)").fetchall()
    for name, correct in names:
        _, scores = session.run(None, {"images": onnx_inputs(Image.open(tmp_path / "coco" / "images" / name), 320)})
        assert bool(scores[0, :, 0].max() >= 0.3) == correct, f"{name}: a person's best box, as onnxruntime itself finds it"

    story.type("brinell report runs/yolo")
    page = (tmp_path / "runs" / "yolo" / "report.html").read_text(encoding="utf-8")
    assert "data:image/jpeg" in page and "person" in page
    story.type("brinell curate runs/yolo -o failures")
    assert (tmp_path / "failures").is_dir()
    story.record()


# ---- NudeNet's file from its package, and photographs without labels ----


@pytest.mark.slow
def test_nudenet_and_photographs_without_labels(assets: Path, nudenet: Path, tmp_path: Path) -> None:
    (tmp_path / "320n.onnx").symlink_to(nudenet)
    session = ort.InferenceSession(nudenet)
    classes = tuple(eval(session.get_modelmeta().custom_metadata_map["names"]).values())
    (tmp_path / "classes.txt").write_text("\n".join(classes))
    (tmp_path / "photos").mkdir()
    for file in sorted((assets / "images" / "coco_val_128" / "images").iterdir())[:14]:
        shutil.copy(file, tmp_path / "photos")
    best = {}
    for file in sorted((tmp_path / "photos").iterdir()):
        (output,) = session.run(None, {"images": onnx_inputs(Image.open(file), 320)})
        scores = output[0, 4:].max(1)
        best[file.name] = int(scores.argmax()) if scores.max() >= 0.3 else None
    assert 1 <= sum(one is not None for one in best.values()) < len(best)

    story = Story("NudeNet's detector and photographs without labels", tmp_path)
    model = "'onnx:320n.onnx?task=detection&box_format=cxcywh&box_units=pixels&classes=classes.txt&size=320&resize=stretch'"
    told = story.type(
        f"brinell run --model {model} --data photos/ --labels prediction --operator jpeg --levels 3 --out runs/nudenet",
        attempt=True,
    )
    story.correct()
    assert "warning" not in told, told
    run = brinell.Run(tmp_path / "runs" / "nudenet")
    rows = run.rows("select distinct name, clean.label from clean join samples using (index) where kept").fetchall()
    assert dict(rows) == {name: label for name, label in best.items() if label is not None}
    assert run.rows("select bool_and(correct) from rows where level = 0").fetchall() == [(True,)]
    story.type("brinell report runs/nudenet")
    story.record()


# ---- a service of one's own ----


@pytest.mark.slow
def test_a_service_behind_http(assets: Path, tmp_path: Path) -> None:
    """A moderator's REST service; its answers are those of its network."""
    session = ort.InferenceSession(assets / "models" / "nsfw_mobilenet_v2_mid.onnx")
    names = (assets / "models" / "nsfw.txt").read_text().split()
    lock = threading.Lock()

    def answer(image: Image.Image) -> dict[str, float]:
        with lock:
            (logits,) = session.run(None, {"images": onnx_inputs(image, 224)})
        odds = np.exp(logits[0] - logits[0].max())
        return dict(zip(names, (odds / odds.sum()).tolist(), strict=True))

    def respond(handler: Handler, body: bytes) -> Any:
        content = base64.b64decode(json.loads(body)["image"])
        scores = answer(Image.open(io.BytesIO(content)))
        return {"predictions": [{"label": name, "score": score} for name, score in scores.items()]}

    (tmp_path / "photos").mkdir()
    files = sorted((assets / "images" / "imagenet_dev_300").glob("*.png"))[:6]
    for file in files:
        shutil.copy(file, tmp_path / "photos")
    (tmp_path / "service.yaml").write_text(
        'request:\n  body: base64\n  template: {image: "{image}"}\n'
        f"classes: [{', '.join(names)}]\n"
        "response:\n  labels: predictions[].label\n  scores: predictions[].score\n"
        "calls: {price: 0.001, currency: USD}\n"
    )
    story = Story("a service behind HTTP", tmp_path)
    with listening(respond) as server:
        model = f"'{server.url}#mapping=service.yaml&size=224'"
        given = f"--model {model} --data photos/ --labels prediction --operator jpeg --levels 2"
        planned = story.type(f"brinell plan {given}")
        assert not server.requests, "a plan sends nothing"
        told = story.type(f"brinell run {given} --max-queries 100 --out runs/service", attempt=True)
        story.correct()
        sent = len(server.requests)
        queries = re.search(r"(\d+) queries", planned)
        assert queries is not None and sent <= int(queries[1]), planned
        story.type(f"brinell run {given} --max-queries 100 --out runs/service")
        assert len(server.requests) == sent, "nothing is paid for twice"
    assert "JPEG" in told
    run = brinell.Run(tmp_path / "runs" / "service")
    clean = run.rows("select name, prediction, confidence from clean join samples using (index)").fetchall()
    for name, prediction, confidence in clean:
        scores = answer(Image.open(tmp_path / "photos" / name))
        assert names[prediction] == max(scores, key=lambda one: scores[one])
        assert confidence == pytest.approx(max(scores.values()), abs=1e-3)
    story.type("brinell summary runs/service")
    story.record()
