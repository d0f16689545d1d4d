"""Models by their strings: torch factories, weights files, ONNX files and their options."""

from __future__ import annotations

import pickle
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

import brinell
from brinell.config.model import ModelOptions
from brinell.errors import BrinellError, ConfigError, MissingExtra, ModelError, UnknownName
from brinell.models.modules import weights_fingerprint
from brinell.models.options import select_classes, select_preprocess
from brinell.models.preprocess import Preprocess
from brinell.models.sources import open_model
from conftest import PLAIN
from test_models import pixels

FACTORY = """
import torch
from torch import nn

def build():
    torch.manual_seed(3)
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 3))

number = 5
def nothing():
    return 7
"""


@pytest.fixture
def factory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "my_nets.py").write_text(FACTORY)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "my_nets", raising=False)
    return "my_nets:build"


def test_torch_factories_and_their_weights(factory: str, tmp_path: Path) -> None:
    model = open_model(f"torch:{factory}?size=20", PLAIN)
    assert (model.outputs, model.preprocess.height, model.name) == (3, 20, "build")
    by_file = open_model("torch:my_nets.py:build?size=20", PLAIN)
    assert by_file.fingerprint == model.fingerprint

    import my_nets  # type: ignore[import-not-found]

    other = my_nets.build()
    with torch.no_grad():
        other[0].weight.mul_(2)
    save_file(other.state_dict(), tmp_path / "w.safetensors")
    torch.save(other.state_dict(), tmp_path / "w.pt")
    torch.save({"state_dict": other.state_dict(), "epoch": 3}, tmp_path / "c.pth")
    for file in ("w.safetensors", "w.pt", "c.pth"):
        loaded = open_model(f"torch:{file}?factory={factory}&size=20", PLAIN)
        assert loaded.fingerprint == weights_fingerprint(other)


class Payload:
    """Would run code if it were unpickled."""

    def __reduce__(self) -> tuple[object, ...]:
        return (Path("owned").write_text, ("yes",))


def test_weights_are_not_unpickled_unless_trusted(factory: str, tmp_path: Path) -> None:
    with (tmp_path / "evil.pt").open("wb") as file:
        pickle.dump({"weight": Payload()}, file)
    torch.save({"0.weight": Payload()}, tmp_path / "evil2.pt")
    for name in ("evil.pt", "evil2.pt"):
        with pytest.raises(ModelError, match="--trust"):
            open_model(f"torch:{name}?factory={factory}", PLAIN)
    assert not (tmp_path / "owned").exists()


def test_a_whole_module_needs_trust(factory: str, tmp_path: Path) -> None:
    torch.save(nn.Sequential(nn.Flatten(), nn.Linear(12, 2)), tmp_path / "whole.pt")
    with pytest.raises(ModelError, match="factory"):
        open_model("torch:whole.pt?size=2", PLAIN)
    assert open_model("torch:whole.pt?size=2", PLAIN.model_copy(update={"trust": True})).outputs == 2


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("torch:my_nets", "expected torch:package.module:factory"),
        ("torch:not_there:build", "can't import not_there"),
        ("torch:my_nets:bild", "no function or class 'bild'"),
        ("torch:my_nets:number", "no function or class"),
        ("torch:my_nets:nothing", "should return a torch.nn.Module, but returned int"),
        ("torch:gone.safetensors?factory=my_nets:build", "there is no weights file gone.safetensors"),
        ("onnx:gone.onnx", "there is no ONNX file"),
        ("resnet50", "no model source 'resnet50'"),
        ("tim:resnet50", "did you mean timm"),
        ("fake:purple", "expected fake:grey"),
    ],
)
def test_invalid_model_strings_raise(factory: str, text: str, reason: str) -> None:
    with pytest.raises(BrinellError, match=reason):
        open_model(text, PLAIN)


def test_options_in_the_string() -> None:
    options = ModelOptions.model_validate(
        "onnx:a/b.onnx?size=192,256&mean=0.5,0.5,0.5&std=0.5&channels=3&resize=crop&name=mine"
    )
    pre = select_preprocess(options, Preprocess())
    assert (pre.height, pre.width, pre.mean, pre.std, pre.short_side) == (192, 256, (0.5, 0.5, 0.5), (0.5,), 293)
    assert options.label == "mine"


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("onnx:a/b.onnx", "b"),
        ("timm:resnet50.a1_in1k", "resnet50.a1_in1k"),
        ("hf:google/vit-base", "vit-base"),
        ("torch:my.nets:build", "build"),
        ("torch:w/best.v2.safetensors?factory=my.nets:build", "best.v2"),
        ("efficientnet_lite0", "efficientnet_lite0"),
        ("fake:grey:0.3", "grey:0.3"),
    ],
)
def test_models_are_named_by_their_strings(source: str, name: str) -> None:
    assert ModelOptions.model_validate(source).label == name


