"""Models from torch modules: preprocessing, scores, gradients, runtimes and errors."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

import brinell
from brinell.api import open_setup
from brinell.config.execution import Execution
from brinell.engine.progress import Silent
from brinell.engine.runner import execute
from brinell.errors import ConfigError, ModelError
from brinell.models.device import select_device
from brinell.models.export import export_forward
from brinell.models.exports import weights_fingerprint
from brinell.models.model import pad_batch
from brinell.models.preprocess import Format, Preprocess
from conftest import PLAIN


class Small(nn.Module):
    """A small network for images of 16x16 pixels."""

    def __init__(self, classes: int = 4) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, 2)
        self.head = nn.Linear(8, classes)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.head(torch.relu(self.conv(images)).mean((2, 3)))


def small() -> Small:
    torch.manual_seed(0)
    return Small()


def pixels(count: int = 5, size: int = 16) -> torch.Tensor:
    return torch.randint(0, 256, (count, 3, size, size), dtype=torch.uint8, generator=torch.Generator().manual_seed(1))


# ---- model input and normalisation ----


def test_the_model_input_is_resized_as_in_pillow(photographs: torch.Tensor) -> None:
    image = photographs[1]
    picture = Image.fromarray(image.permute(1, 2, 0).numpy())
    stretched = Preprocess(60, 90, interpolation="bicubic").model_input(image)
    assert np.array_equal(stretched.permute(1, 2, 0), np.asarray(picture.resize((90, 60), Image.Resampling.BICUBIC)))
    wide = image[:, :100]
    cropped = Preprocess(60, 60, short_side=80, interpolation="bilinear").model_input(wide)
    resized = Image.fromarray(wide.permute(1, 2, 0).numpy()).resize((179, 80), Image.Resampling.BILINEAR)
    assert np.array_equal(cropped.permute(1, 2, 0), np.asarray(resized.crop((60, 10, 120, 70))))


def test_channels_are_converted_to_the_model_s() -> None:
    grey, colour = torch.full((1, 8, 8), 9, dtype=torch.uint8), torch.full((3, 8, 8), 9, dtype=torch.uint8)
    assert tuple(Preprocess(8, 8).model_input(grey).shape) == (3, 8, 8)
    assert tuple(Preprocess(8, 8, channels=1).model_input(colour).shape) == (1, 8, 8)


def test_normalisation() -> None:
    pre = Preprocess(16, 16, mean=(0.1, 0.2, 0.3), std=(0.5, 0.6, 0.7))
    expected = (pixels().double() / 255 - torch.tensor(pre.mean)[:, None, None]) / torch.tensor(pre.std)[:, None, None]
    assert torch.allclose(pre.normalise(pixels()).double(), expected, atol=1e-5)


# ---- torch ----


def test_a_wrapped_module_returns_the_module_s_scores() -> None:
    module = small()
    model = brinell.wrap(module, size=16, mean=[0.5] * 3, std=[0.25] * 3, classes=list("abcd"), execution=PLAIN)
    with torch.no_grad():
        expected = module((pixels().float() / 255 - 0.5) / 0.25).softmax(1)
    assert torch.allclose(model.predict(pixels()), expected, atol=1e-5)
    assert (model.outputs, model.probabilities) == (4, False)


def test_batches_that_share_memory_do_not_mix() -> None:
    """The scores of this network are a view of its input."""

    class Viewing(nn.Module):
        def forward(self, images: torch.Tensor) -> torch.Tensor:
            return images.flatten(1)[:, :4]

    execution = PLAIN.model_copy(update={"channels_last": False})  # which would be a copy
    model = brinell.wrap(Viewing(), size=16, mean=(0.0,), std=(1.0,), execution=execution)
    inputs = torch.arange(7 * 3 * 16 * 16).view(7, 3, 16, 16).remainder(251).to(torch.uint8)
    assert torch.equal(model.predict_in_batches(inputs, 2), model.predict(inputs))


def test_gradients_match_finite_differences_of_the_loss() -> None:
    model = brinell.wrap(small().double().float(), size=16, std=[0.5], execution=PLAIN)
    images, labels = pixels(2), torch.tensor([1, 3])
    found = model.gradient(images, labels)
    for row, channel, y, x in ((0, 0, 3, 4), (1, 2, 8, 8)):
        losses = []
        for step in (-1, 1):
            changed = images.clone()
            changed[row, channel, y, x] = 100 + 20 * step
            losses.append(float(-model.predict(changed)[row, labels[row]].log()))
        base = images.clone()
        base[row, channel, y, x] = 100
        slope = model.gradient(base, labels)[row, channel, y, x]
        assert float(slope) == pytest.approx((losses[1] - losses[0]) / 40, rel=0.2, abs=1e-6)
    assert found.shape == images.shape


def test_probabilities_get_no_softmax() -> None:
    model = brinell.wrap(nn.Sequential(small(), nn.Softmax(1)), size=16, execution=PLAIN)
    assert model.probabilities
    assert torch.allclose(model.predict(pixels()).sum(1), torch.ones(5))
    assert model.gradient(pixels(), torch.zeros(5, dtype=torch.int64)).abs().max() > 0


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_lower_precision_is_close(precision: str) -> None:
    exact = brinell.wrap(small(), size=16, execution=PLAIN).predict(pixels())
    rough = brinell.wrap(small(), size=16, execution=Execution(precision=precision, runtime="torch"))  # type: ignore[arg-type]
    assert torch.allclose(rough.predict(pixels()), exact, atol=0.02)
    assert rough.predict(pixels()).dtype == torch.float32


@pytest.mark.slow
def test_compiled_models_return_the_same_scores() -> None:
    exact = brinell.wrap(small(), size=16, execution=PLAIN).predict(pixels())
    compiled = brinell.wrap(small(), size=16, execution=Execution(compile=True, runtime="torch"))
    assert torch.allclose(compiled.predict(pixels()), exact, atol=1e-5)
    assert torch.allclose(compiled.predict(pixels()[:2]), exact[:2], atol=1e-5), "a smaller batch is padded"
    assert compiled.facts["runtime"] == "torch compiled"


def test_on_a_cpu_modules_run_in_onnxruntime() -> None:
    pytest.importorskip("onnxscript", reason="needs the onnx extra")
    exact = brinell.wrap(small(), size=16, execution=PLAIN).predict(pixels())
    fast = brinell.wrap(small(), size=16)
    assert fast.facts["runtime"] == "onnxruntime" and fast.takes == Format()
    for count in (1, 5):
        assert torch.allclose(fast.predict(pixels()[:count]), exact[:count], atol=1e-5)
    assert fast.gradient(pixels(), torch.zeros(5, dtype=torch.int64)).abs().max() > 0, "gradients still come from torch"


class Odd(nn.Module):
    """Depends on the images' values in Python, which no exporter can trace."""

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        total = torch.tensor([1.0 if float(image.mean()) > 0.5 else 0.0 for image in images])
        return torch.stack([total, -total], 1)


