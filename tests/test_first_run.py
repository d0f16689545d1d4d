"""A new user's first run: what is wrong is reported early, and what was refused or interrupted is not in the way."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

import brinell
from brinell.cli.main import main
from brinell.config.execution import Execution
from brinell.models import export as exporting
from brinell.models.exports import cached_file
from brinell.models.preprocess import Preprocess
from brinell.runs.store import Store

QUICK = ["--operator", "fade_black", "--levels", "5", "--runtime", "torch", "--batch", "4", "--shard", "4"]


@pytest.fixture
def here(greys: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with the images `greys`."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*arguments: str) -> list[str]:
    return ["run", "--model", "fake:grey:0.25", *QUICK, *arguments]


def refuse(*arguments: str, capsys: pytest.CaptureFixture[str], code: int = 2) -> str:
    """Give a command that must end with an exit code, and return its last line."""
    with pytest.raises(SystemExit) as left:
        main(list(arguments))
    assert left.value.code == code
    return capsys.readouterr().err.splitlines()[-1]


# ---- early errors ----

BAD = {
    "data": ["--model", "torch:net.py:Net", "--data", "gryes"],
    "model": ["--model", "torch:no.py:Net", "--data", "greys"],
    "second model": ["--model", "torch:net.py:Net", "--model", "onnx:no.onnx", "--data", "greys"],
    "classes": ["--model", "torch:net.py:Net?classes=no.txt", "--data", "greys"],
    "criterion": ["--model", "torch:net.py:Net", "--data", "greys", "--criterion", "misclass"],
    "folder": ["--model", "torch:net.py:Net", "--data", "greys", "--out", "file/run"],
}


@pytest.mark.parametrize("what", BAD)
def test_typing_errors_are_found_without_torch(what: str, here: Path) -> None:
    (here / "net.py").write_text("raise AssertionError('the model was loaded')")
    (here / "file").write_text("")
    code = f"""
import sys
from brinell.cli.main import main
try:
    main(["run", *{BAD[what]}])
except SystemExit as left:
    assert left.code == 2
assert "torch" not in sys.modules
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr.startswith("error: ") and done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["--data", "greys", "--operator", "jpegg"], "there is no operator 'jpegg'; did you mean jpeg?"),
        (["--data", "greys/light"], "the images of light have no labels; add labels, or use"),
        (["--data", "greys", "--lens", "knob", "--operator", "jpeg"], "use it with --lens profile"),
    ],
)
def test_other_errors_are_found_before_a_model_is_loaded(
    given: list[str], message: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "net.py").write_text("raise AssertionError('the model was loaded')")
    assert message in refuse("run", "--model", "torch:net.py:Net", *given, capsys=capsys)
    assert not (here / "runs").exists()


