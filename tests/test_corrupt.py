"""`brinell corrupt`: perturbed copies of datasets."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import brinell
from brinell.cli.main import main
from brinell.corruption.costs import CopyCost
from brinell.datasets.sources import open_dataset
from brinell.errors import BrinellError
from brinell.perturb import apply
from brinell.runs.store import Store

FOG = {"operators": ["fog"], "severities": [0.4]}
SIZES = ((40, 56), (40, 56), (33, 47))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Twelve small colour photographs in two class folders, of two sizes."""
    generator = np.random.default_rng(0)
    for index in range(12):
        height, width = SIZES[index % 3]
        coarse = Image.fromarray(generator.integers(0, 256, (5, 7, 3), np.uint8))
        path = tmp_path / "photos" / ("cat", "dog")[index % 2] / f"{index:02}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        coarse.resize((width, height), Image.Resampling.BICUBIC).save(path)
    return tmp_path / "photos"


@pytest.fixture
def boxed(tmp_path: Path) -> Path:
    """Two images with COCO annotations: a bright square each, an outline, and a crowd."""
    (tmp_path / "coco" / "images").mkdir(parents=True)
    images, annotations = [], []
    for number, (left, top) in enumerate([(6, 4), (20, 10)]):
        pixels = np.zeros((24, 32, 3), np.uint8)
        pixels[top : top + 6, left : left + 8] = 255
        Image.fromarray(pixels).save(tmp_path / "coco" / "images" / f"{number}.png")
        images.append({"id": 70 + number, "file_name": f"{number}.png", "width": 32, "height": 24, "license": 3})
        common = {"image_id": 70 + number, "category_id": 17, "area": 48}
        annotations += [
            {"id": 10 * number + 1, "bbox": [0, 0, 4, 4], **common, "iscrowd": 1},
            {
                "id": 10 * number + 2,
                "bbox": [left, top, 8, 6],
                **common,
                "iscrowd": 0,
                "segmentation": [[1, 2, 3, 4, 5, 6]],
            },
        ]
    content = {"images": images, "annotations": annotations, "categories": [{"id": 17, "name": "square"}]}
    (tmp_path / "coco" / "instances.json").write_text(json.dumps(content))
    return tmp_path / "coco"