def test_a_module_that_can_t_be_exported_runs_in_torch() -> None:
    pytest.importorskip("onnxscript", reason="needs the onnx extra")
    assert brinell.wrap(Odd(), size=16).facts["runtime"] == "torch"
    with pytest.raises(ModelError, match="can't be exported"):
        export_forward(Odd(), Preprocess(16, 16), "odd")
    with pytest.raises(ModelError):
        brinell.wrap(Odd(), size=16, execution=Execution(runtime="onnxruntime"))


def test_fingerprints_depend_on_the_weights() -> None:
    first, second = small(), small()
    assert weights_fingerprint(first) == weights_fingerprint(second)
    with torch.no_grad():
        second.head.bias[0] += 1e-6
    assert weights_fingerprint(first) != weights_fingerprint(second)


# ---- invalid outputs ----


class Returns(nn.Module):
    """Returns a given value, or that of a function."""

    def __init__(self, output: object) -> None:
        super().__init__()
        self.output = output

    def forward(self, images: torch.Tensor) -> object:
        return self.output(images) if callable(self.output) else self.output


@pytest.mark.parametrize(
    ("output", "reason"),
    [
        (lambda x: x, r"should return scores of shape \(3, classes\), but returned \(3, 3, 16, 16\)"),
        (lambda x: {"logits": x}, "should return a tensor of scores .* returned dict"),
        (lambda x: torch.full((len(x), 4), torch.nan), "NaN for plain images"),
        (lambda x: torch.zeros(2, 4), "should return scores of shape"),
        (lambda x: x @ torch.zeros(7, 2), "can't be run on images of shape"),
    ],
)
def test_invalid_outputs_raise(output: object, reason: str) -> None:
    with pytest.raises(ModelError, match=reason):
        brinell.wrap(Returns(output), size=16, execution=PLAIN)