@pytest.mark.parametrize(
    ("source", "meant"),
    [
        ("net.onnx", "onnx:net.onnx"),
        ("models/net.pt", "torch:models/net.pt?factory=package.module:function"),
        ("net.py:build", "torch:net.py:build"),
        ("net.py", "torch:net.py:FUNCTION"),
        ("resnet50", "timm:resnet50 or torchvision:resnet50"),
    ],
)
def test_a_file_without_its_kind_gets_a_hint(
    source: str, meant: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    line = refuse("run", "--model", source, "--data", "greys", capsys=capsys)
    assert line.endswith(f"doesn't say what kind of model it is; did you mean {meant}?")


def test_a_folder_needs_a_name(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "out: string should have at least 1 character" in refuse(*run("--data", "greys", "--out", ""), capsys=capsys)


# ---- refused runs ----


def test_a_refused_run_leaves_no_folder(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "greys" / "light").rename(here / "greys" / "lihgt")
    assert "the labels 'lihgt' are not among" in refuse(*run("--data", "greys", "--out", "first"), capsys=capsys)
    assert not (here / "first").exists()


def write_labels(folder: Path, label: str) -> None:
    images = sorted(path.name for path in (folder / "light").iterdir())
    (folder / "labels.csv").write_text("file_name,label\n" + "".join(f"light/{name},{label}\n" for name in images))


def test_what_was_refused_does_not_block_the_corrected_command(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """No image is right: that shows after the clean answers, when the folder exists."""
    given = run("--data", "greys/labels.csv", "--select", "correct", "--out", "first")
    write_labels(here / "greys", "dark")
    assert "no image is left" in refuse(*given, capsys=capsys)
    assert not Store("first").measured()
    write_labels(here / "greys", "light")  # corrected labels
    main(given)
    assert brinell.Run("first").finished
    assert brinell.Run("first").labels("grey:0.25") and set(brinell.Run("first").labels("grey:0.25").values()) == {0}


def test_other_settings_do_not_block_either_until_something_is_measured(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_labels(here / "greys", "dark")
    given = ["--data", "greys/labels.csv", "--out", "first"]
    refuse(*run(*given, "--select", "correct"), capsys=capsys)
    main(run(*given, "--select", "all", "--seed", "3"))
    assert brinell.Run("first").seed == 3
    message = refuse(*run(*given, "--select", "all", "--seed", "4"), capsys=capsys)
    assert "first holds another run (config.seed was 3 and is now 4)" in message


class Replaced(nn.Module):
    """Another process starts another run in the same folder while this network is tested."""

    store: Store | None = None

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        if Replaced.store is not None and Replaced.store.exists("clean.parquet"):
            store, Replaced.store = Replaced.store, None
            other = store.manifest()
            other["identity"]["config"]["seed"] = 1
            store.write_manifest(other)
        return images.mean((2, 3))


def test_rows_of_two_runs_never_mix(tmp_path: Path) -> None:
    model = brinell.wrap(Replaced(), size=16, name="own", execution=Execution(runtime="torch"))
    images = [(np.full((16, 16, 3), 20 * index, np.uint8), 0) for index in range(1, 5)]
    lens = {"name": "profile", "operators": ["boxes"], "levels": 2}
    Replaced.store = Store(tmp_path / "run")
    with pytest.raises(brinell.BrinellError, match="another run was started in"):
        brinell.run(model, images, lens=lens, out=tmp_path / "run", execution=Execution(runtime="torch"), quiet=True)
    assert Store(tmp_path / "run").unit_files() == []


# ---- interrupts ----

IMPATIENT = """
import torch
from pathlib import Path
class Net(torch.nn.Module):
    def forward(self, images):
        if list(Path("first").glob("{file}")):
            raise KeyboardInterrupt
        return images.mean((2, 3))
"""


@pytest.mark.parametrize(("file", "stored"), [("manifest.json", False), ("rows/**/*.parquet", True)])
def test_ctrl_c_promises_to_resume_only_if_something_is_stored(
    file: str, stored: bool, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "impatient.py").write_text(IMPATIENT.format(file=file))
    given = ["--model", "torch:impatient.py:Net?size=16", "--data", "greys", "--labels", "index", "--out", "first"]
    message = refuse("run", *given, *QUICK, "--operator", "noise", "--operator", "boxes", capsys=capsys, code=130)
    assert Store("first").measured() == stored
    expected = "rerun to resume." if stored else "before anything was stored; rerun to start again."
    assert message.startswith("Interrupted") and message.endswith(expected)


def test_ctrl_c_elsewhere_promises_nothing(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("brinell.cli.listing.listing", interrupt)
    assert refuse("ls", "lenses", capsys=capsys, code=130) == "Interrupted."


# ---- cached exports ----


class Scale(nn.Module):
    """A network whose behaviour depends on a plain attribute."""

    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor = factor
        self.conv = nn.Conv2d(3, 4, 3)
        nn.init.constant_(self.conv.weight, 0.1)
        nn.init.constant_(self.conv.bias, 0.2)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        scores = self.conv(images).mean((2, 3))
        return scores * torch.arange(1, 5) * self.factor


@pytest.fixture
def exports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """An empty cache, and the names of the models that are exported."""
    pytest.importorskip("onnxscript", reason="needs the extra onnx")
    monkeypatch.setenv("BRINELL_CACHE", str(tmp_path / "cache"))
    exported: list[str] = []
    export = exporting.export

    def counted(module: nn.Module, images: torch.Tensor, path: Path, name: str) -> None:
        exported.append(name)
        export(module, images, path, name)

    monkeypatch.setattr(exporting, "export", counted)
    return exported


def scores(model: brinell.Model) -> torch.Tensor:
    return model.predict(torch.arange(2 * 3 * 16 * 16, dtype=torch.uint8).reshape(2, 3, 16, 16))


def test_an_export_is_cached(exports: list[str], tmp_path: Path) -> None:
    first = brinell.wrap(Scale(1.0), size=16, name="net")
    second = brinell.wrap(Scale(1.0), size=16, name="net")
    assert exports == ["net"] and torch.equal(scores(first), scores(second))
    assert second.facts["runtime"] == "onnxruntime"
    (file,) = (tmp_path / "cache" / "exports").iterdir()
    assert file == cached_file(Scale(1.0).eval().requires_grad_(False), Preprocess(16, 16))


@pytest.mark.slow
def test_another_network_is_exported_again(exports: list[str]) -> None:
    made = [Scale(1.0), Scale(2.0), Scale(1.0)]
    with torch.no_grad():
        made[2].conv.bias += 0.1
    for network in made:
        brinell.wrap(network, size=16, name="net")
    brinell.wrap(Scale(1.0), size=17, name="net")
    assert len(exports) == 4


@pytest.mark.parametrize("content", [b"", b"no network", None])
def test_a_damaged_export_is_made_again(content: bytes | None, exports: list[str], tmp_path: Path) -> None:
    brinell.wrap(Scale(1.0), size=16, name="net")
    (file,) = (tmp_path / "cache" / "exports").iterdir()
    if content is None:  # another network under this name
        brinell.wrap(Scale(3.0), size=16, name="other")
        (other,) = set(file.parent.iterdir()) - {file}
        content = other.read_bytes()
        exports.clear()
        exports.append("net")
    file.write_bytes(content)
    again = brinell.wrap(Scale(1.0), size=16, name="net")
    assert exports == ["net", "net"] and again.facts["runtime"] == "onnxruntime"


def test_a_cache_that_can_t_be_written_to_is_not_used(
    exports: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("BRINELL_CACHE", str(tmp_path / "file"))
    for _ in range(2):
        assert brinell.wrap(Scale(1.0), size=16, name="net").facts["runtime"] == "onnxruntime"
    assert len(exports) == 2


def test_loading_and_exporting_are_announced(exports: list[str], here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Image.new("RGB", (20, 20)).save(here / "black.png")
    given = ["run", "--model", "fake:grey", "--data", "greys", *QUICK, "--runtime", "onnxruntime"]
    main(given)
    lines = capsys.readouterr().err.splitlines()
    assert lines[:2] == ["Loading grey …", "Exporting grey to ONNX …"]
