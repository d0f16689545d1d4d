"""Segmenters: how outputs are read, data with masks, every lens, curation, and what people see."""

from __future__ import annotations

import json
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor, nn

import brinell
import shapes
from brinell.config.data import DataOptions
from brinell.config.execution import Execution
from brinell.errors import BrinellError, ConfigError, LabelError, ModelError
from brinell.masks import IGNORED
from brinell.models.export import export
from brinell.models.segmentation import PixelScores
from brinell.models.sources import open_model
from brinell.pictures import open_picture
from brinell.viewer.images import RunImages
from conftest import PLAIN

MORE = Execution(runtime="torch", batch=8, shard=4)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return shapes.folder(tmp_path_factory.mktemp("shapes") / "data")


@pytest.fixture(scope="module")
def profiled(data: Path, tmp_path_factory: pytest.TempPathFactory) -> brinell.Run:
    out = tmp_path_factory.mktemp("profile") / "run"
    lens = {"name": "profile", "operators": ["fade_black", "local_blur"], "levels": 6}
    return brinell.run(shapes.segmenter(), data, lens=lens, out=out, execution=MORE, quiet=True)


# ---- outputs ----


def test_scores_of_pixels_become_masks_as_libraries_make_them() -> None:
    output = torch.randn(2, 3, 4, 5, generator=torch.Generator().manual_seed(0))
    pixels = PixelScores.of(output, None, "net")
    expected = nn.functional.interpolate(output, (8, 10), mode="bilinear", align_corners=False).argmax(1)
    assert torch.equal(pixels.masks(output, 8, 10), expected.to(torch.int16))
    last = output.permute(0, 2, 3, 1)
    assert torch.equal(PixelScores.of(last, 3, "net").masks(last, 8, 10), expected.to(torch.int16))
    classes = expected.to(torch.int64)
    assert torch.equal(PixelScores.of(classes, 3, "net").masks(classes, 8, 10), expected.to(torch.int16))
    unanswered = output.clone()
    unanswered[1, 0, 0, 0] = torch.nan
    assert bool((pixels.masks(unanswered, 8, 10)[1] == IGNORED).all())


def test_one_score_per_pixel_is_of_two_classes() -> None:
    logits = torch.tensor([[[[-2.0, 3.0, -1.0]]]])
    for output in (logits, logits.sigmoid()):
        pixels = PixelScores.of(output, 2, "net")
        assert pixels.masks(output, 1, 3).tolist() == [[[0, 1, 0]]]


def test_what_is_no_segmenter_is_refused(tmp_path: Path) -> None:
    class Classes(nn.Module):
        def forward(self, images: Tensor) -> Tensor:
            return images.mean(1).round().long()

    with pytest.raises(ModelError, match="returns classes and no scores, so it needs its class list"):
        brinell.wrap(Classes(), size=8, segmentation=True, execution=PLAIN)
    assert brinell.wrap(Classes(), size=8, classes=["a", "b"], segmentation=True, execution=PLAIN).differentiable is None
    with pytest.raises(ModelError, match=r"should return scores \(N, classes, height, width\), but returned \(3, 3\)"):
        brinell.wrap(nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten()), size=8, segmentation=True, execution=PLAIN)
    with pytest.raises(ModelError, match="has 3 classes, but its class list has 2 names"):
        shapes.segmenter(classes=("a", "b"))
    with pytest.raises(ConfigError, match="box_format is an option of detectors"):
        open_model({"source": "torch:shapes:Shapes", "task": "segmentation", "box_format": "xywh"}, PLAIN)


def test_onnx_torch_and_the_module_give_the_same_masks(tmp_path: Path) -> None:
    images = torch.from_numpy(shapes.pictures(4)[0]).permute(0, 3, 1, 2).contiguous()
    (tmp_path / "classes.txt").write_text("\n".join(shapes.CLASSES))
    export(shapes.learned(), torch.zeros(2, 3, 32, 32), tmp_path / "net.onnx", "net")
    options = f"task=segmentation&classes={tmp_path / 'classes.txt'}"
    model = open_model(f"onnx:{tmp_path / 'net.onnx'}?{options}", PLAIN)
    with torch.inference_mode():
        scores = nn.functional.interpolate(shapes.learned()(images / 255), (32, 32), mode="bilinear", align_corners=False)
    assert torch.equal(model.segment(images), scores.argmax(1).to(torch.int16))
    assert torch.equal(shapes.segmenter().segment(images), model.segment(images))
    assert model.task == "segmentation"
    assert torch.equal(shapes.segmenter(execution=Execution(runtime="onnxruntime")).segment(images), model.segment(images))


