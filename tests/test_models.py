"""Models by string and object: what they answer, how they are prepared, and what is refused."""

from __future__ import annotations

import pickle
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file
from torch import nn

import brinell
from brinell.api import assembled
from brinell.config.execution import Execution
from brinell.config.model import ModelOptions
from brinell.engine.progress import Silent
from brinell.engine.runner import execute
from brinell.errors import BrinellError, ConfigError, MissingExtra, ModelError, UnknownName
from brinell.models.device import select_device
from brinell.models.export import export_forward
from brinell.models.model import pad_batch
from brinell.models.modules import weights_fingerprint
from brinell.models.options import select_classes, select_preprocess
from brinell.models.preprocess import Preprocess
from brinell.models.sources import open_model
from conftest import PLAIN


class Small(nn.Module):
    """A little network for images of 16 pixels."""

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


def test_the_canvas_is_pillow_s(photographs: torch.Tensor) -> None:
    image = photographs[1]
    picture = Image.fromarray(image.permute(1, 2, 0).numpy())
    stretched = Preprocess(60, 90, interpolation="bicubic").model_input(image)
    assert np.array_equal(stretched.permute(1, 2, 0), np.asarray(picture.resize((90, 60), Image.Resampling.BICUBIC)))
    wide = image[:, :100]
    cropped = Preprocess(60, 60, short_side=80, interpolation="bilinear").model_input(wide)
    resized = Image.fromarray(wide.permute(1, 2, 0).numpy()).resize((179, 80), Image.Resampling.BILINEAR)
    assert np.array_equal(cropped.permute(1, 2, 0), np.asarray(resized.crop((60, 10, 120, 70))))


def test_grey_and_colour_become_what_the_model_takes() -> None:
    grey, colour = torch.full((1, 8, 8), 9, dtype=torch.uint8), torch.full((3, 8, 8), 9, dtype=torch.uint8)
    assert tuple(Preprocess(8, 8).model_input(grey).shape) == (3, 8, 8)
    assert tuple(Preprocess(8, 8, channels=1).model_input(colour).shape) == (1, 8, 8)


def test_normalisation() -> None:
    pre = Preprocess(16, 16, mean=(0.1, 0.2, 0.3), std=(0.5, 0.6, 0.7))
    expected = (pixels().double() / 255 - torch.tensor(pre.mean)[:, None, None]) / torch.tensor(pre.std)[:, None, None]
    assert torch.allclose(pre.normalise(pixels()).double(), expected, atol=1e-5)


# ---- torch ----


def test_a_wrapped_module_answers_as_itself() -> None:
    module = small()
    model = brinell.wrap(module, size=16, mean=[0.5] * 3, std=[0.25] * 3, classes=list("abcd"), execution=PLAIN)
    with torch.no_grad():
        expected = module((pixels().float() / 255 - 0.5) / 0.25).softmax(1)
    assert torch.allclose(model.predict(pixels()), expected, atol=1e-5)
    assert (model.outputs, model.probabilities) == (4, False)


def test_gradients_are_those_of_the_loss_by_value() -> None:
    model = brinell.wrap(small().double().float(), size=16, std=[0.5], execution=PLAIN)
    images, labels = pixels(2), torch.tensor([1, 3])
    found = model.gradient(images, labels)
    for row, channel, y, x in ((0, 0, 3, 4), (1, 2, 8, 8)):
        losses = []
        for step in (-1, 1):
            moved = images.clone()
            moved[row, channel, y, x] = 100 + 20 * step
            losses.append(float(-model.predict(moved)[row, labels[row]].log()))
        base = images.clone()
        base[row, channel, y, x] = 100
        slope = model.gradient(base, labels)[row, channel, y, x]
        assert float(slope) == pytest.approx((losses[1] - losses[0]) / 40, rel=0.2, abs=1e-6)
    assert found.shape == images.shape


def test_probabilities_are_taken_as_they_are() -> None:
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
def test_compiled_models_answer_alike() -> None:
    exact = brinell.wrap(small(), size=16, execution=PLAIN).predict(pixels())
    compiled = brinell.wrap(small(), size=16, execution=Execution(compile=True, runtime="torch"))
    assert torch.allclose(compiled.predict(pixels()), exact, atol=1e-5)
    assert torch.allclose(compiled.predict(pixels()[:2]), exact[:2], atol=1e-5), "a smaller batch is padded"
    assert compiled.facts["runtime"] == "torch compiled"


