"""Saliency maps compared with those of pytorch-grad-cam."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import brinell
from brinell import Execution, wrap
from brinell.saliency import cam
from brinell.saliency.cam import gradcam_plus_plus_weights
from brinell.saliency.layers import NoSaliency
from brinell.saliency.mapper import open_mapper

theirs = pytest.importorskip("pytorch_grad_cam", reason="needs grad-cam: make test-zoo", exc_type=ImportError)
timm = pytest.importorskip("timm", reason="needs timm: make test-zoo", exc_type=ImportError)
models = pytest.importorskip("torchvision.models", reason="needs torchvision: make test-zoo", exc_type=ImportError)
EAGER = Execution(device="cpu", runtime="torch")


def tokens_to_maps(output: Tensor) -> Tensor:
    """The reshape that pytorch-grad-cam's README gives for a ViT of 14 by 14 patches."""
    return output[:, 1:].reshape(len(output), 14, 14, output.shape[2]).permute(0, 3, 1, 2)


def channels_last(output: Tensor) -> Tensor:
    return output.permute(0, 3, 1, 2)


def seeded(make: Any, *names: Any, **options: Any) -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        net: nn.Module = make(*names, **options).eval()
    return net


def resnet() -> tuple[nn.Module, str, Any]:
    return seeded(models.resnet18), "layer4", None


def mobilenet() -> tuple[nn.Module, str, Any]:
    return seeded(models.mobilenet_v2), "features", None


def vit() -> tuple[nn.Module, str, Any]:
    return seeded(timm.create_model, "vit_tiny_patch16_224"), "blocks.11.norm1", tokens_to_maps


def swin() -> tuple[nn.Module, str, Any]:
    return seeded(timm.create_model, "swin_tiny_patch4_window7_224"), "norm", channels_last


@pytest.mark.parametrize("make", [resnet, mobilenet, vit, swin])
@pytest.mark.parametrize("method", ["gradcam", "gradcam++"])
def test_maps_are_those_of_pytorch_grad_cam(make: Any, method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    net, layer, reshape = make()
    # their Grad-CAM++ adds 1e-6 to the denominator; the papers' formula does not
    monkeypatch.setitem(cam.WEIGHTS, "gradcam++", lambda a, g: gradcam_plus_plus_weights(a, g, 1e-6))
    model = wrap(net, size=224, mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225), execution=EAGER)
    mapper = open_mapper(model, method)  # type: ignore[arg-type]
    assert mapper.layer.name == layer
    values = (torch.arange(3 * 3 * 224 * 224) * 2654435761 >> 7) % 256
    inputs = values.to(torch.uint8).view(3, 3, 224, 224)
    classes = [1, 7, 400]
    with mapper:
        ours = mapper.maps(inputs, torch.tensor(classes)).numpy()
    target = theirs.utils.model_targets.ClassifierOutputTarget
    made = {"gradcam": theirs.GradCAM, "gradcam++": theirs.GradCAMPlusPlus}[method]
    with made(net, [net.get_submodule(layer)], reshape_transform=reshape) as their:
        expected = their(model.preprocess.normalise(inputs).requires_grad_(), [target(k) for k in classes])
    for mine, other in zip(ours, expected, strict=True):
        # theirs is scaled once more after it is enlarged, and divides by the maximum plus 1e-7
        mine = (mine - mine.min()) / max(1e-7, float((mine - mine.min()).max()))
        assert np.abs(mine - other).max() < 0.02
        if other.max() > 0.5:
            assert np.corrcoef(mine.ravel(), other.ravel())[0, 1] > 0.999


@pytest.mark.parametrize(
    ("name", "layer"),
    [
        ("resnet18", "layer4"),
        ("densenet121", "features"),
        ("vgg11", "features.19"),
        ("efficientnet_b0", "bn2"),
        ("convnext_atto", "norm_pre"),
        ("deit_tiny_distilled_patch16_224", "blocks.11.norm1"),
    ],
)
def test_the_layer_that_people_would_name_is_found(name: str, layer: str) -> None:
    net = timm.create_model(name).eval()
    model = wrap(net, size=net.default_cfg["input_size"][1], execution=EAGER)
    assert open_mapper(model).layer.name == layer


def test_a_model_that_only_answers_has_no_mapper() -> None:
    with pytest.raises(NoSaliency):
        open_mapper(wrap(nn.Sequential(nn.Flatten(), nn.Linear(3 * 64, 4)), size=8, execution=EAGER))


def test_a_detector_of_torchvision_has_maps_of_its_boxes() -> None:
    """It returns labels, which have no gradient, and scores of boxes, which have one."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        source = "torchvision:ssdlite320_mobilenet_v3_large?pretrained=false&score_threshold=0.01"
        model = brinell.open_model(source, EAGER)
    values = (torch.arange(2 * 3 * 320 * 320) * 2654435761 >> 7) % 256
    inputs = values.to(torch.uint8).view(2, 3, 320, 320)
    scores, detections = model.answer(inputs)
    classes = scores.argmax(1)
    with open_mapper(model) as mapper:
        maps, boxes = mapper.box_maps(inputs, classes)
    assert mapper.method == "odam" and detections is not None
    for index in range(2):
        own = detections.boxes[index][detections.labels[index] == classes[index]][0]
        torch.testing.assert_close(boxes[index], own)
        assert float(maps[index].max()) > 0.5