def test_invalid_options_raise() -> None:
    with pytest.raises(ConfigError, match="mean should be one number, or one for each of the 3 channels"):
        select_preprocess(ModelOptions.model_validate("fake:grey?mean=1,2"), Preprocess())
    with pytest.raises(ConfigError, match="class list"):
        select_classes(ModelOptions.model_validate("fake:grey?classes=/nowhere.txt"), None)
    with pytest.raises(ConfigError, match="size"):
        select_preprocess(ModelOptions.model_validate("fake:grey?size=1,2,3"), Preprocess())


def test_a_missing_extra_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for package, extra in (("timm", "timm"), ("torchvision", "torchvision"), ("transformers", "hf")):
        monkeypatch.setitem(sys.modules, package, None)
        name = {"transformers": "hf"}.get(package, package)
        with pytest.raises(MissingExtra, match=rf"pip install 'brinell\[{extra}\]'"):
            open_model(f"{name}:anything", PLAIN)


def test_unknown_source_is_an_unknown_name() -> None:
    with pytest.raises(UnknownName):
        open_model("nothing:at-all")


def test_a_failing_factory_and_invalid_weights_raise(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text("def broken():\n    raise KeyError('width')\n")
    with pytest.raises(ModelError, match=r"own\.py:broken can't be built: KeyError: 'width'"):
        brinell.open_model(f"torch:{tmp_path / 'own.py'}:broken", PLAIN)
    (tmp_path / "own.py").write_text("import torch\n\ndef good():\n    return torch.nn.Flatten()\n")
    (tmp_path / "weights.safetensors").write_bytes(b"none at all")
    with pytest.raises(ModelError, match=r"weights\.safetensors can't be read as safetensors"):
        brinell.open_model(f"torch:{tmp_path / 'weights.safetensors'}?factory={tmp_path / 'own.py'}:good", PLAIN)


# ---- real networks ----


@pytest.mark.parametrize(
    ("name", "size", "top1"),
    [("mobilenet_v2", 224, 0.857), ("squeezenet1_1", 224, 0.637), ("mobilenet_v1_075_192", 192, 0.77)],
)
def test_real_onnx_networks_have_their_known_accuracy(assets: Path, name: str, size: int, top1: float) -> None:
    """On the first 60 of 300 images; the expected accuracies are those of all 300."""
    from brinell.datasets.sources import open_dataset

    model = open_model(f"onnx:{assets}/models/{name}.onnx?classes={assets}/models/imagenet_classes.txt")
    data = open_dataset(assets / "images" / "imagenet_dev_300")
    assert model.preprocess.height == size
    samples = [data[index] for index in range(60)]
    inputs = torch.stack([model.preprocess.model_input(sample.image) for sample in samples])
    right = (model.predict(inputs).argmax(1) == torch.tensor([sample.label for sample in samples])).float().mean()
    assert float(right) == pytest.approx(top1, abs=0.12)


def test_a_network_scores_alike_in_torch_and_onnx(assets: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(assets / "models"))
    import nets  # type: ignore[import-not-found]

    module, (_, size, _), names = nets.load("mobilenet_v2")
    ours = brinell.wrap(module, size=size, classes=names, execution=PLAIN)
    theirs = open_model(f"onnx:{assets}/models/mobilenet_v2.onnx")
    images = pixels(3, size)
    assert torch.allclose(ours.predict(images), theirs.predict(images), atol=1e-3)


def test_grey_onnx_network(assets: Path) -> None:
    from brinell.datasets.sources import open_dataset

    model = open_model(f"onnx:{assets}/models/mnist_lenet5_clean.onnx")
    data = open_dataset(assets / "images" / "mnist_test.npz")
    assert model.preprocess.channels == 1
    inputs = torch.stack([model.preprocess.model_input(data[index].image) for index in range(200)])
    truth = torch.tensor([int(str(data[index].label)) for index in range(200)])
    assert float((model.predict(inputs).argmax(1) == truth).float().mean()) > 0.97


def test_the_built_in_lite0_scores_like_its_onnx_file(assets: Path) -> None:
    pytest.importorskip("efficientnet_lite_pytorch", reason="needs the demo extra")
    ours = open_model("efficientnet_lite0", PLAIN)
    theirs = open_model(f"onnx:{assets}/models/efficientnet_lite0.onnx")
    images = pixels(2, 224)
    assert torch.allclose(ours.predict(images), theirs.predict(images), atol=0.01)