def files_of(folder: Path) -> dict[str, str]:
    """Return a digest of every file of a folder by its path."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def test_a_copy_as_imagefolder(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "foggy"
    done = brinell.corrupt(folder, out, FOG, quiet=True)
    assert (done.images, done.originals, done.skipped) == (12, 12, ())
    original, copy = open_dataset(folder), open_dataset(out)
    lines = [json.loads(line) for line in (out / "metadata.jsonl").read_text().splitlines()]
    assert [line["file_name"] for line in lines] == [sample_name(original, index) for index in range(12)]
    for index in range(12):
        expected = apply(original[index].image, "fog", 0.4)
        assert torch.equal(copy[index].image, expected)
        assert copy[index].label == ("cat", "dog")[original[index].label]
        assert lines[index]["operator"] == "fog:standard" and lines[index]["severity"] == 0.4
        origin = copy.origin(index)
        assert origin is not None and origin.operator == "fog:standard"
    assert sorted(path.name for path in out.iterdir()) == [".complete", "cat", "dog", "metadata.jsonl"]


def sample_name(dataset: Any, index: int) -> str:
    return str(dataset[index].name)


def test_several_operators_and_levels_are_datasets_of_their_own(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "many"
    options = {"operators": ["fog", "jpeg", "rotation"], "severities": [-0.5, 0.25][1:], "levels": [5, 10], "limit": 5}
    done = brinell.corrupt(folder, out, options, quiet=True)
    assert done.images == 20
    found = sorted(str(path.parent.relative_to(out)) for path in out.rglob("metadata.jsonl"))
    assert found == ["fog/0.25", "jpeg/10", "jpeg/5", "rotation/0.25"]
    original, copy = open_dataset(folder), open_dataset(out / "jpeg" / "10")
    assert len(copy) == 5 and torch.equal(copy[4].image, apply(original[4].image, "jpeg", 10))


def test_like_imagenet_c(folder: Path, tmp_path: Path) -> None:
    options = {"operators": ["fog"], "severities": [0.2, 1.0], "like": "imagenet-c", "size": 28}
    brinell.corrupt(folder, tmp_path / "c", options, quiet=True)
    found = files_of(tmp_path / "c")
    assert len(found) == 24 + 1 and ".complete" in found and "fog/0.2/cat/00.JPEG" in found and "fog/1/dog/11.JPEG" in found
    with Image.open(tmp_path / "c" / "fog" / "1" / "dog" / "11.JPEG") as picture:
        assert picture.format == "JPEG" and picture.size == (28, 28)


def test_severities_of_imagenet_c(folder: Path, tmp_path: Path) -> None:
    original = open_dataset(folder)
    for options in ({"severities": [1, 3]}, {"severities": [1], "like": "imagenet-c", "format": "png"}):
        out = tmp_path / str(len(options))
        brinell.corrupt(folder, out, {"operators": ["fog", "shot_noise"], "limit": 2, **options}, quiet=True)
        assert sorted(path.name for path in out.glob("[!.]*")) == ["fog", "shot_noise"]
        with Image.open(out / "fog" / "1" / "cat" / "00.png") as picture:
            assert np.array_equal(np.asarray(picture).transpose(2, 0, 1), apply(original[0].image, "fog:imagenet_c", 1))
    brinell.corrupt(folder, tmp_path / "own", {"operators": ["fog"], "severities": [1], "limit": 1}, quiet=True)
    assert torch.equal(open_dataset(tmp_path / "own")[0].image, apply(original[0].image, "fog:standard", 1))


def test_boxes_move_and_everything_else_of_coco_stays(boxed: Path, tmp_path: Path) -> None:
    options = {"operators": ["fog", "horizontal_translation"], "severities": [0.5]}
    brinell.corrupt(boxed, tmp_path / "out", options, quiet=True)
    original = json.loads((boxed / "instances.json").read_text())
    fog = json.loads((tmp_path / "out" / "fog" / "0.5" / "instances.json").read_text())
    assert fog["annotations"] == original["annotations"] and fog["categories"] == original["categories"]
    assert [image["id"] for image in fog["images"]] == [70, 71] and fog["images"][0]["license"] == 3
    moved = json.loads((tmp_path / "out" / "horizontal_translation" / "0.5" / "instances.json").read_text())
    assert [(one["id"], one["bbox"], one["area"]) for one in moved["annotations"]] == [(2, [22, 4, 8, 6], 48)]
    assert "segmentation" not in moved["annotations"][0]
    copy = open_dataset(tmp_path / "out" / "horizontal_translation" / "0.5")
    sample = copy[0]
    assert sample.boxes is not None and sample.image[0, 4:10, 22:30].min() == 255 and copy[1].boxes.shape == (0, 4)


def test_webdataset_shards(boxed: Path, folder: Path, tmp_path: Path) -> None:
    brinell.corrupt(folder, tmp_path / "wds", {**FOG, "layout": "webdataset", "shard": 5}, quiet=True)
    assert [path.name for path in sorted((tmp_path / "wds").glob("[!.]*"))] == ["000000.tar", "000001.tar", "000002.tar"]
    with tarfile.open(tmp_path / "wds" / "000001.tar") as tar:
        names = tar.getnames()
        assert names[:3] == ["cat/10.png", "cat/10.cls", "cat/10.json"] and len(names) == 15
        facts = json.load(tar.extractfile("dog/01.json"))  # type: ignore[arg-type]
    assert facts["label"] == "dog" and facts["operator"] == "fog:standard"


def test_names_that_clash_are_told_apart(tmp_path: Path) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (3, 16, 16, 3), np.uint8)
    data = [(pixels[0], "cat", {"id": "a/x.png"}), (pixels[1], "cat", {"id": "b/x.png"}), (pixels[2], None, {"id": "../y"})]
    brinell.corrupt(data, tmp_path / "out", {"operators": ["fade_black"], "levels": [3]}, quiet=True)
    assert set(files_of(tmp_path / "out")) == {"cat/x.png", "cat/x-1.png", "y.png", "metadata.jsonl", ".complete"}


def test_unreadable_images_are_skipped_and_counted(folder: Path, tmp_path: Path) -> None:
    (folder / "cat" / "00.png").write_bytes(b"nothing")
    done = brinell.corrupt(folder, tmp_path / "out", FOG, quiet=True)
    assert done.originals == 11 and [problem for _, problem in done.skipped] == ["not an image of a known kind"]
    with pytest.raises(BrinellError, match="not an image"):
        brinell.corrupt(folder, tmp_path / "strict", FOG, execution=brinell.Execution(strict=True), quiet=True)


class Interrupted:
    """A dataset whose last images have the name of the first, and which is interrupted after an image."""

    def __init__(self, folder: Path, last: int | None = None) -> None:
        self.dataset, self.last, self.seen = open_dataset(folder), last, 0
        self.name, self.classes = self.dataset.name, self.dataset.classes

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, index: int, /) -> brinell.Sample:
        self.seen += 1
        if self.last is not None and index > self.last and self.seen > 12:  # after the probe
            raise KeyboardInterrupt
        sample = self.dataset[index]
        return replace(sample, name=f"{self.dataset[index % 6].name}", label=0)


@pytest.mark.parametrize("layout", ["imagefolder", "webdataset"])
def test_an_interrupted_copy_is_resumed_to_the_same_bytes(
    folder: Path, tmp_path: Path, layout: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("brinell.corruption.layouts.UNIT", 4)
    options = {"operators": ["fog", "pixel_exchange"], "severities": [0.3], "levels": [4], "layout": layout, "shard": 4}
    brinell.corrupt(Interrupted(folder), tmp_path / "whole", options, quiet=True)
    part, alone = tmp_path / "part", brinell.Execution(workers=1)
    with pytest.raises(KeyboardInterrupt):
        brinell.corrupt(Interrupted(folder, 9), part, options, execution=alone, quiet=True)
    assert sorted(path.name for path in (part / ".unfinished").glob("0*")) == ["000000.json", "000001.json"]
    with pytest.raises(BrinellError, match="holds a part of another copy"):
        brinell.corrupt(Interrupted(folder), part, {**options, "seed": 1}, quiet=True)
    brinell.corrupt(Interrupted(folder), part, options, quiet=True)
    assert files_of(part) == files_of(tmp_path / "whole")
    assert len(files_of(part)) == (26 if layout == "imagefolder" else 6) + 1


@pytest.mark.parametrize("like", [{"layout": "imagefolder"}, {"layout": "webdataset"}, {"like": "imagenet-c"}])
def test_a_whole_copy_is_found_complete(folder: Path, tmp_path: Path, like: dict[str, str]) -> None:
    out = tmp_path / "out"
    (folder / "dog" / "bad.png").write_bytes(b"no picture")
    first = brinell.corrupt(folder, out, {**FOG, **like}, quiet=True)
    before = {path: path.stat().st_mtime_ns for path in out.rglob("*")}
    again = brinell.corrupt(folder, out, {**FOG, **like}, quiet=True)
    assert first.written and again == replace(first, written=False)
    assert first.images == 12 and [Path(name).name for name, _ in first.skipped] == ["bad.png"]
    assert {path: path.stat().st_mtime_ns for path in out.rglob("*")} == before
    with pytest.raises(BrinellError, match="holds another copy; choose another folder"):
        brinell.corrupt(folder, out, {**FOG, **like, "seed": 1}, quiet=True)


def test_a_copy_that_was_killed_after_its_last_write_is_complete(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"

    def killed(store: Store, *names: str) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(Store, "remove", killed)
        brinell.corrupt(folder, out, FOG, quiet=True)
    assert (out / ".unfinished").exists()
    main(["corrupt", str(folder), str(out), "--operator", "fog", "--severity", "0.4"])
    assert capsys.readouterr().out.strip() == f"Already complete: 12 images of 12 originals: {out}"
    assert not (out / ".unfinished").exists()
    brinell.corrupt(folder, tmp_path / "whole", FOG, quiet=True)
    assert files_of(out) == files_of(tmp_path / "whole")


@pytest.mark.slow
def test_a_killed_copy_is_resumed_to_the_same_bytes(folder: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "brinell", "corrupt", str(folder)]
    options = ["--operator", "pixel_exchange", *(word for level in range(1, 31) for word in ("--level", str(level)))]
    brinell.corrupt(folder, tmp_path / "whole", {"operators": ["pixel_exchange"], "levels": list(range(1, 31))}, quiet=True)
    out = tmp_path / "killed"
    started = subprocess.Popen([*command, str(out), *options], stderr=subprocess.DEVNULL, start_new_session=True)
    while started.poll() is None and sum(1 for _ in out.rglob("*.png")) < 40:
        time.sleep(0.02)
    os.killpg(started.pid, signal.SIGKILL)
    started.wait()
    assert (out / ".unfinished").exists()
    subprocess.run([*command, str(out), *options], check=True, capture_output=True)
    assert files_of(out) == files_of(tmp_path / "whole")


# ---- the command ----


@pytest.fixture
def refused(capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    def call(*arguments: str) -> str:
        with pytest.raises(SystemExit) as left:
            main(["corrupt", *arguments])
        assert left.value.code == 2
        (line,) = capsys.readouterr().err.splitlines()
        return line

    return call


def test_the_command(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["corrupt", str(folder), str(tmp_path / "out"), "--operator", "rotation", "--severity", "-0.25", "--limit", "3"])
    shown = capsys.readouterr()
    assert shown.out.strip() == f"3 images of 3 originals: {tmp_path / 'out'}"
    assert shown.err.startswith("Estimate: about 1 s, 3 images, 0.0 MB.")
    assert torch.equal(open_dataset(tmp_path / "out")[0].image, apply(open_dataset(folder)[0].image, "rotation", -0.25))


def test_long_copies_are_confirmed(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("brinell.corruption.corrupt.estimate", lambda *given: CopyCost(1_000_000, 7200, 5e9))
    monkeypatch.setattr("brinell.cli.ask.someone_answers", lambda: True)
    monkeypatch.setattr("typer.confirm", lambda *given, **options: False)
    arguments = ["corrupt", str(folder), str(tmp_path / "out"), "--operator", "fog", "--severity", "0.4"]
    with pytest.raises(SystemExit) as left:
        main(arguments)
    assert left.value.code == 1 and not (tmp_path / "out").exists()
    assert "Estimate: about 2.0 h, 1,000,000 images, 5,000.0 MB." in capsys.readouterr().err
    main([*arguments, "--yes"])
    assert len(open_dataset(tmp_path / "out")) == 12


def test_refusals(folder: Path, tmp_path: Path, refused: Callable[..., str]) -> None:
    out = str(tmp_path / "out")
    assert "jpeg is an operator with levels; give --level instead of --severity" in refused(
        str(folder), out, "--operator", "jpeg", "--severity", "0.4"
    )
    assert "fog is a property with severities; give --severity" in refused(str(folder), out, "--operator", "fog")
    assert "did you mean fog" in refused(str(folder), out, "--operator", "fogg", "--severity", "0.4")
    assert "has no boxes to write as COCO; use --layout imagefolder" in refused(
        str(folder), out, "--operator", "fog", "--severity", "0.4", "--layout", "coco"
    )
    assert "there is no dataset at" in refused("nowhere", out, "--operator", "fog", "--severity", "0.4")
    assert not Path(out).exists()
    Path(out).mkdir()
    (Path(out) / "mine.txt").write_text("mine")
    assert "is not empty; choose another folder" in refused(str(folder), out, "--operator", "fog", "--severity", "0.4")
