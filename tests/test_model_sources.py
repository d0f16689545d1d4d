"""Models by their strings: torch factories, weights files, ONNX files and their options."""

from __future__ import annotations

import argparse
import json
import pickle
import sys
from collections import OrderedDict
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

import brinell
from brinell.config.model import ModelOptions
from brinell.errors import BrinellError, ConfigError, MissingExtra, ModelError, UnknownName, install_command
from brinell.models.checkpoints import build_with_checkpoint
from brinell.models.exports import weights_fingerprint
from brinell.models.options import select_classes, select_preprocess
from brinell.models.preprocess import Preprocess
from brinell.models.sources import check_model, open_model
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
        ("resnet50", "doesn't say what kind of model"),
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
        with pytest.raises(MissingExtra, match=rf"pip install .*\[{extra}\]'"):
            open_model(f"{name}:anything", PLAIN)


ORIGINS: dict[str, tuple[dict[str, Any] | None, str]] = {
    "an index": (None, "pip install 'brinell[timm]'"),
    "a clone": (
        {"url": "file:///home/me/my%20clone", "dir_info": {"editable": True}},
        "pip install --editable '/home/me/my clone[timm]'",
    ),
    "a folder": ({"url": "file:///home/me/clone", "dir_info": {}}, "pip install '/home/me/clone[timm]'"),
    "a repository": (
        {"url": "https://host/brinell.git", "vcs_info": {"vcs": "git", "commit_id": "1"}},
        "pip install 'brinell[timm] @ git+https://host/brinell.git'",
    ),
    "a wheel": (
        {"url": "file:///tmp/brinell.whl", "archive_info": {}},
        "pip install 'brinell[timm] @ file:///tmp/brinell.whl'",
    ),
}


@pytest.mark.parametrize("origin", ORIGINS)
def test_an_extra_is_installed_from_where_the_package_came_from(origin: str, monkeypatch: pytest.MonkeyPatch) -> None:
    content, command = ORIGINS[origin]

    class Installed:
        def read_text(self, name: str) -> str | None:
            return None if content is None else json.dumps(content)

    monkeypatch.setattr("brinell.errors.distribution", lambda name: Installed())
    assert install_command("timm") == command


def test_in_its_own_clone_the_command_is_short(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise PackageNotFoundError

    monkeypatch.setattr("brinell.errors.distribution", missing)
    monkeypatch.chdir(Path(brinell.__file__).parents[2])
    assert install_command("hf") == "pip install --editable '.[hf]'"


# ---- checkpoints of fine-tuned networks; tests/zoo opens those of timm and torchvision ----


def network(classes: int | None = None) -> nn.Module:
    """A network with a block like that of a ResNet, and 1000 classes by default."""
    block = OrderedDict(conv1=nn.Conv2d(4, 4, 3), bn1=nn.BatchNorm2d(4))
    layers = OrderedDict(conv1=nn.Conv2d(3, 4, 3), layer1=nn.Sequential(block), pool=nn.AdaptiveAvgPool2d(1))
    return nn.Sequential(layers | OrderedDict(flat=nn.Flatten(), fc=nn.Linear(4, classes or 1000)))


WRAPPED: dict[str, Callable[[dict[str, Any]], Any]] = {
    "plain": lambda state: state,
    "state_dict": lambda state: {"state_dict": state, "epoch": 3, "args": argparse.Namespace(lr=0.1)},
    "model": lambda state: {"model": state, "optimizer": {"lr": 0.1}},
    "twice": lambda state: {"checkpoint": 1, "model": {"state_dict": state}},
    "parallel": lambda state: {"state_dict": {f"module.{name}": value for name, value in state.items()}},
    "lightning": lambda state: {
        "state_dict": {f"model.{name}": value for name, value in state.items()} | {"loss.weight": torch.ones(7)}
    },
    "compiled": lambda state: {f"module._orig_mod.{name}": value for name, value in state.items()},
    "averaged": lambda state: {
        "state_dict": {name: torch.zeros_like(value) for name, value in state.items()},
        "state_dict_ema": state,
    },
}


@pytest.mark.parametrize("how", WRAPPED)
def test_checkpoints_of_training_scripts(how: str, tmp_path: Path) -> None:
    saved = network(7)
    torch.save(WRAPPED[how](dict(saved.state_dict())), tmp_path / "best.pth.tar")
    opened, classes = build_with_checkpoint(network, tmp_path / "best.pth.tar", 1000)
    assert classes == 7 and weights_fingerprint(opened) == weights_fingerprint(saved)


def test_a_checkpoint_of_the_usual_classes_and_one_as_safetensors(tmp_path: Path) -> None:
    for classes in (None, 5):
        saved = network(classes)
        save_file(saved.state_dict(), tmp_path / "w.safetensors")
        opened, found = build_with_checkpoint(network, tmp_path / "w.safetensors", 1000, classes)
        assert found == (classes or 1000) and weights_fingerprint(opened) == weights_fingerprint(saved)


def test_checkpoints_that_can_t_be_opened(tmp_path: Path) -> None:
    def fails(content: Any, message: str, *, classes: int | None = None, trust: bool = False) -> None:
        torch.save(content, tmp_path / "w.pth")
        with pytest.raises(BrinellError, match=message) as failure:
            build_with_checkpoint(network, tmp_path / "w.pth", 1000, classes, trust=trust)
        assert "\n" not in str(failure.value)

    state = dict(network(7).state_dict())
    fails(state, "w.pth has weights for 7 classes, but classes has 9; check both", classes=9)
    fails({"epoch": 3, "lr": 0.1}, r"expected weights in w\.pth, or .* under one of .*state_dict.*got dict with epoch, lr")
    fails([1, 2], "got list")
    fails({name: value for name, value in state.items() if name != "conv1.bias"}, "doesn't fit a network of 7 classes")
    fails(network(7), "can't be loaded without running code from it; use a safetensors file, or --trust")
    assert build_with_checkpoint(network, tmp_path / "w.pth", 1000, trust=True)[1] == 7, "a pickled module, trusted"
    with pytest.raises(ModelError, match=r"there is no weights file .*none\.pth"):
        build_with_checkpoint(network, tmp_path / "none.pth", 1000)
    with pytest.raises(ConfigError, match=r"checkpoint is an option of timm:, torchvision:, open_clip:, not of hf:"):
        open_model("hf:x?checkpoint=w.pth")


def test_options_of_checkpoints_are_checked_before_a_library_is_imported(tmp_path: Path) -> None:
    (tmp_path / "w.pth").touch()
    check_model(ModelOptions.model_validate(f"timm:resnet18?checkpoint={tmp_path}/w.pth&classes=7"))
    with pytest.raises(ModelError, match=r"there is no weights file none\.pth; check the path"):
        check_model(ModelOptions.model_validate("timm:resnet18?checkpoint=none.pth"))
    with pytest.raises(ConfigError, match="class list 'seven' is not a file"):
        check_model(ModelOptions.model_validate("timm:resnet18?classes=seven"))


def test_a_checkpoint_is_part_of_what_a_run_is_and_its_absence_is_not() -> None:
    plain = ModelOptions.model_validate("timm:resnet18")
    assert "checkpoint" not in plain.model_dump(mode="json") | plain.model_dump(exclude_none=True)
    given = ModelOptions.model_validate("timm:resnet18?checkpoint=w.pth&classes=7")
    assert given.model_dump(mode="json")["checkpoint"] == "w.pth" and given.class_count == 7
    assert ModelOptions.model_validate({"source": "timm:resnet18", "classes": 7}).class_count == 7


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
