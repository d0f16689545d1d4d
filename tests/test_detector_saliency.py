"""Where a detector looks: maps of a box's score, which follow motions and windows. On a real YOLO and real photographs."""

from __future__ import annotations

import importlib.util
import io
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image
from torch import Tensor, nn

import brinell
from brinell import Execution
from brinell.models.detection import BoxScores
from brinell.models.model import Model
from brinell.saliency.findings import SaliencyFindings
from brinell.saliency.layers import NoSaliency
from brinell.saliency.mapper import open_mapper
from brinell.saliency.pairs import read_pairs
from brinell.saliency.sheets import draw_boxes
from brinell.saliency.targets import select_boxes
from conftest import PLAIN
from test_detector_pictures import Convolved, count_blue
from test_detectors import CLASSES, wrapped
from test_real_detectors import detector_source

YOLO = "yolo_fastest_1.1_coco"
EAGER = Execution(device="cpu", runtime="torch")


@pytest.fixture(scope="module")
def yolo(assets: Path) -> Model:
    spec = importlib.util.spec_from_file_location("nets", assets / "models" / "nets.py")
    assert spec is not None and spec.loader is not None
    nets = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(nets)
    module, (_, *size), classes = nets.load(YOLO)
    return brinell.wrap(module, size=tuple(size), classes=classes, name="yolo", detection={}, execution=EAGER)


@pytest.fixture(scope="module")
def photographs(yolo: Model, assets: Path) -> Tensor:
    dataset = brinell.open_dataset(assets / "images" / "coco_val_128" / "instances.json")
    return torch.stack([yolo.preprocess.model_input(dataset[index].image) for index in range(12)])


def share_inside(maps: Tensor, boxes: Tensor) -> Tensor:
    """The share of each map's heat that lies in its box."""
    rows, columns = (torch.arange(side) + 0.5 for side in maps.shape[1:])
    left, top, right, bottom = (edge[:, None] for edge in boxes.unbind(1))
    inside = ((rows > top) & (rows < bottom))[:, :, None] & ((columns > left) & (columns < right))[:, None, :]
    return (maps * inside).sum((1, 2)) / maps.sum((1, 2))


