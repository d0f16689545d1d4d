"""Classifiers give the scores of their library's own pipeline, transforms included, on photographs that need no resize."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

import brinell
from brinell.config.execution import Execution
from brinell.models.model import Model
from conftest import PLAIN

timm = pytest.importorskip("timm", reason="needs timm: make test-zoo", exc_type=ImportError)
torchvision = pytest.importorskip("torchvision", reason="needs torchvision: make test-zoo", exc_type=ImportError)
transformers = pytest.importorskip("transformers", reason="needs transformers: make test-zoo", exc_type=ImportError)
skimage = pytest.importorskip("skimage", reason="needs scikit-image")
pytestmark = pytest.mark.filterwarnings("ignore")


def photograph(model: Model) -> Image.Image:
    """A photograph whose resize is the identity: libraries round differently between resizing and normalising."""
    side = model.preprocess.short_side or model.preprocess.height
    return Image.fromarray(skimage.data.astronaut()).resize((side, side), Image.Resampling.BICUBIC)


def scores(model: Model, picture: Image.Image) -> Tensor:
    pixels = torch.from_numpy(np.asarray(picture).copy()).permute(2, 0, 1)
    return model.predict(model.preprocess.model_input(pixels)[None])[0]


def assert_same(found: Tensor, expected: Tensor) -> None:
    """Random weights give all classes about the same score, so logarithms are compared, too."""
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=0)
    torch.testing.assert_close(found.log(), expected.log(), atol=5e-5, rtol=0)


@pytest.mark.parametrize("execution", [PLAIN, Execution(runtime="onnxruntime")], ids=["torch", "onnxruntime"])
@pytest.mark.parametrize("source", ["timm:resnet18", "timm:vit_tiny_patch16_224", "torchvision:resnet18"])
def test_networks_by_name(source: str, execution: Execution) -> None:
    torch.manual_seed(1)
    model = brinell.open_model(f"{source}?pretrained=false", execution)
    library, _, name = source.partition(":")
    torch.manual_seed(1)
    if library == "timm":
        network = timm.create_model(name).eval()
        transform = timm.data.create_transform(**timm.data.resolve_model_data_config(network), is_training=False)
    else:
        network = torchvision.models.get_model(name, weights=None).eval()
        transform = torchvision.models.get_model_weights(name).DEFAULT.transforms()
    picture = photograph(model)
    with torch.inference_mode():
        expected = network(transform(picture)[None]).softmax(1)[0]
    assert_same(scores(model, picture), expected)


def test_hugging_face(tmp_path: Path) -> None:
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
    transformers.ViTForImageClassification(transformers.ViTConfig(num_labels=7, **sizes)).save_pretrained(tmp_path)
    transformers.ViTImageProcessor().save_pretrained(tmp_path)
    model = brinell.open_model(f"hf:{tmp_path}", PLAIN)
    picture = photograph(model)
    pipeline = transformers.pipeline("image-classification", model=str(tmp_path), device="cpu")
    expected = {each["label"]: each["score"] for each in pipeline(picture, top_k=7, function_to_apply="softmax")}
    assert model.classes is not None and len(expected) == 7
    named = [expected[name] for name in model.classes.names]
    assert_same(scores(model, picture), torch.tensor(named))
