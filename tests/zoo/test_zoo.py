"""Models from timm, torchvision and Hugging Face, with random weights: `make test-zoo`.

The libraries' own preprocessing and forward pass are the reference.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file
from torch import Tensor, nn

import brinell
from brinell.config.execution import Execution
from brinell.models.model import Model
from conftest import PLAIN

timm = pytest.importorskip("timm", reason="needs timm: make test-zoo", exc_type=ImportError)
torchvision = pytest.importorskip("torchvision", reason="needs torchvision: make test-zoo", exc_type=ImportError)
transformers = pytest.importorskip("transformers", reason="needs transformers: make test-zoo", exc_type=ImportError)

TIMM = ["resnet18", "vit_tiny_patch16_224", "mobilenetv3_small_050", "efficientnet_b1", "convnext_atto", "inception_v3"]
TORCHVISION = ["resnet18", "mobilenet_v3_small", "efficientnet_b1", "vit_b_32", "inception_v3", "swin_t"]


@pytest.fixture(scope="module")
def picture() -> Image.Image:
    """A smooth picture with some noise, 375x500."""
    generator = np.random.default_rng(3)
    coarse = Image.fromarray(generator.integers(0, 256, (12, 16, 3), dtype=np.uint8)).resize(
        (500, 375), Image.Resampling.BICUBIC
    )
    grain = generator.integers(-6, 7, (375, 500, 3))
    return Image.fromarray(np.clip(np.asarray(coarse).astype(int) + grain, 0, 255).astype(np.uint8))


def as_tensor(picture: Image.Image) -> Tensor:
    return torch.from_numpy(np.asarray(picture).copy()).permute(2, 0, 1)


def ours(model: Model, picture: Image.Image) -> Tensor:
    """Return the model's normalised input."""
    return model.preprocess.normalise(model.preprocess.model_input(as_tensor(picture))[None])


def assert_same_input(got: Tensor, expected: Tensor, model: Model) -> None:
    """Assert equality up to two grey levels, since libraries round at different steps."""
    step = 1 / 255 / min(model.preprocess.std)
    assert got.shape == expected.shape
    assert float((got - expected).abs().max()) <= 2.01 * step
    assert float((got - expected).abs().mean()) <= 0.1 * step


@pytest.mark.parametrize("name", TIMM)
def test_preprocessing_of_timm(name: str, picture: Image.Image) -> None:
    model = brinell.open_model(f"timm:{name}?pretrained=false", PLAIN)
    config = timm.data.resolve_model_data_config(timm.create_model(name))
    expected = timm.data.create_transform(**config, is_training=False)(picture)[None]
    assert_same_input(ours(model, picture), expected, model)


@pytest.mark.parametrize("name", TORCHVISION)
def test_preprocessing_of_torchvision(name: str, picture: Image.Image) -> None:
    model = brinell.open_model(f"torchvision:{name}?pretrained=false", PLAIN)
    expected = torchvision.models.get_model_weights(name).DEFAULT.transforms()(picture)[None]
    assert_same_input(ours(model, picture), expected, model)


def hf_vit(folder: Path) -> None:
    config = transformers.ViTConfig(
        hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64, num_labels=7
    )
    transformers.ViTForImageClassification(config).save_pretrained(folder)
    transformers.ViTImageProcessor().save_pretrained(folder)


def hf_convnext(folder: Path) -> None:
    config = transformers.ConvNextConfig(hidden_sizes=[8, 16, 32, 64], depths=[1, 1, 1, 1], num_labels=5)
    transformers.ConvNextForImageClassification(config).save_pretrained(folder)
    transformers.ConvNextImageProcessor(size={"shortest_edge": 224}, crop_pct=0.875).save_pretrained(folder)


def hf_mobilenet(folder: Path) -> None:
    config = transformers.MobileNetV2Config(depth_multiplier=0.35, num_labels=4)
    transformers.MobileNetV2ForImageClassification(config).save_pretrained(folder)
    transformers.MobileNetV2ImageProcessor().save_pretrained(folder)


