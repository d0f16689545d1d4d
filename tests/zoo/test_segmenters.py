"""Segmenters of torchvision and Hugging Face: the same masks as the libraries' own pipelines make."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor, nn

import brinell
import shapes
from brinell.errors import ModelError
from brinell.models.sources import open_model
from conftest import PLAIN

SIDE = 64
NAMES = dict(enumerate(shapes.CLASSES))


@pytest.fixture(scope="module")
def pictures() -> list[Image.Image]:
    return [Image.fromarray(image) for image in shapes.pictures(4, SIDE)[0]]


def inputs(model: brinell.Model, pictures: list[Image.Image]) -> Tensor:
    images = [torch.from_numpy(np.array(picture)).permute(2, 0, 1) for picture in pictures]
    return torch.stack([model.preprocess.model_input(image) for image in images])


@pytest.fixture(scope="module")
def segformer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small SegFormer, trained on shapes for some seconds."""
    transformers = pytest.importorskip("transformers")
    folder = tmp_path_factory.mktemp("segformer")
    config = transformers.SegformerConfig(
        num_labels=3, id2label=NAMES, hidden_sizes=[8, 8, 16, 16], depths=[1] * 4, decoder_hidden_size=16,
        num_attention_heads=[1, 1, 2, 2],
    )  # fmt: skip
    with torch.random.fork_rng():
        torch.manual_seed(0)
        net = transformers.SegformerForSemanticSegmentation(config).train()
        images, masks = (torch.from_numpy(each) for each in shapes.pictures(8, SIDE))
        pixels = (images.permute(0, 3, 1, 2) / 255 - 0.45) / 0.25
        optimiser = torch.optim.Adam(net.parameters(), 0.01)
        for _ in range(15):
            optimiser.zero_grad()
            net(pixel_values=pixels, labels=masks.long()).loss.backward()
            optimiser.step()
    net.eval().save_pretrained(folder)
    processor = transformers.SegformerImageProcessor(
        size={"height": SIDE, "width": SIDE}, image_mean=[0.45] * 3, image_std=[0.25] * 3
    )
    processor.save_pretrained(folder)
    return folder


def test_segformer_gives_the_masks_of_its_pipeline(segformer: Path, pictures: list[Image.Image]) -> None:
    transformers = pytest.importorskip("transformers")
    model = open_model(f"hf:{segformer}", PLAIN)
    assert (model.task, model.outputs) == ("segmentation", 3)
    assert model.classes is not None and model.classes.names == shapes.CLASSES
    pipeline = transformers.pipeline("image-segmentation", model=str(segformer), device="cpu")
    found = model.segment(inputs(model, pictures))
    for number, picture in enumerate(pictures):
        parts = pipeline(picture)
        assert {part["label"] for part in parts} == {NAMES[label] for label in found[number].unique().tolist()}
        for part in parts:
            label = shapes.CLASSES.index(part["label"])
            assert np.array_equal(np.array(part["mask"]) > 0, (found[number] == label).numpy())


def test_segformer_scores_match_the_library(segformer: Path, pictures: list[Image.Image]) -> None:
    transformers = pytest.importorskip("transformers")
    model = open_model(f"hf:{segformer}", PLAIN)
    net = transformers.AutoModelForSemanticSegmentation.from_pretrained(segformer).eval()
    processor = transformers.AutoImageProcessor.from_pretrained(segformer)
    with torch.inference_mode():
        logits = net(**processor(pictures, return_tensors="pt")).logits
    assert model.internals is not None
    ours = model.internals.scores(model.preprocess.normalise(inputs(model, pictures)))
    torch.testing.assert_close(ours.exp(), logits.softmax(1).mean((2, 3)), atol=1e-5, rtol=0)


def test_segformer_runs_faster_in_onnxruntime_with_the_same_masks(segformer: Path, pictures: list[Image.Image]) -> None:
    model, plain = open_model(f"hf:{segformer}"), open_model(f"hf:{segformer}", PLAIN)
    given = inputs(model, pictures)
    assert model.facts["runtime"] == "onnxruntime"
    assert float((model.segment(given) != plain.segment(given)).float().mean()) < 1e-3


def test_mask2former_is_decoded_by_its_processor(tmp_path: Path, pictures: list[Image.Image]) -> None:
    transformers = pytest.importorskip("transformers")
    swin = transformers.SwinConfig(
        image_size=SIDE, embed_dim=8, depths=[1, 1, 1, 1], num_heads=[1, 1, 2, 2], window_size=4,
        out_features=["stage1", "stage2", "stage3", "stage4"],
    )  # fmt: skip
    config = transformers.Mask2FormerConfig(
        backbone_config=swin, num_labels=3, id2label=NAMES, feature_size=32, mask_feature_size=32, hidden_dim=32,
        encoder_feedforward_dim=16, dim_feedforward=16, encoder_layers=1, decoder_layers=2, num_queries=5,
        num_attention_heads=2,
    )  # fmt: skip
    with torch.random.fork_rng():
        torch.manual_seed(1)
        net = transformers.Mask2FormerForUniversalSegmentation(config).eval()
    net.save_pretrained(tmp_path)
    processor = transformers.Mask2FormerImageProcessor(size={"height": SIDE, "width": SIDE}, image_std=[0.3] * 3)
    processor.save_pretrained(tmp_path)
    model = open_model(f"hf:{tmp_path}", PLAIN)
    with torch.inference_mode():
        outputs = net(**processor(pictures, return_tensors="pt"))
    expected = processor.post_process_semantic_segmentation(outputs, target_sizes=[(SIDE, SIDE)] * len(pictures))
    found = model.segment(inputs(model, pictures))
    assert float((found == torch.stack(expected)).float().mean()) > 0.999
    assert model.differentiable is None


@pytest.mark.parametrize("name", ["lraspp_mobilenet_v3_large", "deeplabv3_mobilenet_v3_large"])
def test_torchvision_segmenters(name: str, pictures: list[Image.Image], tmp_path: Path) -> None:
    models: Any = pytest.importorskip("torchvision").models
    with torch.random.fork_rng():
        torch.manual_seed(0)
        net: nn.Module = models.get_model(name, weights=None, weights_backbone=None, num_classes=3).eval()
    torch.save(net.state_dict(), tmp_path / "net.pt")
    (tmp_path / "classes.txt").write_text("\n".join(shapes.CLASSES))
    options = f"size={SIDE}&classes={tmp_path / 'classes.txt'}&checkpoint={tmp_path / 'net.pt'}"
    model = open_model(f"torchvision:{name}?{options}", PLAIN)
    given = inputs(model, pictures)
    with torch.inference_mode():
        expected = net(model.preprocess.normalise(given))["out"]
    assert torch.equal(model.segment(given), expected.argmax(1).to(torch.int16))
    assert (model.task, model.preprocess.mean) == ("segmentation", (0.485, 0.456, 0.406))
    assert model.internals is not None
    scores = model.internals.scores(model.preprocess.normalise(given)).exp()
    torch.testing.assert_close(scores, expected.softmax(1).mean((2, 3)), atol=1e-5, rtol=0)


def test_torchvisions_classes_are_known() -> None:
    pytest.importorskip("torchvision")
    model = open_model("torchvision:lraspp_mobilenet_v3_large?pretrained=false&size=64", PLAIN)
    assert model.outputs == 21
    assert model.classes is not None and model.classes.names[15] == "person"
    assert model.segmenter is not None and model.segmenter.background == 0
    with pytest.raises(ModelError, match="torchvision has no classifier, detector or segmenter 'deeplabv4'"):
        open_model("torchvision:deeplabv4", PLAIN)
