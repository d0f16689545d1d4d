"""A changed model is noticed: its files, the code behind it, and its answers; so is one that answers at random."""

from __future__ import annotations

import importlib
import importlib.util
import itertools
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import brinell
from brinell.models.code import code_digest
from brinell.models.factory import _build
from brinell.models.onnx import file_fingerprint
from brinell.models.sources import open_model
from conftest import PLAIN

LENS = {"name": "profile", "operators": ["fade_black"], "levels": 2}
NET = """
import torch
from {helper} import scale
class Net(torch.nn.Module):
    def forward(self, images):
        above = (images.mean((1, 2, 3)) - 0.25) * scale()
        return torch.stack([above, -above], 1)
"""


def measure(model: Any, greys: Path, out: Path) -> brinell.Run:
    return brinell.run(model, {"source": str(greys), "labels": "index"}, lens=LENS, out=out, execution=PLAIN, quiet=True)


def write_net(folder: Path, scale: float) -> str:
    """Write a network in one file and a part of its code in another, and return the network's name."""
    name = f"helper_{folder.name.replace('-', '_')}"
    sys.modules.pop(name, None)
    (folder / f"{name}.py").write_text(f"def scale():\n    return {scale!r}\n")
    (folder / "net.py").write_text(NET.format(helper=name))
    return f"torch:{folder / 'net.py'}:Net?size=16"