# ---- data ----


def test_folders_of_masks(data: Path, tmp_path: Path) -> None:
    dataset: Any = brinell.open_dataset(str(data))
    masks = shapes.pictures()[1]
    assert (len(dataset), dataset.classes) == (8, shapes.CLASSES)
    assert np.array_equal(dataset.mask(3).numpy(), masks[3])
    (tmp_path / "images" / "validation").mkdir(parents=True)
    (tmp_path / "annotations" / "validation").mkdir(parents=True)
    Image.new("RGB", (4, 2)).save(tmp_path / "images" / "validation" / "a.jpg")
    Image.new("RGB", (4, 2)).save(tmp_path / "images" / "validation" / "b.jpg")
    values = np.array([[0, 1, 2, 255], [150, 0, 1, 1]], np.uint8)
    Image.fromarray(values).save(tmp_path / "annotations" / "validation" / "a.png")
    (tmp_path / "objectInfo150.txt").write_text(
        "Idx\tRatio\tTrain\tVal\tName\n1\t0.1\t1\t1\twall\n2\t0.1\t1\t1\tsky, air\n"
    )
    ade: Any = brinell.open_dataset(str(tmp_path))
    assert ade.classes == ("wall", "sky, air")
    assert ade.mask(0).tolist() == [[-1, 0, 1, -1], [149, -1, 0, 0]]
    assert ade.mask(1) is None
    plain: Any = brinell.open_dataset(DataOptions(source=str(tmp_path), ignore_zero=False))
    assert plain.mask(0).tolist() == [[0, 1, 2, -1], [150, 0, 1, 1]]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of pycocotools
def test_coco_stuff_and_panoptic(tmp_path: Path) -> None:
    coco = pytest.importorskip("pycocotools.mask")
    mask = np.zeros((6, 8), np.uint8)
    mask[2:5, 1:4] = 1
    (tmp_path / "images").mkdir()
    Image.new("RGB", (8, 6)).save(tmp_path / "images" / "1.jpg")
    images = [{"id": 7, "file_name": "1.jpg", "height": 6, "width": 8}]
    categories = [{"id": 92, "name": "banner"}, {"id": 184, "name": "tree"}]
    runs = coco.encode(np.asfortranarray(mask))
    runs["counts"] = runs["counts"].decode()
    square = [[5, 0, 8, 0, 8, 2, 5, 2]]
    stuff = [
        {"image_id": 7, "category_id": 184, "segmentation": runs},
        {"image_id": 7, "category_id": 92, "segmentation": square},
    ]
    file = tmp_path / "stuff_val.json"
    file.write_text(json.dumps({"images": images, "annotations": stuff, "categories": categories}))
    found: Any = brinell.open_dataset(str(file))
    expected = np.where(mask, 1, IGNORED)
    expected[:2, 5:] = 0
    assert np.array_equal(found.mask(0).numpy(), expected)
    assert found.classes == ("banner", "tree")
    segments = np.zeros((6, 8, 3), np.uint8)
    segments[2:5, 1:4] = (4, 1, 0)
    (tmp_path / "panoptic_val").mkdir()
    Image.fromarray(segments).save(tmp_path / "panoptic_val" / "1.png")
    info = {"image_id": 7, "file_name": "1.png", "segments_info": [{"id": 4 + 256, "category_id": 184}]}
    file = tmp_path / "panoptic_val.json"
    file.write_text(json.dumps({"images": images, "annotations": [info], "categories": categories}))
    panoptic: Any = brinell.open_dataset(str(file))
    assert np.array_equal(panoptic.mask(0).numpy(), np.where(mask, 1, IGNORED))


