"""With a fine-tuned classifier and a flat folder of photographs: a checkpoint as timm's own training script saves it."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from story import Story
from torch import nn

import brinell

timm = pytest.importorskip("timm", reason="needs timm: make test-zoo", exc_type=ImportError)

CLASSES = ("automobile", "frog")
NETWORK = "test_resnet"
SIDE = 64  # trained and tested at, instead of the network's own 160


def select(assets: Path, name: str, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Return CIFAR-10 images of the two classes, uint8 (N, 32, 32, 3), and their labels 0 and 1."""
    names = (assets / "models" / "cifar10.txt").read_text().split()
    with np.load(assets / "images" / name) as content:
        images, labels = content["images"], content["labels"]
    kept = [np.flatnonzero(labels == names.index(one))[:count] for one in CLASSES]
    return images[np.concatenate(kept)], np.repeat([0, 1], [len(one) for one in kept])


def prepare(images: np.ndarray) -> torch.Tensor:
    """Return images as timm's own evaluation transform makes them."""
    config = timm.data.resolve_model_data_config(timm.create_model(NETWORK), args={"img_size": SIDE, "crop_pct": 1.0})
    transform = timm.data.create_transform(**config, is_training=False)
    return torch.stack([transform(Image.fromarray(image)) for image in images])


def fine_tune(assets: Path, folder: Path) -> nn.Module:
    """Train a network on two classes for a few seconds and save it by timm's CheckpointSaver."""
    from timm.utils import CheckpointSaver

    torch.manual_seed(0)
    network = timm.create_model(NETWORK, num_classes=len(CLASSES))
    images, labels = select(assets, "cifar10_train_5000.npz", 300)
    inputs, truth = prepare(images), torch.from_numpy(labels)
    optimizer = torch.optim.AdamW(network.parameters(), lr=2e-3)
    for _ in range(8):
        for part in torch.randperm(len(inputs)).split(50):
            optimizer.zero_grad()
            nn.functional.cross_entropy(network(inputs[part]), truth[part]).backward()
            optimizer.step()
    args = argparse.Namespace(model=NETWORK, num_classes=len(CLASSES), lr=2e-3)
    saver = CheckpointSaver(network, optimizer, args=args, checkpoint_dir=str(folder), recovery_dir=str(folder))
    saver.save_checkpoint(epoch=0, metric=1.0)
    return network.eval()


@pytest.mark.slow
def test_a_fine_tuned_classifier(assets: Path, tmp_path: Path) -> None:
    network = fine_tune(assets, tmp_path)
    images, labels = select(assets, "cifar10_test_2000.npz", 20)
    (tmp_path / "photos").mkdir()
    for number, image in enumerate(images):
        Image.fromarray(image).save(tmp_path / "photos" / f"{number:02d}.png")
    (tmp_path / "classes.txt").write_text("\n".join(CLASSES))
    with torch.inference_mode():
        expected = network(prepare(images)).argmax(1)
    assert float((expected == torch.from_numpy(labels)).float().mean()) >= 0.75, "it learnt its classes"

    story = Story("a fine-tuned classifier and a flat folder of photographs", tmp_path)
    assert "timm:NAME[?checkpoint=FILE]" in story.type("brinell ls models")
    model = f"'timm:{NETWORK}?checkpoint=model_best.pth.tar&classes=classes.txt&size={SIDE}&short_side={SIDE}'"
    run = f"brinell run --model {model} --data photos/ --operator jpeg --operator white_fog --levels 5 --out runs/mine"
    story.refuse(run, advice="--labels prediction")
    told = story.type(f"{run} --labels prediction", attempt=True)
    story.correct()
    assert "JPEG" in told and "white fog" in told

    opened = brinell.Run(tmp_path / "runs" / "mine")
    clean = dict(opened.rows("select name, prediction from clean join samples using (index)").fetchall())
    assert [clean[name] for name in sorted(clean)] == expected.tolist(), "as timm itself answers"
    assert next(iter(opened.models.values())).classes == CLASSES

    found = json.loads(story.type("brinell summary runs/mine --json"))["lenses"]["profile"]
    assert {entry["operator"].partition(":")[0] for entry in found["areas"]} == {"jpeg", "white_fog"}
    (tmp_path / "rules.yaml").write_text("rules: [{measure: accuracy, operators: jpeg, levels: 5, min: 99}]")
    assert "gate: 1 of 1 rules failed" in story.type("brinell gate runs/mine --rules rules.yaml", code=1)
    story.type("brinell report runs/mine")
    assert "Gate failed" in (tmp_path / "runs" / "mine" / "report.html").read_text(encoding="utf-8")
    story.record()