def test_code_behind_a_factory_is_part_of_the_model(greys: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    net = write_net(tmp_path, 20.0)
    code = open_model(net, PLAIN).facts["code"]
    assert measure(net, greys, tmp_path / "run").finished
    measure(net, greys, tmp_path / "run")
    write_net(tmp_path, 20.00001)  # in the file that the factory's file imports; answers hardly change
    assert open_model(net, PLAIN).facts["code"] != code
    with pytest.raises(brinell.BrinellError, match=r"holds another run \(models\.Net\.code was"):
        measure(net, greys, tmp_path / "run")


def test_code_of_installed_packages_is_not(tmp_path: Path) -> None:
    assert (
        "code" not in brinell.wrap(nn.Sequential(nn.Flatten(), nn.Linear(48, 2)), size=4, name="own", execution=PLAIN).facts
    )


def test_external_weights_are_part_of_an_onnx_file(greys: Path, tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx", reason="needs the extra onnx")
    weights = np.zeros((3, 2), np.float32)
    weights[:, 0] = 9.0
    write_onnx(onnx, tmp_path / "net.onnx", weights)
    assert (tmp_path / "weights.bin").is_file()
    model = f"onnx:{tmp_path / 'net.onnx'}"
    before = open_model(model, PLAIN).fingerprint
    assert measure(model, greys, tmp_path / "run").finished
    weights[0, 1] += 1e-4
    (tmp_path / "weights.bin").write_bytes(weights.tobytes())
    assert open_model(model, PLAIN).fingerprint != before
    with pytest.raises(brinell.BrinellError, match=r"models\.net\.fingerprint was"):
        measure(model, greys, tmp_path / "run")


def test_weights_are_read_from_regular_files_alone(tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx", reason="needs the extra onnx")
    write_onnx(onnx, tmp_path / "net.onnx", np.zeros((3, 2), np.float32))
    (tmp_path / "weights.bin").unlink()
    (tmp_path / "weights.bin").symlink_to("/dev/zero")
    with pytest.raises(brinell.BrinellError, match=r"can't load net\.onnx|not a regular file"):
        open_model(f"onnx:{tmp_path / 'net.onnx'}", PLAIN)
    with pytest.raises(brinell.BrinellError, match=r"weights\.bin is not a regular file"):
        file_fingerprint(tmp_path / "net.onnx")


def write_onnx(onnx: Any, file: Path, weights: np.ndarray) -> None:
    """Write a classifier of mean colours, whose weights are in weights.bin next to it."""
    helper, numbers = onnx.helper, onnx.TensorProto.FLOAT
    tensor = onnx.numpy_helper.from_array(weights, "weights")
    graph = helper.make_graph(
        [
            helper.make_node("GlobalAveragePool", ["images"], ["mean"]),
            helper.make_node("Flatten", ["mean"], ["flat"]),
            helper.make_node("MatMul", ["flat", "weights"], ["scores"]),
        ],
        "net",
        [helper.make_tensor_value_info("images", numbers, ["n", 3, 16, 16])],
        [helper.make_tensor_value_info("scores", numbers, ["n", 2])],
        [tensor],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, file, save_as_external_data=True, location="weights.bin", size_threshold=0)


class Switched(nn.Module):
    """A network whose answers depend on something outside of its weights and its code."""

    bias = 0.0

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        above = (images.mean((1, 2, 3)) - 0.25) * 20 + Switched.bias
        return torch.stack([above, -above], 1)


def test_other_answers_are_noticed(greys: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = brinell.wrap(Switched(), size=16, name="own", execution=PLAIN)
    measure(model, greys, tmp_path / "run")
    monkeypatch.setattr(Switched, "bias", 1e-5)  # as another machine rounds
    measure(model, greys, tmp_path / "run")
    monkeypatch.setattr(Switched, "bias", -6.0)
    with pytest.raises(
        brinell.BrinellError, match=r"model own answers differently \(a probability was 0\.000 and is now 0\.9"
    ):
        measure(model, greys, tmp_path / "run")


class Noisy(nn.Module):
    """A network whose answers depend on how often it was queried."""

    def __init__(self) -> None:
        super().__init__()
        self.turns = itertools.count()

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        above = images.mean((1, 2, 3)) - 0.25 + 0.2 * (next(self.turns) % 2)
        return torch.stack([above, -above], 1)


class Relative(nn.Module):
    """A network whose answers depend on the other images of a batch, as one with a wrong normalisation does."""

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        above = images.mean((1, 2, 3))
        above = above - above.mean() + 0.1
        return torch.stack([above, -above], 1)


@pytest.mark.parametrize(
    ("network", "problem"),
    [
        (Noisy, "own is not deterministic: two answers to the same image differ by up to 0.0"),
        (Relative, "own depends on the batch: "),
    ],
)
def test_answers_that_differ_are_reported_once(network: type[nn.Module], problem: str, greys: Path, tmp_path: Path) -> None:
    model = brinell.wrap(network(), size=16, name="own", execution=PLAIN)
    for _ in range(2):
        run = measure(model, greys, tmp_path / "run")
        (warning,) = run.manifest["warnings"]
        assert warning.startswith(problem)


def test_a_plain_network_gets_no_warning(greys: Path, tmp_path: Path) -> None:
    assert "warnings" not in measure("fake:grey:0.25", greys, tmp_path / "run").manifest


def test_another_module_of_the_same_name_does_not_matter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file's module is in no list of modules; one of its name that something else loaded is not the model's code."""
    net = "from torch import nn\n\nclass Net(nn.Conv2d):\n    pass\n\ndef make():\n    return Net(3, 2, 1)\n"
    (tmp_path / "net.py").write_text(net)
    built, origin = _build(f"{tmp_path / 'net.py'}:make")
    before = code_digest(built, factory=origin)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "net.py").write_text("x = 1\n")
    spec = importlib.util.spec_from_file_location("net", tmp_path / "other" / "net.py")
    assert spec is not None and spec.loader is not None
    other = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(other)
    monkeypatch.setitem(sys.modules, "net", other)
    assert before is not None and code_digest(built, factory=origin) == before


def test_loaded_modules_do_not_change_the_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Code that only a function imports counts before it is loaded as after, and a class's file without a listed module."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    lazy = "from torch import nn\n\nclass Net(nn.Conv2d):\n    def forward(self, images):\n        import lazy_part\n"
    (tmp_path / "lazy_net.py").write_text(lazy)
    (tmp_path / "lazy_part.py").write_text("x = 1\n")
    factory = (
        "import importlib.util\n\ndef make():\n"
        f"    spec = importlib.util.spec_from_file_location('lazy_net', {str(tmp_path / 'lazy_net.py')!r})\n"
        "    module = importlib.util.module_from_spec(spec)\n    spec.loader.exec_module(module)\n"
        "    return module.Net(3, 2, 1)\n"
    )
    (tmp_path / "make_net.py").write_text(factory)
    built, origin = _build(f"{tmp_path / 'make_net.py'}:make")
    before = code_digest(built, factory=origin)
    for name in ("lazy_net", "lazy_part"):
        monkeypatch.setitem(sys.modules, name, importlib.import_module(name))
    assert code_digest(built, factory=origin) == before
    for name in ("lazy_net", "lazy_part"):
        (tmp_path / f"{name}.py").write_text((tmp_path / f"{name}.py").read_text() + "y = 2\n")
        changed = code_digest(built, factory=origin)
        assert changed != before, name
        before = changed
