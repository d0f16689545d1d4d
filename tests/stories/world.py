"""A folder that has what the commands of the documentation name: photographs, model files, rules and runs."""

from __future__ import annotations

import json
import re
import shutil
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from story import PAGES
from torch import nn

import brinell
from conftest import ASSETS

COUNT, SIDE = 3, 160
TABBY = 281
#: both lenses that the example rules are about
LENSES: list[dict[str, Any]] = [
    {"name": "profile", "operators": ["jpeg", "white_fog"], "levels": 30},
    {"name": "knob", "operators": ["rotation", "fog"], "search": "bracket", "points": 20},
]
RULES = "require: estimate\nrules: [{measure: clean, min: 10}, {measure: area, min: 99}]\n"
TEST = "model: fake:grey\ndata: greys\nlens: {name: profile, operators: [fade_black], levels: 3}\n"
MODELS = {"runs/a": "efficientnet_lite0?name=resnet20", "runs/b": "efficientnet_lite0?name=resnet20-int8"}

#: runs of other models than the first, for a page that puts several on one report
OTHER_RUNS = {"docs/report.md": {"runs/second": "a", "runs/night": "b"}}


class World:
    """The folder of one page."""

    def __init__(self, folder: Path, masters: Path) -> None:
        self.folder, self.masters = folder, masters
        if not (masters / "world").exists():
            self.write(masters / "world")
        shutil.copytree(masters / "world", folder, symlinks=True, dirs_exist_ok=True)

    def write(self, folder: Path) -> None:
        """Write the files that all pages start with."""
        write_photographs(folder / "photos")
        for copy in ("imagenet/val", "prints", "digits", "gallery"):
            shutil.copytree(folder / "photos", folder / copy)
        for photo in sorted((folder / "prints").glob("*/*.jpg")):
            shutil.copy(photo, photo.with_stem(f"{photo.stem}_torch1"))
        for name, index in (("cat", 20), ("dog", 21)):
            save(brinell.open_dataset("demo-photos")[index].image, folder / f"{name}.jpg")
        for grey in range(60, 240, 30):
            file = folder / "greys" / "light" / f"{grey}.png"
            file.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(np.full((32, 32, 3), grey, np.uint8)).save(file)
        write_boxes(folder / "photos", folder / "instances.json")
        write_boxes(folder / "photos", folder / "coco" / "instances.json")
        (folder / "rules.yaml").write_text(RULES)
        (folder / "gate.yaml").write_text("rules: [{measure: area, drop: 50}]\n")
        (folder / "test.yaml").write_text(TEST)
        (folder / "classes.txt").write_text("cat\ndog\n")
        (folder / "my_model.py").write_text(next(one for one in blocks("docs/howto/torch-model.md") if "def build" in one))
        self.write_models(folder)

    def write_models(self, folder: Path) -> None:
        """Write model files: real ones where the test assets are, and small ones."""
        two = nn.Sequential(nn.Conv2d(3, 8, 3, stride=2), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 2))
        torch.save(two.state_dict(), folder / "weights.pt")
        many = sees_a_tabby()
        for name, module in (("model", two), ("net", many), ("rival", many), ("caffe", many), ("mobilenet_v2", many)):
            export(module, folder / f"{name}.onnx")
        if ASSETS.is_dir():
            for name, source in (("yolo.onnx", "yolo_fastest_1.1_coco.onnx"), ("coco.txt", "coco80.txt")):
                (folder / name).symlink_to(ASSETS / "models" / source)

    def provide(self, page: str, command: str) -> None:
        """Add what a command reads and nothing has written: runs, and files that the page itself shows."""
        for name in re.findall(r"runs/[a-z0-9]+", command):
            made = re.search(rf"(?:--out|-o) {name}\b", command)
            if not made and not (self.folder / name).exists():
                master = OTHER_RUNS.get(page, {}).get(name, Path(name).name)
                shutil.copytree(self.masters / master, self.folder / name)
        if "runs/*" in command:
            self.provide(page, "brinell compare runs/first runs/second")
        for text in re.findall(r"```yaml\n(.*?)```", PAGES[page], re.DOTALL):
            if "requirements:" in text:
                (self.folder / "plan.yaml").write_text(text)
        if page == "docs/howto/ci.md":  # photographs of ImageNet's classes
            shutil.copy(self.folder / "net.onnx", self.folder / "model.onnx")
            names = brinell.open_model("efficientnet_lite0").classes
            assert names is not None
            (self.folder / "classes.txt").write_text("\n".join(names.names))
        if page == "docs/howto/torch-model.md" and not (self.folder / "photos" / "cat").exists():
            shutil.rmtree(self.folder / "photos")
            for name in ("cat", "dog"):
                (self.folder / "photos" / name).mkdir(parents=True)
                shutil.copy(self.folder / f"{name}.jpg", self.folder / "photos" / name)
        if page == "docs/slices.md":
            names = sorted(path.relative_to(self.folder / "photos") for path in self.folder.glob("photos/*/*.jpg"))
            rows = [f"{name},{name.parent},{('fog', 'sun')[number % 2]}" for number, name in enumerate(names)]
            (self.folder / "photos" / "metadata.csv").write_text("\n".join(["file_name,label,weather", *rows]) + "\n")