def test_maps_of_a_box_are_odams_formula(yolo: Model, photographs: Tensor) -> None:
    """The network cut in two by hand: the heads' shared maps, and the score of the best box of a class."""
    assert yolo.internals is not None
    net: Any = yolo.internals.module
    classes = yolo.predict(photographs).argmax(1)
    with open_mapper(yolo) as mapper:
        assert (mapper.layer.name, mapper.method) == ("merge", "odam"), "both heads depend on it"
        maps, boxes = mapper.box_maps(photographs, classes)
    sizes = set()
    for index in range(4):
        image = yolo.preprocess.normalise(photographs[index : index + 1])
        with torch.no_grad():
            fine = net.fine(net.stem(image))
            coarse = net.coarse(fine)
            pooled = [nn.functional.max_pool2d(coarse, k, 1, k // 2) for k in (9, 5, 3)]
            shared = net.merge(torch.cat([*pooled, coarse], 1))
        shared.requires_grad_()
        up = nn.functional.interpolate(shared, scale_factor=2.0, mode="nearest")
        heads = [net.decode(net.head32(shared), 32), net.decode(net.head16(torch.cat([up, fine], 1)), 16)]
        places = torch.cat([own for own, _ in heads], 1)[0]
        scores = torch.cat([each for _, each in heads], 1)[0, :, classes[index]]
        best = int(scores.argmax())
        sizes.add(best < heads[0][0].shape[1])
        gradient = torch.autograd.grad(scores[best].log(), shared)[0]
        small = (gradient * shared).sum(1).clamp(min=0).detach()
        expected = nn.functional.interpolate((small / small.max())[None], (320, 320), mode="bilinear")[0, 0]
        assert torch.allclose(maps[index], expected, atol=1e-4)
        assert torch.allclose(boxes[index], places[best].detach() * 320, atol=1e-2)
    assert sizes == {True, False}, "boxes of both heads were compared"


@pytest.mark.slow
def test_a_real_detector_looks_at_its_object(yolo: Model, photographs: Tensor) -> None:
    classes = yolo.predict(photographs).argmax(1)
    inside = {}
    for method in ("odam", "gradcam"):
        with open_mapper(yolo, method) as mapper:  # type: ignore[arg-type]
            inside[method] = share_inside(*mapper.box_maps(photographs, classes))
    assert float(inside["odam"].min()) > 0.4 and float(inside["odam"].median()) > 0.8
    assert float(inside["odam"].median()) > float(inside["gradcam"].median()), "which also shows other objects of the class"


def test_the_box_is_that_of_the_same_object() -> None:
    left, right = [0.0, 0, 10, 10], [50.0, 0, 60, 10]
    scores = torch.tensor([[[0.0, 0.9], [0.0, 0.2]]], requires_grad=True)
    found, one = BoxScores(torch.tensor([[left, right]]), scores, None), torch.tensor([1])

    def chosen(near: list[float] | None, boxes: BoxScores = found) -> tuple[float, list[float]]:
        value, box = select_boxes(boxes, one, None if near is None else torch.tensor([near]), 100, 100)
        return float(value.detach().exp()), box[0].tolist()

    assert chosen(None) == (pytest.approx(0.9), left), "the best of the class"
    assert chosen([48.0, 0, 58, 10]) == (pytest.approx(0.2), right), "a lower score, but where the object is now"
    assert chosen([50.0, -40, 60, 10]) == (pytest.approx(0.2), right), "a part has left the image"
    value, box = select_boxes(found, one, torch.tensor([[20.0, 50, 30, 60]]), 100, 100)
    assert bool(box.isnan().all()) and float(torch.autograd.grad(value.sum(), scores)[0].abs().sum()) == 0, "lost"
    listed = BoxScores(found.boxes, torch.tensor([[0.9, 0.2]]), torch.tensor([[0, 1]]))
    assert chosen(None, listed) == (pytest.approx(0.2), right), "the other box has another label"
    empty = BoxScores(torch.zeros(1, 0, 4), torch.zeros(1, 0), torch.zeros(1, 0, dtype=torch.int64))
    assert select_boxes(empty, one, None, 100, 100)[1].isnan().all()


class ListedConvolved(Convolved):
    """Boxes, labels and scores per image, as in torchvision: labels have no gradient, a box's score has."""

    def forward(self, images: Any) -> Any:
        boxes, scores = super().forward(images)
        ones = torch.ones(boxes.shape[1], dtype=torch.int64)
        return [{"boxes": own * 32, "labels": ones, "scores": each[:, 1]} for own, each in zip(boxes, scores, strict=True)]


def test_detectors_that_return_labels_have_maps_too() -> None:
    images = torch.full((1, 3, 32, 32), 20, dtype=torch.uint8)
    images[:, :, 8:16, 24:32] = 250
    model = brinell.wrap(ListedConvolved(), size=32, classes=CLASSES, name="listed", detection={}, execution=PLAIN)
    for each in (model, wrapped(Convolved())):
        with open_mapper(each) as mapper:
            maps, boxes = mapper.box_maps(images, torch.tensor([1]))
        assert mapper.layer.name == "mean" and boxes[0].tolist() == [24, 8, 32, 16]
        row, column = divmod(int(maps[0].argmax()), 32)
        assert 8 <= row < 16 and 24 <= column < 32


def test_an_onnx_detector_is_refused_in_one_line(assets: Path, yolo: Model, tmp_path: Path) -> None:
    onnx = brinell.open_model(detector_source(assets, YOLO, "&name=exported"))
    with pytest.raises(NoSaliency, match=r"^it is not a torch model, so it has no gradients$"):
        open_mapper(onnx)
    with pytest.raises(NoSaliency, match=r"no layer 'mergee'.*merge"):
        open_mapper(yolo, layer="mergee")


@pytest.mark.slow
def test_saliency_follows_motions_and_windows(yolo: Model, assets: Path, tmp_path: Path) -> None:
    data = {"source": str(assets / "images" / "coco_val_128" / "instances.json"), "limit": 4}
    lenses = [
        {"name": "knob", "operators": ["horizontal_translation"], "points": 8},
        {"name": "geometry", "operators": ["translation"], "methods": ["grid"], "grid_motions": 9},
        {"name": "fragility", "operators": ["windows"], "sizes": [0.5], "stride": 80},
    ]
    given: dict[str, Any] = {"select": "correct", "out": tmp_path / "run", "execution": PLAIN, "quiet": True}
    run = brinell.run(yolo, data, lens=lenses, saliency={"pairs": 4}, **given)
    pairs = read_pairs(run)
    assert {pair.lens for pair in pairs} >= {"knob", "fragility"}
    for pair in pairs:
        assert re.search(r" [01]\.\d\d$", pair.clean_marks[0].text), "boxes with labels and scores"
        sheet = draw_boxes(run.store.read(*pair.file.split("/")), (pair.clean_marks, pair.marks))
        assert count_blue(Image.open(io.BytesIO(sheet))) > 300
    moved = run.rows("select avg(overlap) from saliency where lens = 'knob' and not failed").fetchall()[0][0]
    assert moved > 0.3, "clean maps move with the image, which by then is half out of the frame"
    assert "ODAM" in Path(run.report()).read_text()


def test_a_run_says_that_an_onnx_detector_has_no_maps(assets: Path, tmp_path: Path) -> None:
    data = {"source": str(assets / "images" / "coco_val_128" / "instances.json"), "limit": 2}
    lens = {"name": "profile", "operators": ["fade_black"], "levels": 1}
    source = detector_source(assets, YOLO, "&name=exported")
    run = brinell.run(source, data, lens=lens, saliency={"pairs": 1}, out=tmp_path / "run", execution=PLAIN, quiet=True)
    found = run.findings()["saliency"]
    assert isinstance(found, SaliencyFindings)
    assert found.verdict("exported") == "exported has no saliency maps: it is not a torch model, so it has no gradients."