def test_on_a_cpu_modules_run_in_onnxruntime() -> None:
    pytest.importorskip("onnxscript", reason="needs the onnx extra")
    exact = brinell.wrap(small(), size=16, execution=PLAIN).predict(pixels())
    fast = brinell.wrap(small(), size=16)
    assert fast.facts["runtime"] == "onnxruntime"
    for count in (1, 5):
        assert torch.allclose(fast.predict(pixels()[:count]), exact[:count], atol=1e-5)
    assert fast.gradient(pixels(), torch.zeros(5, dtype=torch.int64)).abs().max() > 0, "gradients still come from torch"


class Odd(nn.Module):
    """Goes by the images' values in Python, which no exporter can follow."""

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        total = torch.tensor([1.0 if float(image.mean()) > 0.5 else 0.0 for image in images])
        return torch.stack([total, -total], 1)


def test_what_can_t_be_exported_runs_in_torch() -> None:
    pytest.importorskip("onnxscript", reason="needs the onnx extra")
    assert brinell.wrap(Odd(), size=16).facts["runtime"] == "torch"
    with pytest.raises(ModelError, match="can't be exported"):
        export_forward(Odd(), Preprocess(16, 16), "odd")
    with pytest.raises(ModelError):
        brinell.wrap(Odd(), size=16, execution=Execution(runtime="onnxruntime"))


def test_fingerprints_follow_the_weights() -> None:
    first, second = small(), small()
    assert weights_fingerprint(first) == weights_fingerprint(second)
    with torch.no_grad():
        second.head.bias[0] += 1e-6
    assert weights_fingerprint(first) != weights_fingerprint(second)


# ---- strings ----

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
    """Would run code when unpickled."""

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
def test_strings_that_name_no_model(factory: str, text: str, reason: str) -> None:
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


def test_options_that_do_not_fit() -> None:
    with pytest.raises(ConfigError, match="mean should be one number, or one for each of the 3 channels"):
        select_preprocess(ModelOptions.model_validate("fake:grey?mean=1,2"), Preprocess())
    with pytest.raises(ConfigError, match="class list"):
        select_classes(ModelOptions.model_validate("fake:grey?classes=/nowhere.txt"), None)
    with pytest.raises(ConfigError, match="size"):
        select_preprocess(ModelOptions.model_validate("fake:grey?size=1,2,3"), Preprocess())


def test_extras_that_are_missing_say_how_to_install_them(monkeypatch: pytest.MonkeyPatch) -> None:
    for package, extra in (("timm", "timm"), ("torchvision", "torchvision"), ("transformers", "hf")):
        monkeypatch.setitem(sys.modules, package, None)
        name = {"transformers": "hf"}.get(package, package)
        with pytest.raises(MissingExtra, match=rf"pip install 'brinell\[{extra}\]'"):
            open_model(f"{name}:anything", PLAIN)


# ---- answers that can't be used ----


class Says(nn.Module):
    """Answers something of its own."""

    def __init__(self, answer: object) -> None:
        super().__init__()
        self.answer = answer

    def forward(self, images: torch.Tensor) -> object:
        return self.answer(images) if callable(self.answer) else self.answer


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (lambda x: x, r"should return scores of shape \(3, classes\), but returned \(3, 3, 16, 16\)"),
        (lambda x: {"logits": x}, "should return a tensor of scores .* returned dict"),
        (lambda x: torch.full((len(x), 4), torch.nan), "NaN for plain images"),
        (lambda x: torch.zeros(2, 4), "should return scores of shape"),
        (lambda x: x @ torch.zeros(7, 2), "can't be run on images of shape"),
    ],
)
def test_answers_of_the_wrong_kind(answer: object, reason: str) -> None:
    with pytest.raises(ModelError, match=reason):
        brinell.wrap(Says(answer), size=16, execution=PLAIN)


def test_a_class_list_of_the_wrong_length() -> None:
    with pytest.raises(ModelError, match="4 outputs, but its class list has 2 names"):
        brinell.wrap(small(), size=16, classes=["a", "b"], execution=PLAIN)


def test_a_device_that_is_not_there() -> None:
    with pytest.raises(ConfigError, match="no device 'gpu9'"):
        select_device(Execution(device="gpu9"))
    if not torch.cuda.is_available():
        with pytest.raises(ConfigError, match="use --device cpu or auto"):
            select_device(Execution(device="cuda"))