def test_masks_are_required_and_matched_by_name(data: Path, tmp_path: Path) -> None:
    def run(model: brinell.Model, source: Any, **more: Any) -> brinell.Run:
        lens = {"name": "profile", "operators": ["local_blur"], "levels": 1}
        return brinell.run(model, source, lens=lens, out=tmp_path / f"{len(list(tmp_path.iterdir()))}", **more, quiet=True)

    with pytest.raises(LabelError, match="have no masks, which segmenters need"):
        run(shapes.segmenter(), [(np.zeros((32, 32, 3), np.uint8), 0)], execution=PLAIN)
    with pytest.raises(LabelError, match=r"knows none of the classes of the masks of data \(background, disc, square, …\)"):
        run(shapes.segmenter(classes=("x", "y", "z")), data, execution=PLAIN)
    swapped = shapes.segmenter(classes=("square", "disc", "background"))
    found = run(swapped, data, execution=PLAIN).query("select avg(iou) from rows where level = 0")[0][0]
    assert found < 0.4  # names count, not the order
    by_index = run(swapped, {"source": str(data), "labels": "index"}, execution=PLAIN)
    assert by_index.query("select avg(iou) from rows where level = 0")[0][0] > 0.85
    own = run(shapes.segmenter(), {"source": str(data / "images"), "labels": "prediction"}, execution=PLAIN)
    assert own.query("select min(iou), max(relabelled) from rows where level = 0")[0] == (1, 0)


# ---- lenses ----


def test_rows_hold_what_the_masks_have_in_common(profiled: brinell.Run, data: Path) -> None:
    """Rows and findings agree with masks that are made and compared here."""
    images, masks = (torch.from_numpy(each) for each in shapes.pictures())
    predicted = shapes.segmenter().segment(images.permute(0, 3, 1, 2).contiguous())
    expected = []
    for label in range(3):
        common = ((predicted == label) & (masks == label)).sum()
        expected.append(float(common / ((predicted == label) | (masks == label)).sum()))
    findings = profiled.findings()["profile"]
    clean, average = findings.precision("shapes", "miou")
    assert clean == pytest.approx(np.mean(expected))
    assert average < clean
    by_class = {one.name: one.clean for one in findings.class_iou["shapes"]}
    assert by_class == pytest.approx(dict(zip(shapes.CLASSES, expected, strict=True)))
    assert "mIoU is" in findings.verdict("shapes")
    assert findings.to_json()["class_iou"]["shapes"][0].keys() == {"label", "name", "clean", "average"}
    rows = profiled.query("select iou, correct, relabelled, prediction, label from rows where level = 6")
    assert all(correct == (iou >= 0.5) for iou, correct, *_ in rows)
    assert any(relabelled > 0.05 for _, _, relabelled, *_ in rows)
    assert "mean mIoU" in str(profiled.summary())


def test_masks_follow_motions_and_windows(data: Path, tmp_path: Path) -> None:
    """A network that goes by colours alone is as right about a turned picture, and about a window of it."""
    lenses = [
        {"name": "knob", "operators": ["rotation"]},
        {"name": "fragility", "operators": ["windows"], "sizes": [0.75], "stride": 4},
    ]
    run = brinell.run(shapes.segmenter(), data, lens=lenses, out=tmp_path / "run", execution=PLAIN, quiet=True)
    assert run.query("select distinct status from rows where lens = 'knob'") == [("survived",)]
    [(right,)] = run.query("select avg(recognised) from rows where lens = 'fragility' and recognised is not null")
    assert right > 0.95


def lit(root: Path) -> Path:
    """Write a folder in which each picture has a variant that is lighter."""
    shapes.folder(root, 2)
    for number in range(2):
        image, mask = (open_picture((root / folder / f"{number}.png").read_bytes()) for folder in ("images", "masks"))
        image.point(lambda level: level * 1.1).save(root / "images" / f"{number}_lit.png")
        mask.save(root / "masks" / f"{number}_lit.png")
    return root


