"""Embedders of timm, torchvision and Hugging Face: the vectors that the libraries return."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor
from torch.nn.functional import normalize

from brinell.models.model import Model
from brinell.models.sources import open_model
from conftest import PLAIN


@pytest.fixture(scope="module")
def pictures() -> list[Image.Image]:
    draw = np.random.default_rng(0)
    return [Image.fromarray(draw.integers(0, 256, (64, 64, 3), dtype=np.uint8)) for _ in range(3)]


def inputs(model: Model, pictures: list[Image.Image]) -> Tensor:
    images = [torch.from_numpy(np.array(picture)).permute(2, 0, 1) for picture in pictures]
    return torch.stack([model.preprocess.model_input(image) for image in images])


def test_timm_without_its_head(pictures: list[Image.Image]) -> None:
    timm = pytest.importorskip("timm")
    torch.manual_seed(0)
    model = open_model("timm:mobilenetv3_small_050?task=embedding&pretrained=false&size=64", PLAIN)
    torch.manual_seed(0)
    net = timm.create_model("mobilenetv3_small_050", pretrained=False, num_classes=0).eval()
    given = inputs(model, pictures)
    with torch.inference_mode():
        expected = normalize(net(model.preprocess.normalise(given)), dim=1)
    torch.testing.assert_close(model.embed(given), expected, atol=1e-5, rtol=0)
    assert model.task == "embedding"


def test_torchvision_without_its_head(pictures: list[Image.Image]) -> None:
    models: Any = pytest.importorskip("torchvision").models
    torch.manual_seed(0)
    model = open_model("torchvision:resnet18?task=embedding&pretrained=false&size=64", PLAIN)
    torch.manual_seed(0)
    net = models.resnet18().eval()
    net.fc = torch.nn.Identity()
    given = inputs(model, pictures)
    with torch.inference_mode():
        expected = normalize(net(model.preprocess.normalise(given)), dim=1)
    torch.testing.assert_close(model.embed(given), expected, atol=1e-5, rtol=0)


@pytest.mark.parametrize("kind", ["vit", "clip"])
def test_hugging_face(kind: str, tmp_path: Path, pictures: list[Image.Image]) -> None:
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    small = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    if kind == "vit":
        net = transformers.ViTModel(transformers.ViTConfig(image_size=32, patch_size=8, **small)).eval()
        processor = transformers.ViTImageProcessor(size={"height": 32, "width": 32})
    else:
        text = {"vocab_size": 50, "max_position_embeddings": 8, **small}
        config = transformers.CLIPConfig(
            text_config=text, vision_config={"image_size": 32, "patch_size": 8, **small}, projection_dim=12
        )
        net = transformers.CLIPModel(config).eval()
        processor = transformers.CLIPImageProcessor(size={"shortest_edge": 32}, crop_size={"height": 32, "width": 32})
    net.save_pretrained(tmp_path)
    processor.save_pretrained(tmp_path)
    model = open_model(f"hf:{tmp_path}?task=embedding", PLAIN)
    given = inputs(model, pictures)
    pixels = model.preprocess.normalise(given)
    with torch.inference_mode():
        if kind == "vit":
            raw = net(pixel_values=pixels).pooler_output
        else:
            raw = net.visual_projection(net.vision_model(pixel_values=pixels).pooler_output)
    torch.testing.assert_close(model.embed(given), normalize(raw, dim=1), atol=1e-5, rtol=0)