# ---- real networks ----


@pytest.mark.parametrize(
    ("name", "size", "top1"),
    [("mobilenet_v2", 224, 0.857), ("squeezenet1_1", 224, 0.637), ("mobilenet_v1_075_192", 192, 0.77)],
)
def test_real_onnx_networks_score_what_they_should(assets: Path, name: str, size: int, top1: float) -> None:
    """On the first 60 of the 300 images; the figures are those of all 300, with their spread."""
    from brinell.datasets.sources import open_dataset

    model = open_model(f"onnx:{assets}/models/{name}.onnx?classes={assets}/models/imagenet_classes.txt")
    data = open_dataset(assets / "images" / "imagenet_dev_300")
    assert model.preprocess.height == size
    samples = [data[index] for index in range(60)]
    inputs = torch.stack([model.preprocess.model_input(sample.image) for sample in samples])
    right = (model.predict(inputs).argmax(1) == torch.tensor([sample.label for sample in samples])).float().mean()
    assert float(right) == pytest.approx(top1, abs=0.12)


def test_the_torch_and_the_onnx_network_agree(assets: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_builtin_lite0_is_the_assets_lite0(assets: Path) -> None:
    pytest.importorskip("efficientnet_lite_pytorch", reason="needs the demo extra")
    ours = open_model("efficientnet_lite0", PLAIN)
    theirs = open_model(f"onnx:{assets}/models/efficientnet_lite0.onnx")
    images = pixels(2, 224)
    assert torch.allclose(ours.predict(images), theirs.predict(images), atol=0.01)


def test_unknown_source_is_an_unknown_name() -> None:
    with pytest.raises(UnknownName):
        open_model("nothing:at-all")


def test_accelerators_meet_few_sizes_and_never_one_larger_than_needed() -> None:
    for count, size in zip((8, 32, 5, 1, 3, 17), (8, 32, 8, 1, 4, 32), strict=True):
        images = torch.arange(count, dtype=torch.float32)[:, None, None, None].expand(-1, 1, 2, 2)
        filled = pad_batch(images)
        assert len(filled) == size
        assert torch.equal(filled[:count], images) and bool((filled[count:] == count - 1).all())


def test_wrapping_leaves_the_user_s_module_alone() -> None:
    module = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * 64, 2)).train()
    brinell.wrap(module, size=8, execution=PLAIN)
    assert module.training
    assert all(weight.requires_grad for weight in module.parameters())


def test_a_factory_that_fails_and_weights_that_are_none_are_told(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text("def broken():\n    raise KeyError('width')\n")
    with pytest.raises(ModelError, match=r"own\.py:broken can't be built: KeyError: 'width'"):
        brinell.open_model(f"torch:{tmp_path / 'own.py'}:broken", PLAIN)
    (tmp_path / "own.py").write_text("import torch\n\ndef good():\n    return torch.nn.Flatten()\n")
    (tmp_path / "weights.safetensors").write_bytes(b"none at all")
    with pytest.raises(ModelError, match=r"weights\.safetensors can't be read as safetensors"):
        brinell.open_model(f"torch:{tmp_path / 'weights.safetensors'}?factory={tmp_path / 'own.py'}:good", PLAIN)


class Capricious(nn.Module):
    """Can't be exported: which way it goes depends on what it sees."""

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        means = images.mean((2, 3))[:, :2]
        return means if float(means.max()) > 0.3 else -means


def test_a_module_that_cannot_be_exported_says_that_it_is_slower(greys: Path, tmp_path: Path) -> None:
    execution = Execution(batch=4, device="cpu")
    model = brinell.wrap(Capricious(), size=16, classes=["light", "dark"], name="own", execution=execution)
    assert model.facts["runtime"] == "torch"
    assert "can't be exported" in model.facts["slower"]
    with pytest.raises(ModelError, match="can't be exported to ONNX"):
        brinell.wrap(Capricious(), size=16, execution=Execution(runtime="onnxruntime"))

    said: list[str] = []

    class Listening(Silent):
        def say(self, text: str) -> None:
            said.append(text)

    lens = {"name": "profile", "operators": ["noise"], "levels": 1}
    execute(assembled(model, greys, lens=lens, out=tmp_path / "run", execution=execution), Listening())
    assert any(text.startswith("own runs in eager torch, which may be several times slower: ") for text in said)
