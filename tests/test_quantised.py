"""Quantised copies of models."""

from __future__ import annotations

import importlib.util
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

import brinell
from brinell.cli.main import main
from brinell.errors import ConfigError
from brinell.models.export import export
from brinell.models.preprocess import Format
from brinell.models.quantise import fp8_module, round_to_fp8
from conftest import PLAIN


def test_fp8_has_three_bits_of_mantissa_and_a_scale_per_channel() -> None:
    weight = torch.randn(5, 7, generator=torch.Generator().manual_seed(0)) * torch.logspace(-3, 3, 5)[:, None]
    rounded = round_to_fp8(weight)
    largest = weight.abs().amax(1, keepdim=True)
    assert torch.allclose(rounded.abs().amax(1, keepdim=True), largest, rtol=1e-6)
    error = (rounded - weight).abs()
    assert bool((error <= weight.abs() / 16 + largest * 2**-18).all()) and float(error.max()) > 0
    layer = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(4, 2))
    made = fp8_module(layer)
    assert torch.equal(made[0].weight, round_to_fp8(layer[0].weight)) and not torch.equal(made[3].weight, layer[3].weight)  # type: ignore[index,arg-type]
    assert torch.equal(made[1].weight, layer[1].weight) and torch.equal(made[0].bias, layer[0].bias)  # type: ignore[index,arg-type]


def agreement(source: str, quantised: str, assets: Path) -> float:
    """Return how often two models agree on some photographs."""
    models = [brinell.open_model(each, PLAIN) for each in (source, quantised)]
    assert models[0].fingerprint != models[1].fingerprint and "quantised" in models[1].facts
    data = brinell.open_dataset(assets / "images" / "imagenet_dev_300")
    inputs = torch.stack([models[0].preprocess.model_input(data[index].image) for index in range(0, 300, 30)])
    first, second = (model.predict(inputs) for model in models)
    alone = torch.cat([models[1].predict(each[None]) for each in inputs])
    assert torch.allclose(second, alone, atol=1e-5), "an image's scores don't depend on the others in its batch"
    assert not torch.equal(first, second)
    return float((first.argmax(1) == second.argmax(1)).to(torch.float32).mean())


@pytest.mark.parametrize("how", ["int8", "fp8", "int8&calibration={}"])
def test_a_real_network(how: str, assets: Path) -> None:
    source = f"onnx:{assets}/models/squeezenet1_1.onnx?classes=imagenet"
    chosen = how.format(assets / "images" / "imagenet_dev_300")
    assert agreement(source, f"{source}&quantise={chosen}", assets) >= 0.8


def write_net(folder: Path) -> str:
    """Write the code of a small network, and return its model string."""
    (folder / "nets.py").write_text(
        "import torch\nfrom torch import nn\n\ndef net():\n    torch.manual_seed(0)\n    return nn.Sequential("
        "nn.Conv2d(3, 8, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 4))\n"
    )
    return f"torch:{folder / 'nets.py'}:net?size=16"


