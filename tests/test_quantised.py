"""Quantised copies of models."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

import brinell
from brinell.cli.main import main
from brinell.errors import ConfigError
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
    assert brinell.open_model(f"{source}&quantise=int8", PLAIN).fingerprint == int8.fingerprint
    with pytest.raises(ConfigError, match="calibration is an option of quantise=int8"):
        brinell.open_model(f"{source}&quantise=fp8&calibration={tmp_path}")
    with pytest.raises(ConfigError, match="is not a folder with image files"):
        brinell.open_model(f"{source}&quantise=int8&calibration={tmp_path}")


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