@pytest.mark.parametrize("make", [hf_vit, hf_convnext, hf_mobilenet])
def test_preprocessing_and_scores_of_hugging_face(
    make: Callable[[Path], None], picture: Image.Image, tmp_path: Path
) -> None:
    torch.manual_seed(0)
    make(tmp_path)
    model = brinell.open_model(f"hf:{tmp_path}", PLAIN)
    processor = transformers.AutoImageProcessor.from_pretrained(tmp_path)
    network = transformers.AutoModelForImageClassification.from_pretrained(tmp_path).eval()
    expected = processor(images=picture, return_tensors="pt")["pixel_values"]
    assert_same_input(ours(model, picture), expected, model)
    assert model.classes is not None
    assert model.classes.names == tuple(network.config.id2label[index] for index in range(network.config.num_labels))
    with torch.inference_mode():
        logits = network(ours(model, picture)).logits
    torch.testing.assert_close(model.predict(model.preprocess.model_input(as_tensor(picture))[None]), logits.softmax(1))


@pytest.mark.parametrize("name", ["ssdlite320_mobilenet_v3_large", "fasterrcnn_mobilenet_v3_large_320_fpn"])
def test_detections_of_torchvision(name: str, picture: Image.Image) -> None:
    torch.manual_seed(0)
    model = brinell.open_model(f"torchvision:{name}?pretrained=false", PLAIN)
    torch.manual_seed(0)
    network = torchvision.models.get_model(name, weights=None, weights_backbone=None).eval()
    model_input = model.preprocess.model_input(as_tensor(picture))
    assert model_input.shape == (3, 320, 320)
    with torch.inference_mode():
        (expected,) = network([model_input / 255])
    assert_same_detections(model, model_input, expected)
    assert len(expected["scores"]) > 0 or "rcnn" in name, "random weights score below its threshold"
    assert model.classes is not None and model.classes.short_name(1) == "person"