def test_a_class_list_of_the_wrong_length() -> None:
    with pytest.raises(ModelError, match="4 outputs, but its class list has 2 names"):
        brinell.wrap(small(), size=16, classes=["a", "b"], execution=PLAIN)


def test_a_missing_device_raises() -> None:
    with pytest.raises(ConfigError, match="no device 'gpu9'"):
        select_device(Execution(device="gpu9"))
    if not torch.cuda.is_available():
        with pytest.raises(ConfigError, match="use --device cpu or auto"):
            select_device(Execution(device="cuda"))


def test_batches_are_padded_to_the_next_power_of_two() -> None:
    for count, size in zip((8, 32, 5, 1, 3, 17), (8, 32, 8, 1, 4, 32), strict=True):
        images = torch.arange(count, dtype=torch.float32)[:, None, None, None].expand(-1, 1, 2, 2)
        padded = pad_batch(images)
        assert len(padded) == size
        assert torch.equal(padded[:count], images) and bool((padded[count:] == count - 1).all())


@pytest.mark.parametrize(("precision", "channels_last"), [("fp32", True), ("fp32", False), ("bf16", True)])
def test_images_are_normalised_in_the_format_of_the_module(precision: Any, channels_last: bool) -> None:
    given, seen = [], []

    class Seeing(Small):
        def forward(self, images: torch.Tensor) -> torch.Tensor:
            seen.append(images)
            return super().forward(images)

    execution = Execution(device="cpu", precision=precision, channels_last=channels_last, runtime="torch")
    model = brinell.wrap(Seeing(), size=16, mean=(0.4, 0.5, 0.6), execution=execution)
    watched = replace(model, forward=lambda images: given.append(images) or model.forward(images))
    probabilities = watched.predict(pixels())
    assert given[0] is seen[-1], "nothing was left to convert"
    assert given[0].dtype == {"fp32": torch.float32, "bf16": torch.bfloat16}[precision]
    assert given[0].is_contiguous(memory_format=torch.channels_last if channels_last else torch.contiguous_format)
    assert torch.equal(replace(model, takes=Format()).predict(pixels()), probabilities)


def test_wrapping_does_not_change_the_user_s_module() -> None:
    module = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * 64, 2)).train()
    brinell.wrap(module, size=8, execution=PLAIN)
    assert module.training
    assert all(weight.requires_grad for weight in module.parameters())


class Branching(nn.Module):
    """Branches on the images' values, so it can't be exported."""

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        means = images.mean((2, 3))[:, :2]
        return means if float(means.max()) > 0.3 else -means


def test_a_module_that_can_t_be_exported_reports_that_it_is_slower(greys: Path, tmp_path: Path) -> None:
    execution = Execution(batch=4, device="cpu")
    model = brinell.wrap(Branching(), size=16, classes=["light", "dark"], name="own", execution=execution)
    assert model.facts["runtime"] == "torch"
    assert "can't be exported" in model.facts["slower"]
    with pytest.raises(ModelError, match="can't be exported to ONNX"):
        brinell.wrap(Branching(), size=16, execution=Execution(runtime="onnxruntime"))

    messages: list[str] = []

    class Listening(Silent):
        def say(self, text: str) -> None:
            messages.append(text)

    lens = {"name": "profile", "operators": ["noise"], "levels": 1}
    execute(open_setup(model, greys, {"lens": lens, "out": tmp_path / "run"}, execution), Listening())
    assert any(text.startswith("own runs in eager torch, which can be several times slower: ") for text in messages)