def blocks(page: str) -> list[str]:
    """Return the Python blocks of a page."""
    return re.findall(r"```python\n(.*?)```", PAGES[page], re.DOTALL)


def prepare_runs(folder: Path) -> Path:
    """Measure the runs that pages read."""
    write_photographs(folder / "photos")
    for name in ("first", "second", "night", "old", "new", "both", "a", "b"):
        model: Any = MODELS.get(f"runs/{name}", "efficientnet_lite0")
        if name == "both":
            model = ["efficientnet_lite0", "efficientnet_lite0?name=again"]
        if name in ("second", "night", "old", "new"):
            shutil.copytree(folder / "first", folder / name)
        else:
            lens: Any = LENSES if name != "both" else {"name": "profile", "operators": ["jpeg", "white_fog"], "levels": 2}
            brinell.run(model, folder / "photos", lens=lens, out=folder / name, quiet=True)
    return folder


def sees_a_tabby() -> nn.Module:
    """Return a network for ImageNet's classes that answers "tabby", so that `select="correct"` keeps a cat."""
    head = nn.Linear(48, 1000)
    with torch.no_grad():
        head.bias[TABBY] = 100
    return nn.Sequential(nn.AdaptiveAvgPool2d(4), nn.Flatten(), head)


def write_photographs(folder: Path) -> None:
    """Write small photographs of known classes, a folder for each class."""
    photos, names = brinell.open_dataset("demo-photos"), brinell.open_model("efficientnet_lite0").classes
    assert names is not None
    for index in range(COUNT):
        sample = photos[index]
        assert isinstance(sample.label, int)
        save(sample.image, folder / names.short_name(sample.label) / f"{index:02d}.jpg")


def save(image: torch.Tensor, file: Path) -> None:
    """Write a small JPEG file."""
    file.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(image.expand(3, -1, -1).permute(1, 2, 0).numpy()).resize((SIDE, SIDE)).save(file, quality=92)


def write_boxes(photos: Path, file: Path) -> None:
    """Write a COCO file with one bus in every photograph."""
    names = sorted(photos.glob("*/*.jpg"))
    images = [
        {"id": number, "file_name": str(name.relative_to(photos.parent)), "width": SIDE, "height": SIDE}
        for number, name in enumerate(names)
    ]
    boxes = [
        {"id": number, "image_id": number, "category_id": 6, "bbox": [20, 20, 100, 100], "area": 10_000, "iscrowd": 0}
        for number in range(len(names))
    ]
    content = {"images": images, "annotations": boxes, "categories": [{"id": 6, "name": "bus"}]}
    file.parent.mkdir(parents=True, exist_ok=True)
    if file.parent != photos.parent:
        shutil.copytree(photos, file.parent / "photos")
    file.write_text(json.dumps(content))


def export(module: nn.Module, file: Path) -> None:
    """Write an ONNX file for images of 64 pixels."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # this way of exporting is old, and takes no time
        torch.onnx.export(module.eval(), (torch.zeros(1, 3, 64, 64),), str(file), dynamo=False, input_names=["images"])