def assert_same_detections(model: Model, model_input: Tensor, expected: dict[str, Tensor]) -> None:
    """Compare with the library's best 100 detections of a score of at least 0.01."""
    _, found = model.answer(model_input[None])
    assert found is not None
    order = expected["scores"].sort(descending=True, stable=True).indices
    order = order[expected["scores"][order] >= 0.01][:100]
    count = int((found.labels >= 0).sum())
    assert count == len(order)
    torch.testing.assert_close(found.scores[0, :count], expected["scores"][order], atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(found.boxes[0, :count], expected["boxes"][order], atol=0.05, rtol=1e-3)
    assert found.labels[0, :count].equal(expected["labels"][order])


def hf_yolos(folder: Path) -> None:
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
    config = transformers.YolosConfig(**sizes, image_size=[96, 128], num_detection_tokens=12, num_labels=5)
    transformers.YolosForObjectDetection(config).save_pretrained(folder)
    transformers.YolosImageProcessor(size={"height": 96, "width": 128}).save_pretrained(folder)


def hf_detr(folder: Path) -> None:
    backbone = transformers.ResNetConfig(
        embedding_size=8, hidden_sizes=[8, 8, 8, 8], depths=[1, 1, 1, 1], out_features=["stage4"]
    )
    config = transformers.DetrConfig(
        backbone_config=backbone,
        use_timm_backbone=False,
        use_pretrained_backbone=False,
        backbone=None,
        d_model=16,
        encoder_layers=1,
        decoder_layers=1,
        encoder_attention_heads=2,
        decoder_attention_heads=2,
        encoder_ffn_dim=16,
        decoder_ffn_dim=16,
        num_queries=9,
        num_labels=4,
    )
    transformers.DetrForObjectDetection(config).save_pretrained(folder)
    transformers.DetrImageProcessor(size={"shortest_edge": 96, "longest_edge": 160}).save_pretrained(folder)


@pytest.mark.parametrize("make", [hf_yolos, hf_detr])
def test_detections_of_hugging_face(make: Callable[[Path], None], picture: Image.Image, tmp_path: Path) -> None:
    torch.manual_seed(0)
    make(tmp_path)
    model = brinell.open_model(f"hf:{tmp_path}", PLAIN)
    processor = transformers.AutoImageProcessor.from_pretrained(tmp_path)
    network = transformers.AutoModelForObjectDetection.from_pretrained(tmp_path).eval()
    model_input = model.preprocess.model_input(as_tensor(picture))
    with torch.inference_mode():
        outputs = network(ours(model, picture))
    (expected,) = processor.post_process_object_detection(
        outputs, threshold=0.0, target_sizes=[tuple(model_input.shape[1:])]
    )
    assert_same_detections(model, model_input, expected)
    assert float(expected["scores"].max()) > 0.01
    assert model.outputs == network.config.num_labels


def test_scores_are_the_module_s(picture: Image.Image) -> None:
    torch.manual_seed(1)
    model = brinell.open_model("timm:resnet18?pretrained=false", PLAIN)
    torch.manual_seed(1)
    network: nn.Module = timm.create_model("resnet18").eval()
    with torch.inference_mode():
        expected = network(ours(model, picture)).softmax(1)
    torch.testing.assert_close(model.predict(model.preprocess.model_input(as_tensor(picture))[None]), expected)


CLASSES = ("apple", "pear", "plum")


def fine_tuned(library: str, name: str, folder: Path, classes: int = 3) -> nn.Module:
    """Return a network of a library with its head replaced, as for fine-tuning, saved as training scripts do."""
    torch.manual_seed(4)
    if library == "timm":
        network = timm.create_model(name, num_classes=classes).eval()
    else:
        network = torchvision.models.get_model(name, weights=None, num_classes=classes).eval()
    (folder / "classes.txt").write_text("\n".join(CLASSES[:classes]) + "\n")
    state = network.state_dict()
    save_file(state, folder / "best.safetensors")
    torch.save({"state_dict": {f"module.{key}": value for key, value in state.items()}, "epoch": 3}, folder / "best.pth")
    return network


CHECKPOINTS = [
    *(("timm", name) for name in TIMM),
    *(("torchvision", name) for name in ("resnet18", "mobilenet_v3_small", "vit_b_32", "swin_t", "squeezenet1_1")),
    ("torchvision", "inception_v3"),
]


@pytest.mark.parametrize(("library", "name"), CHECKPOINTS)
def test_a_fine_tuned_checkpoint(library: str, name: str, picture: Image.Image, tmp_path: Path) -> None:
    """The number of classes is read from the weights; scores are those of the network that was saved."""
    network = fine_tuned(library, name, tmp_path)
    for file, classes in (
        ("best.safetensors", ""),
        ("best.pth", f"&classes={tmp_path}/classes.txt"),
        ("best.pth", "&classes=3"),
    ):
        model = brinell.open_model(f"{library}:{name}?checkpoint={tmp_path}/{file}{classes}", PLAIN)
        assert model.outputs == 3 and model.name == name
        assert (model.classes and model.classes.names) == (CLASSES if "txt" in classes else None)
    with torch.inference_mode():
        expected = network(ours(model, picture)).softmax(1)
    torch.testing.assert_close(model.predict(model.preprocess.model_input(as_tensor(picture))[None]), expected)


def test_checkpoints_that_don_t_fit(tmp_path: Path) -> None:
    fine_tuned("timm", "resnet18", tmp_path)
    (tmp_path / "four.txt").write_text("a\nb\nc\nd\n")
    file = f"{tmp_path}/best.pth"
    for source, message in (
        (f"timm:resnet34?checkpoint={file}", "best.pth doesn't fit a network of 3 classes"),
        (f"timm:resnet18?checkpoint={file}&classes=4", "best.pth has weights for 3 classes, but classes has 4"),
        (f"timm:resnet18?checkpoint={file}&classes={tmp_path}/four.txt", "weights for 3 classes, but classes has 4"),
        ("timm:resnet18?classes=4", r"timm:resnet18 has 1000 classes; for 4, add checkpoint=FILE .* or pretrained=false"),
        ("torchvision:resnet18?classes=4", "torchvision:resnet18 has 1000 classes; for 4, add checkpoint=FILE"),
    ):
        with pytest.raises(brinell.ModelError, match=message):
            brinell.open_model(source, PLAIN)
    assert brinell.open_model("timm:resnet18?classes=4&pretrained=false", PLAIN).outputs == 4


@pytest.mark.parametrize("name", ["fasterrcnn_mobilenet_v3_large_320_fpn", "ssdlite320_mobilenet_v3_large"])
def test_a_detector_s_checkpoint(name: str, tmp_path: Path) -> None:
    network = torchvision.models.get_model(name, weights=None, weights_backbone=None, num_classes=4)
    torch.save({"model": network.state_dict()}, tmp_path / "best.pth")
    (tmp_path / "classes.txt").write_text("background\na\nb\nc\n")
    model = brinell.open_model(f"torchvision:{name}?checkpoint={tmp_path}/best.pth&classes={tmp_path}/classes.txt", PLAIN)
    assert model.detector is not None and model.outputs == 4
    with pytest.raises(brinell.ModelError, match=r"doesn't fit|needs its class list"):
        brinell.open_model(f"torchvision:{name}?checkpoint={tmp_path}/best.pth", PLAIN)


@pytest.mark.parametrize("source", ["timm:resnet18", "torchvision:resnet18"])
def test_a_whole_run_with_gradients(source: str, picture: Image.Image, tmp_path: Path) -> None:
    images = [(np.asarray(picture.rotate(angle)), 3 + angle) for angle in range(3)]
    run = brinell.run(
        f"{source}?pretrained=false",
        images,
        lens={"name": "profile", "operators": ["jpeg", "gradient_descent", "adjacent_exchange"], "levels": 2},
        out=tmp_path / "run",
        execution=PLAIN,
        quiet=True,
    )
    assert run.rows("select count(*) from rows").fetchall() == [(3 * 3 * 3,)]
    page = Path(run.report()).read_text(encoding="utf-8")
    assert "<svg" in page and "resnet18" in page


def test_onnxruntime_agrees_with_torch(picture: Image.Image) -> None:
    """On a CPU onnxruntime replaces eager torch: same weights, same scores."""
    model_input = brinell.open_model("timm:resnet18?pretrained=false", PLAIN).preprocess.model_input(as_tensor(picture))[
        None
    ]
    answers = []
    for runtime in ("torch", "onnxruntime"):
        torch.manual_seed(2)
        model = brinell.open_model("timm:resnet18?pretrained=false", Execution(runtime=runtime))  # type: ignore[arg-type]
        assert model.facts["runtime"] == runtime
        answers.append(model.predict(model_input))
    torch.testing.assert_close(answers[0], answers[1], atol=1e-5, rtol=1e-3)


@pytest.mark.parametrize(
    ("source", "hint"),
    [
        ("timm:resnet81", "did you mean resnet"),
        ("torchvision:resnet81", "did you mean resnet"),
        ("timm:resnet18.no_such_tag", "can't be opened"),
        ("hf:no-such/model", "can't be opened"),
    ],
)
def test_unknown_names_raise(source: str, hint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(brinell.ModelError, match=hint):
        brinell.open_model(source, PLAIN)


def test_torchvision_weights_that_cannot_be_fetched(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    monkeypatch.setenv("https_proxy", "http://127.0.0.1:9")  # a closed port
    with pytest.raises(brinell.ModelError, match=r"pretrained=false"):
        brinell.open_model("torchvision:resnet18", PLAIN)


class Opened:
    """Creates a file when it is unpickled."""

    def __init__(self, trace: Path) -> None:
        self.trace = trace

    def __reduce__(self) -> tuple[object, ...]:
        return Path.touch, (self.trace,)


def test_torchvision_weights_run_no_code_unless_trusted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    url = torchvision.models.get_model_weights("resnet18").DEFAULT.url
    file, trace = tmp_path / "hub" / "checkpoints" / Path(url).name, tmp_path / "trace"
    file.parent.mkdir(parents=True)
    torch.save({"weights": Opened(trace)}, file)
    with pytest.raises(brinell.ModelError, match="without running code"):
        brinell.open_model("torchvision:resnet18", PLAIN)
    assert not trace.exists()
    with pytest.raises(brinell.ModelError):
        brinell.open_model("torchvision:resnet18", PLAIN.model_copy(update={"trust": True}))
    assert trace.exists(), "the same file runs code if it is trusted, so the test can tell"