@pytest.mark.parametrize("lens", ["highlights", "photographs", "geometry", "fragility"])
def test_every_lens_runs_or_says_why_not(lens: str, data: Path, tmp_path: Path) -> None:
    options: dict[str, Any] = {"name": lens}
    reason = None
    if lens == "geometry":
        reason = "^the geometry lens can't measure model shapes: it looks for motions that change the top class"
    if lens == "fragility":
        options |= {"operators": ["location"], "sizes": [0.75]}
        reason = "finds masks, which can only follow windows that are resized or padded"
    given = {"source": str(data), "limit": 3}
    if lens == "photographs":
        given = {"source": str(lit(tmp_path / "data")), "pattern": r"(?P<original>\d)(_(?P<variant>lit))?\.png"}
    if reason is None:
        run = brinell.run(shapes.segmenter(), given, lens=options, out=tmp_path / "run", execution=PLAIN, quiet=True)
        assert run.query("select count(*) from rows where iou is not null")[0][0] > 0
        return
    with pytest.raises(BrinellError, match=reason):
        brinell.run(shapes.segmenter(), given, lens=options, out=tmp_path / "run", execution=PLAIN, quiet=True)


def test_criteria_of_other_tasks_are_refused(data: Path, tmp_path: Path) -> None:
    lens = {"name": "profile", "operators": ["local_blur"], "criterion": "miou_below(0.5)"}
    with pytest.raises(ConfigError, match=r"criterion miou_below.* needs a segmenter, but model .* is none"):
        brinell.run("fake:grey", {"source": str(data), "labels": "prediction"}, lens=lens, out=tmp_path / "a", quiet=True)


# ---- what people see ----


def test_pictures_of_the_report_show_masks(profiled: brinell.Run) -> None:
    exhibits = json.loads(profiled.store.read("exhibits.json"))
    assert exhibits
    for exhibit in exhibits:
        assert len(exhibit["ious"]) == 2
        picture = open_picture(profiled.store.read(*exhibit["clean_file"].split("/")))
        assert min(picture.size) >= 320  # large enough for names
    page = Path(profiled.report()).read_text()
    assert "mean IoU 0." in page
    assert "Overlap of masks" in page


def test_curated_masks_move_with_their_images(data: Path, tmp_path: Path) -> None:
    lens = {"name": "knob", "operators": ["rotation"], "criterion": "pixels_changed(0.005)"}
    run = brinell.run(shapes.segmenter(), data, lens=lens, out=tmp_path / "run", execution=PLAIN, quiet=True)
    out = tmp_path / "failures"
    curated = brinell.curate(run, out, models=[shapes.segmenter()], execution=PLAIN, quiet=True)
    records = [json.loads(line) for line in (out / "metadata.jsonl").read_text().splitlines()]
    assert len(records) == curated.images > 0
    assert (out / "classes.txt").read_text().split() == list(shapes.CLASSES)
    dataset: Any = brinell.open_dataset(str(out))
    for index, record in enumerate(records):
        mask, image = dataset.mask(index), dataset[index].image
        nearest = ((image[:, None].float() - torch.from_numpy(shapes.COLOURS).T[:, :, None, None]) ** 2).sum(0).argmin(0)
        known = mask >= 0
        assert float((nearest == mask)[known].float().mean()) > 0.9, record["file_name"]
    again = brinell.run(
        shapes.segmenter(), out, lens="profile", preset="quick", out=tmp_path / "again", execution=PLAIN, quiet=True
    )
    assert again.query("select avg(iou) from rows where level = 0")[0][0] > 0.8


def test_the_viewer_lays_masks_over_images(profiled: brinell.Run) -> None:
    """Pixels of an object have a colour, and those of the background are transparent."""
    images = RunImages(profiled, None, lambda run, model: shapes.segmenter(), nullcontext())
    image = profiled.query("select image from rows limit 1")[0][0]
    pixels = images.clean_pixels("shapes", image)
    over = np.array(open_picture(images.masks("shapes", pixels)))
    assert over.shape == (320, 320, 4)
    mask = shapes.segmenter().segment(pixels[None])[0].numpy().repeat(10, 0).repeat(10, 1)
    assert float(((over[..., 3] == 0) == (mask == 0)).mean()) > 0.9  # names lie over some of them
