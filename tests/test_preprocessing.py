"""Preprocessing: letterbox and BGR, what ONNX files say about themselves, warnings, and `brinell check`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper
from PIL import Image

import brinell
import shapes
from brinell.cli import sheet
from brinell.cli.main import main
from brinell.cli.sheet import draw_rows
from brinell.config.model import ModelOptions
from brinell.engine.renderer import Renderer
from brinell.errors import ConfigError, ModelError
from brinell.lenses.scenes import Move
from brinell.models.accuracy_check import advise_accuracy
from brinell.models.export import export
from brinell.models.options import select_preprocess
from brinell.models.preprocess import Preprocess
from brinell.motion.groups import GROUPS
from brinell.perturb.highlight import add_highlights, highlight_view
from brinell.perturb.motion import GIVEN, Motion
from brinell.serve.server import Server
from brinell.types import id_number, image_id
from conftest import PLAIN

# ---- letterbox and BGR ----


@pytest.mark.parametrize("size", [(30, 64), (64, 30), (47, 33), (10, 10)])
def test_a_letterbox_is_a_resize_and_bars(size: tuple[int, int]) -> None:
    height, width = size
    image = torch.randint(0, 256, (3, height, width), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    pre = Preprocess(32, 48, interpolation="bilinear", fill=114)
    scale = min(32 / height, 48 / width)
    tall, wide = round(height * scale), round(width * scale)
    inner = Image.fromarray(image.permute(1, 2, 0).numpy()).resize((wide, tall), Image.Resampling.BILINEAR)
    expected = Image.new("RGB", (48, 32), (114, 114, 114))
    left, top = (48 - wide) // 2, (32 - tall) // 2
    expected.paste(inner, (left, top))
    difference = pre.model_input(image).permute(1, 2, 0).numpy().astype(int) - np.asarray(expected)
    assert np.abs(difference).max() <= 1  # Pillow may resize rows or columns first
    whole = torch.tensor([[0.0, 0.0, width, height]])
    mapped = torch.tensor([[left, top, left + wide, top + tall]], dtype=torch.float32)
    assert torch.allclose(pre.map_boxes(whole, height, width), mapped, atol=1e-4)
    assert torch.allclose(pre.unmap_boxes(pre.map_boxes(whole, height, width), height, width), whole, atol=1e-4)


def test_bgr_is_the_last_step_and_can_be_undone() -> None:
    inputs = torch.randint(0, 256, (2, 3, 4, 5), dtype=torch.uint8)
    plain = Preprocess(4, 5, mean=(0.1, 0.2, 0.3), std=(0.5, 0.6, 0.7))
    swapped = Preprocess(4, 5, mean=(0.1, 0.2, 0.3), std=(0.5, 0.6, 0.7), bgr=True)
    assert torch.equal(swapped.normalise(inputs), plain.normalise(inputs).flip(1))
    assert torch.equal(swapped.denormalise(swapped.normalise(inputs)), inputs)


def test_options_of_the_resize() -> None:
    known = Preprocess(32, 32, short_side=40)
    select = lambda **options: select_preprocess(ModelOptions(source="x:y", **options), known)  # noqa: E731
    assert (select(resize="letterbox").fill, select(resize="letterbox").short_side) == (114, None)
    assert select(resize="letterbox", fill=0).fill == 0
    boxed = Preprocess(32, 32, fill=114)
    assert select_preprocess(ModelOptions(source="x:y", resize="stretch"), boxed).fill is None
    with pytest.raises(ConfigError, match="bgr needs three channels"):
        select(channels=1, bgr=True)


@pytest.mark.parametrize("lens", ["knob", "geometry", "fragility", "highlights"])
def test_lenses_under_a_letterbox(lens: str, tmp_path: Path) -> None:
    """Every lens finds the same clean answers; views and motions without change show the model input."""
    for index in range(3):
        Image.fromarray(np.full((20, 36, 3), 150 + 30 * index, np.uint8)).save(tmp_path / f"{index}.png")
    data = {"source": str(tmp_path), "labels": "prediction"}
    source = "fake:grey:0.25?size=24&resize=letterbox&interpolation=bilinear"
    options = {"name": lens, "preset": "quick", **({"operators": ["brightness"]} if lens == "knob" else {})}
    run = brinell.run(source, data, lens=options, out=tmp_path / "run", execution=PLAIN, quiet=True)
    assert run.rows("select count(*) from rows").fetchall()[0][0] > 0
    assert run.rows("select bool_and(correct) from clean").fetchall() == [(True,)]


# ---- what ONNX files say about themselves ----


def write_detector(file: Path, output: np.ndarray, metadata: Mapping[str, str], size: tuple[Any, Any] = (64, 64)) -> None:
    """Write a network that returns the same output for every image of a batch of one."""
    constant = numpy_helper.from_array(output.astype(np.float32)[None], "constant")
    nodes = [
        helper.make_node("ReduceMean", ["images"], ["mean"], keepdims=0),
        helper.make_node("Mul", ["mean", "zero"], ["nothing"]),
        helper.make_node("Add", ["constant", "nothing"], ["output0"]),
    ]
    zero = numpy_helper.from_array(np.zeros((), np.float32), "zero")
    images = helper.make_tensor_value_info("images", TensorProto.FLOAT, [1, 3, *size])
    found = helper.make_tensor_value_info("output0", TensorProto.FLOAT, [1, *output.shape])
    model = helper.make_model(
        helper.make_graph(nodes, "net", [images], [found], [constant, zero]), opset_imports=[helper.make_opsetid("", 13)]
    )
    model.ir_version = 8
    helper.set_model_props(model, dict(metadata))
    onnx.save(model, file)


YOLO = {"names": "{0: 'cat', 1: 'dog', 2: 'bird'}", "stride": "32", "task": "detect", "imgsz": "[64, 64]"}


def yolo_columns(objectness: bool = False) -> np.ndarray:
    """20 boxes in columns (4 + 3, 20); the first is a dog around (32, 20)."""
    columns = np.zeros((7, 20))
    columns[:4, 0], columns[5, 0] = (32, 20, 16, 8), 0.9
    return np.insert(columns, 4, 1.0, 0) if objectness else columns


@pytest.mark.parametrize("objectness", [False, True])
def test_metadata_of_yolo(objectness: bool, tmp_path: Path) -> None:
    metadata = {key: value for key, value in YOLO.items() if not objectness or key in ("names", "stride")}
    write_detector(tmp_path / "yolo.onnx", yolo_columns(objectness), metadata)
    model = brinell.open_model(f"onnx:{tmp_path / 'yolo.onnx'}")
    assert model.detector is not None and model.classes is not None and model.classes.names == ("cat", "dog", "bird")
    assert model.preprocess == Preprocess(64, 64, interpolation="bilinear", fill=114)
    scores, detections = model.answer(torch.zeros(2, 3, 64, 64, dtype=torch.uint8))
    assert detections is not None and detections.boxes[1, 0].tolist() == [24, 16, 40, 24]
    assert torch.allclose(scores, torch.tensor([0.0, 0.9, 0.0]))
    other = brinell.open_model(f"onnx:{tmp_path / 'yolo.onnx'}?box_format=xywh&resize=stretch&score_threshold=0.5")
    assert other.preprocess.fill is None and other.detector is not None and other.detector.score_threshold == 0.5
    assert other.answer(torch.zeros(1, 3, 64, 64, dtype=torch.uint8))[1].boxes[0, 0].tolist() == [32, 20, 48, 28]  # type: ignore[union-attr]


def test_yolo_with_suppressed_boxes_and_any_size(tmp_path: Path) -> None:
    rows = np.zeros((30, 6))
    rows[0] = (24, 16, 40, 24, 0.8, 2)
    write_detector(tmp_path / "end.onnx", rows, YOLO, size=("height", "width"))
    model = brinell.open_model(f"onnx:{tmp_path / 'end.onnx'}")
    assert (model.preprocess.height, model.preprocess.width) == (64, 64)  # by imgsz
    scores, detections = model.answer(torch.zeros(1, 3, 64, 64, dtype=torch.uint8))
    assert detections is not None and detections.boxes[0, 0].tolist() == [24, 16, 40, 24]
    assert torch.allclose(scores, torch.tensor([0.0, 0.0, 0.8]))
    with pytest.raises(ModelError, match="stride of 32, of which the sides"):
        brinell.open_model(f"onnx:{tmp_path / 'end.onnx'}?size=40")
    write_detector(tmp_path / "pose.onnx", rows, {**YOLO, "task": "pose"})
    with pytest.raises(ModelError, match="is a YOLO model for 'pose'"):
        brinell.open_model(f"onnx:{tmp_path / 'pose.onnx'}")


@pytest.mark.parametrize(
    ("names", "rows", "more", "suppressed"),
    [
        (["cat"], 1500, {}, False),  # box, objectness and one class
        (["cat"], 300, {"end2end": "False", "args": "{'nms': None}"}, False),
        (["cat", "dog"], 300, {}, True),
        (["cat", "dog"], 1500, {"end2end": "True"}, True),
        (["cat", "dog"], 1500, {"end2end": "False", "args": "{'nms': True}"}, True),
    ],
)
def test_six_columns_of_yolo(names: list[str], rows: int, more: dict[str, str], suppressed: bool, tmp_path: Path) -> None:
    columns = np.zeros((rows, 6))
    columns[0] = (24, 16, 40, 24, 0.8, 0) if suppressed else (32, 20, 16, 8, 1, 0.8)
    write_detector(tmp_path / "six.onnx", columns, {**YOLO, "names": str(names), **more})
    model = brinell.open_model(f"onnx:{tmp_path / 'six.onnx'}")
    scores, detections = model.answer(torch.zeros(1, 3, 64, 64, dtype=torch.uint8))
    assert detections is not None and detections.boxes[0, 0].tolist() == [24, 16, 40, 24]
    assert torch.allclose(scores, torch.tensor([[0.8, 0.0][: len(names)]]))


def write_classifier(file: Path, metadata: Mapping[str, str], shape: list[Any] | None = None) -> None:
    """Write a network whose three scores are the means of its channels."""
    images = helper.make_tensor_value_info("images", TensorProto.FLOAT, shape or ["n", 3, 16, 16])
    scores = helper.make_tensor_value_info("scores", TensorProto.FLOAT, ["n", 3])
    axes = [1, 2] if shape and shape[-1] == "c" else [2, 3]
    node = helper.make_node("ReduceMean", ["images"], ["scores"], axes=axes, keepdims=0)
    model = helper.make_model(
        helper.make_graph([node], "net", [images], [scores]), opset_imports=[helper.make_opsetid("", 13)]
    )
    model.ir_version = 8
    helper.set_model_props(model, dict(metadata))
    onnx.save(model, file)


def test_files_and_metadata_of_classifiers(tmp_path: Path) -> None:
    file = tmp_path / "model.onnx"
    write_classifier(file, {"Image.BitmapPixelFormat": "Bgr8", "Image.NominalPixelRange": "NominalRange_0_255"})
    model = brinell.open_model(f"onnx:{file}")
    image = torch.tensor([10, 20, 60], dtype=torch.uint8)[:, None, None].expand(3, 16, 16)[None]
    assert torch.allclose(model.forward(model.preprocess.normalise(image)), torch.tensor([60.0, 20.0, 10.0]))
    write_classifier(file, {})
    processor = {"size": {"shortest_edge": 20}, "crop_size": {"height": 16, "width": 16}, "do_center_crop": True}
    (tmp_path / "preprocessor_config.json").write_text(
        json.dumps({**processor, "image_mean": [0.5, 0.4, 0.3], "image_std": [0.2, 0.2, 0.2], "resample": 2})
    )
    (tmp_path / "config.json").write_text(json.dumps({"id2label": {"0": "red", "1": "green", "2": "blue"}}))
    model = brinell.open_model(f"onnx:{file}")
    assert model.preprocess == Preprocess(
        16, 16, short_side=20, interpolation="bilinear", mean=(0.5, 0.4, 0.3), std=(0.2, 0.2, 0.2)
    )
    assert model.classes is not None and model.classes.names == ("red", "green", "blue")
    assert brinell.open_model(f"onnx:{file}?mean=0&std=1&resize=stretch").preprocess.mean == (0.0,)
    (tmp_path / "preprocessor_config.json").unlink()
    timm = {"pretrained_cfg": {"mean": [0.1, 0.2, 0.3], "std": [1, 1, 1], "input_size": [3, 16, 16], "crop_pct": 0.8}}
    (tmp_path / "config.json").write_text(json.dumps(timm))
    assert brinell.open_model(f"onnx:{file}").preprocess.short_side == 20


# ---- warnings ----


def test_advice_about_accuracy() -> None:
    model = brinell.open_model("fake:grey:0.25?size=8")
    assert advise_accuracy(model, 0.9, 0.95, 100) is None
    assert advise_accuracy(model, 0.5, 0.6, 19) is None
    near = advise_accuracy(model, 0.52, 0.6, 100)
    assert near is not None and "is right on 52% of 100 clean images, which is near chance (50.0%); " in near
    assert "?mean=0.485" in near and "brinell check" in near
    sure = advise_accuracy(model, 0.6, 0.97, 100)
    assert sure is not None and "60% of 100 clean images, but 97% confident on average; " in sure


def test_a_run_warns(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for index in range(24):
        path = tmp_path / "photos" / ("light", "dark")[index % 2] / f"{index}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.full((8, 8, 3), 100 + 5 * index, np.uint8)).save(path)
    given = ["--model", "fake:grey:0.25?size=8", "--data", str(tmp_path / "photos"), "--operator", "noise", "--levels", "1"]
    main(["run", *given, "--out", str(tmp_path / "run"), "--yes"])
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("warning")]
    assert any("is right on 50% of 24 clean images" in line for line in lines), lines


# ---- brinell check, and the options of a kind ----


def prepend(source: Path, target: Path) -> None:
    """Write a copy of a network that takes RGB in [0, 1] as one that takes BGR in 0..255."""
    model = onnx.load(source)
    (entry,) = model.graph.input
    name, entry.name = entry.name, "given"
    factor = numpy_helper.from_array(np.float32(1 / 255), "factor")
    order = numpy_helper.from_array(np.array([2, 1, 0], np.int64), "order")
    model.graph.initializer.extend([factor, order])
    nodes = [
        helper.make_node("Mul", ["given", "factor"], ["scaled"]),
        helper.make_node("Gather", ["scaled", "order"], [name], axis=1),
    ]
    for position, node in enumerate(nodes):
        model.graph.node.insert(position, node)
    onnx.save(model, target)


def test_check_finds_how_a_network_was_trained(assets: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    prepend(assets / "models" / "mobilenet_v2.onnx", tmp_path / "caffe.onnx")
    source = f"onnx:{tmp_path / 'caffe.onnx'}?classes=imagenet"
    photos = assets / "images" / "imagenet_dev_300"
    main(["check", source, str(photos), "--limit", "6", "--out", str(tmp_path / "check.png")])
    printed = capsys.readouterr()
    text = " ".join((printed.out + printed.err).split())
    assert f"use {source}&mean=0&std=0.00392157&bgr=true" in text, text
    with Image.open(tmp_path / "check.png") as drawn:
        assert drawn.width > 6 * 224 and drawn.height > 2 * 224


def test_check_finds_box_formats(
    assets: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    titles: list[str] = []

    def draw(rows: list[sheet.Row]) -> Image.Image:
        titles.extend(row.title for row in rows)
        return draw_rows(rows)

    monkeypatch.setattr(sheet, "draw_rows", draw)
    source = f"onnx:{assets}/models/yolo_fastest_1.1_coco.onnx?task=detection&classes={assets}/models/coco80.txt"
    data = assets / "images" / "coco_val_128" / "instances.json"
    main(["check", f"{source}&box_format=xywh", str(data), "--limit", "6", "--out", str(tmp_path / "check.png")])
    printed = capsys.readouterr()
    assert "?box_format=xyxy&classes" in "".join((printed.out + printed.err).split())
    assert [title.rpartition(": ")[2].rstrip("0123456789%") for title in titles] == ["F1 of boxes "] * 2


@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        ("&box_units=pixels", "?box_units=relative&classes"),
        ("&box_format=cxcywh&mean=0&std=0.00392157", "?mean=0&std=1&box_format=xyxy&classes"),
    ],
)
def test_check_finds_boxes_and_colours_together(
    wrong: str, right: str, assets: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """While boxes are read wrongly, no normalisation finds an object."""
    source = f"onnx:{assets}/models/yolo_fastest_1.1_coco.onnx?task=detection&classes={assets}/models/coco80.txt"
    data = assets / "images" / "coco_val_128" / "instances.json"
    main(["check", f"{source}{wrong}", str(data), "--limit", "6", "--out", str(tmp_path / "check.png")])
    printed = capsys.readouterr()
    (used,) = [line for line in (printed.out + printed.err).splitlines() if line.startswith("use ")]
    pairs = {pair for pair in used.partition("?")[2].split("&") if not pair.startswith(("classes", "task", "resize"))}
    assert pairs == {pair for pair in right.partition("?")[2].split("&") if pair != "classes"}, used


def test_check_shows_masks_and_finds_a_segmenters_normalisation(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = shapes.folder(tmp_path / "shapes", 6)
    export(shapes.learned(), torch.zeros(2, 3, shapes.SIDE, shapes.SIDE), tmp_path / "net.onnx", "net")
    source = f"onnx:{tmp_path / 'net.onnx'}?task=segmentation&classes={data / 'classes.txt'}"
    main(["check", f"{source}&mean=0.5&std=0.5&bgr=true", str(data), "--out", str(tmp_path / "check.png")])
    printed = capsys.readouterr()
    text = printed.out + printed.err
    assert "mean IoU" in text
    (used,) = [line for line in text.splitlines() if line.startswith("use ")]
    assert {"mean=0", "std=1", "bgr=false"} <= set(used.partition("?")[2].split("&")), used
    with Image.open(tmp_path / "check.png") as drawn:
        blue = np.abs(np.asarray(drawn.convert("RGB")).astype(int) - (0, 114, 178)).sum(2)
        assert drawn.height > 2 * 320 and (blue < 90).sum() > 100, "masks lie over the images"


def test_check_replaces_a_wrong_layout(tmp_path: Path) -> None:
    from brinell.checking.check import _open

    write_classifier(tmp_path / "first.onnx", {}, ["n", "c", "h", "w"])
    (tmp_path / "names.txt").write_text("red\ngreen\nblue")
    given = f"onnx:{tmp_path / 'first.onnx'}?size=16&layout=nhwc&classes={tmp_path / 'names.txt'}"
    opened, model, replaced = _open(ModelOptions.model_validate(given), PLAIN)
    assert model.outputs == 3 and opened.layout == "nchw" and replaced == {"layout": "nchw"}


def test_check_finds_the_layout(tmp_path: Path) -> None:
    from brinell.checking.check import _open

    write_classifier(tmp_path / "last.onnx", {}, ["n", "h", "w", "c"])
    (tmp_path / "names.txt").write_text("red\ngreen\nblue")
    options = ModelOptions.model_validate(f"onnx:{tmp_path / 'last.onnx'}?size=16&classes={tmp_path / 'names.txt'}")
    opened, model, _ = _open(options, PLAIN)
    assert model.outputs == 3 and opened.layout == "nhwc"


def test_the_options_of_a_kind(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["ls", "models", "onnx"])
    text = capsys.readouterr().out
    assert "box_format" in text and "layout" in text and "prompts" not in text and "checkpoint" not in text
    with pytest.raises(
        ConfigError, match=r"prompts is an option of hf:, open_clip:, not of onnx: \(brinell ls models onnx"
    ):
        write_classifier(tmp_path / "x.onnx", {})
        brinell.open_model(f"onnx:{tmp_path / 'x.onnx'}?prompts=clip-7")


def test_a_served_model_says_how_it_letterboxes(answer_cache: None) -> None:
    local = brinell.open_model("fake:grey:0.25?size=16&resize=letterbox&bgr=true", PLAIN)
    with Server(local, port=0) as server:
        server.start()
        remote = brinell.open_model(server.url)
        assert (remote.preprocess.fill, remote.preprocess.bgr) == (114, False)  # the server swaps channels itself
        image = torch.full((3, 10, 20), 200, dtype=torch.uint8)
        both = [model.predict(model.preprocess.model_input(image)[None]) for model in (local, remote)]
        assert torch.allclose(*both, atol=1e-5)


def test_spots_and_motions_under_a_letterbox() -> None:
    """A spot is what the letterbox of the lit original shows; boxes follow a motion, and no motion changes nothing."""
    image = torch.full((3, 40, 70), 60, dtype=torch.uint8)
    image[:, 10:30, 20:44] = 250
    pre = Preprocess(32, 48, interpolation="bilinear", fill=114)
    ids = torch.tensor([id_number(image_id(image))])
    renderer = Renderer(pre, pre.model_input(image)[None], ids, seed=0, originals=[image])
    spots = torch.tensor([[30.0, 12.0, 6.0, 1.0], [66.0, 3.0, 4.0, 1.0]], dtype=torch.float64)
    lit = renderer.images(highlight_view("exact"), torch.tensor([0, 0]), spots)
    assert torch.equal(lit, pre.inputs(add_highlights(image[None].expand(2, -1, -1, -1), spots)))
    motion, sample = Motion(GROUPS["translation"], GIVEN), torch.tensor([0])
    still = torch.zeros(1, len(motion.parameters), dtype=torch.float64)
    assert torch.equal(renderer.images(motion, sample, still), pre.model_input(image)[None])
    moved = torch.tensor([[3.0, -2.0]], dtype=torch.float64)
    shown = renderer.images(motion, sample, moved)[0, 0] > 200
    box = pre.map_boxes(torch.tensor([[20.0, 10.0, 44.0, 30.0]]), 40, 70)
    followed = Move(motion, moved, renderer.layout(sample)).boxes(box[None])[0, 0]
    rows, columns = shown.any(1).nonzero()[:, 0], shown.any(0).nonzero()[:, 0]
    seen = torch.tensor([columns[0], rows[0], columns[-1] + 1, rows[-1] + 1], dtype=torch.float32)
    assert float((followed - seen).abs().max()) <= 1.5, (followed, seen)