def test_a_module(tmp_path: Path) -> None:
    source = write_net(tmp_path)
    plain, int8, fp8 = (brinell.open_model(source + more, PLAIN) for more in ("", "&quantise=int8", "&quantise=fp8"))
    assert (plain.name, int8.name, fp8.name) == ("net", "net-int8", "net-fp8")
    inputs = torch.randint(0, 256, (3, 3, 16, 16), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    for model in (int8, fp8):
        assert torch.allclose(model.predict(inputs), plain.predict(inputs), atol=0.02)
        assert model.fingerprint != plain.fingerprint
    assert int8.differentiable is None and fp8.differentiable is not None
    assert int8.takes == Format()
    assert brinell.open_model(f"{source}&quantise=int8", PLAIN).fingerprint == int8.fingerprint
    with pytest.raises(ConfigError, match="calibration is an option of quantise=int8"):
        brinell.open_model(f"{source}&quantise=fp8&calibration={tmp_path}")
    with pytest.raises(ConfigError, match="is not a folder with image files"):
        brinell.open_model(f"{source}&quantise=int8&calibration={tmp_path}")


DENSE = """
import torch
from torch import nn

def dense():
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 3, 3, padding=1))

class Last(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = dense()

    def forward(self, images):
        return self.net(images.permute(0, 3, 1, 2))
"""


def few_inputs() -> torch.Tensor:
    return torch.randint(0, 256, (4, 3, 16, 16), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("kind", ["torch", "onnx"])
@pytest.mark.parametrize("how", ["int8", "fp8"])
def test_segmenters_and_embedders(kind: str, how: str, tmp_path: Path) -> None:
    (tmp_path / "dense.py").write_text(DENSE)
    source = f"torch:{tmp_path / 'dense.py'}:dense"
    if kind == "onnx":
        module = brinell.open_model(f"{source}?size=16&task=segmentation", PLAIN).internals
        assert module is not None
        export(module.module, torch.zeros(2, 3, 16, 16), tmp_path / "dense.onnx", "dense")
        source = f"onnx:{tmp_path / 'dense.onnx'}"
    inputs = few_inputs() // torch.tensor([1, 2, 4, 8], dtype=torch.uint8)[:, None, None, None]  # other ranges
    for task in ("segmentation", "embedding"):
        plain, made = (
            brinell.open_model(f"{source}?size=16&task={task}{more}", PLAIN) for more in ("", f"&quantise={how}")
        )
        assert made.fingerprint != plain.fingerprint and made.facts["quantised"].startswith(how)
        run = (
            (lambda model, part: model.segment(part)) if task == "segmentation" else (lambda model, part: model.embed(part))
        )
        exact, found = run(plain, inputs), run(made, inputs)
        alone = torch.cat([run(made, each[None]) for each in inputs])
        if task == "segmentation":
            assert float((exact == found).to(torch.float32).mean()) > 0.9 and torch.equal(found, alone)
        else:
            assert float((exact * found).sum(1).min()) > 0.98 and torch.allclose(found, alone, atol=1e-5)
            assert not torch.equal(exact, found)


def test_the_layout_of_a_segmenters_input_is_an_option(tmp_path: Path) -> None:
    """An input whose shape doesn't say which axis has the channels."""
    (tmp_path / "dense.py").write_text(DENSE)
    first = f"torch:{tmp_path / 'dense.py'}:dense?size=16&task=segmentation"
    spec = importlib.util.spec_from_file_location("dense_nets", tmp_path / "dense.py")
    assert spec is not None and spec.loader is not None
    nets = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(nets)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        axes = {"images": {0: "batch", 1: "height", 2: "width", 3: "channels"}}
        torch.onnx.export(
            nets.Last().eval(),
            (torch.zeros(1, 16, 16, 3),),
            str(tmp_path / "last.onnx"),
            dynamo=False,
            input_names=["images"],
            dynamic_axes=axes,
        )
    file = brinell.open_model(f"onnx:{tmp_path / 'last.onnx'}?size=16&task=segmentation&layout=nhwc", PLAIN)
    expected = brinell.open_model(first, PLAIN).segment(few_inputs())
    assert float((file.segment(few_inputs()) == expected).to(torch.float32).mean()) > 0.99


def test_did_quantisation_cost_robustness(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Two runs, and one compare."""
    photos = tmp_path / "photos"
    photos.mkdir()
    for index in range(4):
        ramp = np.linspace(20 + 20 * index, 230, 64).astype(np.uint8)
        Image.fromarray(np.repeat(np.tile(ramp, (64, 1))[..., None], 3, 2)).save(photos / f"{index}.png")
    data, lens = {"source": str(photos), "labels": "prediction"}, {"name": "profile", "operators": ["noise"], "levels": 2}
    for more in ("fp8", "int8"):
        source = f"{write_net(tmp_path)}&name=net&quantise={more}"
        brinell.run(source, data, lens=lens, out=tmp_path / more, execution=PLAIN, quiet=True)
    main(["compare", str(tmp_path / "fp8"), str(tmp_path / "int8")])
    assert "noise" in capsys.readouterr().out
