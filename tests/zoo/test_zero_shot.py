"""Zero-shot models: two towers, trained on digits for seconds; the libraries' own pipelines are the reference."""

from __future__ import annotations

import json
import logging
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file
from torch import Tensor
from torch.nn.functional import cross_entropy

import brinell
from brinell.lenses.lens import LENSES
from brinell.models.model import Model
from brinell.models.zero_shot.prompts import read_prompts
from conftest import PLAIN
from worked import execute, labels, shown

transformers = pytest.importorskip("transformers", reason="needs transformers: make test-zoo", exc_type=ImportError)
open_clip = pytest.importorskip("open_clip", reason="needs open_clip: make test-zoo", exc_type=ImportError)
sklearn_datasets = pytest.importorskip("sklearn.datasets", reason="needs scikit-learn")

pytestmark = pytest.mark.filterwarnings("ignore")
WORDS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
TEMPLATE = "This is a photo of {}."  # of the pipeline
MEAN, STD = (0.5, 0.5, 0.5), (0.25, 0.25, 0.25)
SIDE = 32


@pytest.fixture(scope="module")
def digits() -> tuple[Tensor, Tensor]:
    """All digits of scikit-learn as RGB images, uint8 (N, 3, 32, 32), and their classes."""
    found = sklearn_datasets.load_digits()
    images = (found.images * 255 / 16).round().astype(np.uint8).repeat(4, 1).repeat(4, 2)
    return torch.from_numpy(images)[:, None].repeat(1, 3, 1, 1), torch.from_numpy(found.target)


@pytest.fixture(scope="module")
def data(digits: tuple[Tensor, Tensor], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The last 60 digits, which no network is trained on, as a folder of classes."""
    folder = tmp_path_factory.mktemp("digits")
    for image, label in zip(digits[0][-60:], digits[1][-60:], strict=True):
        number = len(list((folder / WORDS[label]).glob("*.png")))
        path = folder / WORDS[label] / f"{number // 2}{('', '_again')[number % 2]}.png"  # as if photographed twice
        path.parent.mkdir(exist_ok=True)
        Image.fromarray(image.permute(1, 2, 0).numpy()).save(path)
    return folder


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Class lists and prompts."""
    folder = tmp_path_factory.mktemp("texts")
    (folder / "digits.txt").write_text("\n".join(WORDS))
    (folder / "one.txt").write_text(TEMPLATE)
    (folder / "two.txt").write_text("a photo of the digit {}.\n\nthe number {} here\n")
    return folder


def tokeniser() -> Any:
    """A tokeniser that knows the words of these tests."""
    from tokenizers import Tokenizer, models, pre_tokenizers, processors

    words = [
        "<pad>",
        "<unk>",
        "<s>",
        "this",
        "is",
        "a",
        "photo",
        "of",
        "the",
        "digit",
        "number",
        "here",
        ".",
        *WORDS,
        "<eos>",
    ]
    plain = Tokenizer(models.WordLevel({word: index for index, word in enumerate(words)}, unk_token="<unk>"))
    plain.pre_tokenizer = pre_tokenizers.Whitespace()
    plain.post_processor = processors.TemplateProcessing(
        single="<s> $A <eos>", special_tokens=[("<s>", 2), ("<eos>", len(words) - 1)]
    )
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=plain,
        pad_token="<pad>",
        unk_token="<unk>",
        bos_token="<s>",
        eos_token="<eos>",
        model_max_length=64,
    )


def make_clip() -> Any:
    text = {"vocab_size": len(tokeniser()), "max_position_embeddings": 64, "eos_token_id": tokeniser().eos_token_id}
    sizes = {"hidden_size": 48, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 2}
    vision = {"image_size": SIDE, "patch_size": 8, **sizes}
    config = transformers.CLIPConfig(text_config={**text, **sizes}, vision_config=vision, projection_dim=32)
    return transformers.CLIPModel(config), transformers.CLIPImageProcessor(
        size={"shortest_edge": SIDE}, crop_size={"height": SIDE, "width": SIDE}, image_mean=MEAN, image_std=STD
    )


def make_siglip() -> Any:
    text = {"vocab_size": len(tokeniser()), "max_position_embeddings": 64}
    sizes = {"hidden_size": 48, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 2}
    config = transformers.SiglipConfig(
        text_config={**text, **sizes}, vision_config={"image_size": SIDE, "patch_size": 8, **sizes}
    )
    network = transformers.SiglipModel(config)
    network.logit_bias.data.fill_(-2.0)
    return network, transformers.SiglipImageProcessor(size={"height": SIDE, "width": SIDE}, image_mean=MEAN, image_std=STD)


def normalised(images: Tensor) -> Tensor:
    return (images / 255 - 0.5) / 0.25


def train(logits: Callable[[Tensor], Tensor], parameters: Any, digits: tuple[Tensor, Tensor], steps: int) -> None:
    """Train a network to name digits; all but the last 60."""
    torch.manual_seed(0)
    images, labels = normalised(digits[0][:-60]), digits[1][:-60]
    adam = torch.optim.Adam(parameters, lr=2e-3)
    for _ in range(steps):
        some = torch.randint(len(images), (128,))
        loss = cross_entropy(logits(images[some]), labels[some])
        adam.zero_grad()
        loss.backward()
        adam.step()


@pytest.fixture(scope="module", params=["clip", "siglip"])
def folder(request: Any, digits: tuple[Tensor, Tensor], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A trained network of Hugging Face with its processor and tokeniser."""
    torch.manual_seed(0)
    network, processor = make_clip() if request.param == "clip" else make_siglip()
    how = {"padding": "max_length", "max_length": 64} if request.param == "siglip" else {"padding": True}
    prompts = tokeniser()([TEMPLATE.format(word) for word in WORDS], return_tensors="pt", **how)
    tokens = {"input_ids": prompts["input_ids"]}
    network.text_model.embeddings.token_embedding.weight.data.mul_(20)  # texts that differ from the start: fewer steps
    train(lambda images: network(pixel_values=images, **tokens).logits_per_image, network.parameters(), digits, 200)
    path = tmp_path_factory.mktemp(request.param)
    for part in (network, processor, tokeniser()):
        part.save_pretrained(path)
    return path


def predict(model: Model, images: Tensor) -> Tensor:
    return model.predict(images.to(model.device))


def test_scores_are_those_of_the_pipeline(folder: Path, texts: Path, digits: tuple[Tensor, Tensor]) -> None:
    source = f"hf:{folder}?classes={texts / 'digits.txt'}&prompts={texts / 'one.txt'}"
    model = brinell.open_model(f"{source}&task=zero-shot", PLAIN)
    images, labels = digits[0][-60:], digits[1][-60:]
    found = predict(model, images)
    pipeline = transformers.pipeline(
        "zero-shot-image-classification", model=str(folder), image_processor=str(folder), tokenizer=str(folder)
    )
    for image, scores in zip(images[:12], found, strict=False):
        answers = pipeline(Image.fromarray(image.permute(1, 2, 0).numpy()), candidate_labels=list(WORDS))
        expected = {answer["label"]: answer["score"] for answer in answers}
        assert np.allclose(scores.numpy(), [expected[word] for word in WORDS], atol=1e-5)
    assert float((found.argmax(1) == labels).to(torch.float32).mean()) > 0.4
    sums = found.sum(1)
    assert torch.allclose(sums, torch.ones_like(sums)) == (folder.name.startswith("clip"))
    assert brinell.open_model(source, PLAIN).fingerprint == model.fingerprint  # the task is known from the config


def test_a_head_is_made_once(folder: Path, texts: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "brinell.models.zero_shot.towers")
    source = f"hf:{folder}?classes={texts / 'digits.txt'}&prompts="
    first = brinell.open_model(source + str(texts / "two.txt"), PLAIN)
    assert [record.getMessage() for record in caplog.records] == ["Encoding 20 prompts …"]
    again = brinell.open_model(source + str(texts / "two.txt"), PLAIN)
    assert len(caplog.records) == 1 and again.fingerprint == first.fingerprint
    assert brinell.open_model(source + "photo", PLAIN).fingerprint != first.fingerprint
    assert len(caplog.records) == 2
    assert not any("text" in name for name, _ in first.internals.module.named_parameters())  # type: ignore[union-attr]


def test_scoring_is_an_option(folder: Path, texts: Path, digits: tuple[Tensor, Tensor]) -> None:
    source = f"hf:{folder}?classes={texts / 'digits.txt'}&scoring="
    softmax, sigmoid = (predict(brinell.open_model(source + how, PLAIN), digits[0][:4]) for how in ("softmax", "sigmoid"))
    assert torch.allclose(sigmoid.logit().softmax(1), softmax, atol=1e-4)


def make_open_clip(folder: Path, digits: tuple[Tensor, Tensor], *, bias: bool) -> None:
    """A trained network of open_clip, as the library stores it."""
    config: dict[str, Any] = {
        "embed_dim": 32,
        "vision_cfg": {"image_size": SIDE, "layers": 2, "width": 64, "patch_size": 8},
        "text_cfg": {"context_length": 16, "vocab_size": 49408, "width": 32, "heads": 2, "layers": 1},
    }
    if bias:
        config |= {"init_logit_bias": -2.0, "init_logit_scale": 1.5}
    stored = {"model_cfg": config, "preprocess_cfg": {"mean": MEAN, "std": STD, "resize_mode": "squash"}}
    (folder / "open_clip_config.json").write_text(json.dumps(stored))
    torch.manual_seed(0)
    network = open_clip.CLIP(**config)
    network.token_embedding.weight.data.mul_(20)
    prompts = open_clip.get_tokenizer("ViT-B-32", context_length=16)([TEMPLATE.format(word) for word in WORDS])
    train(lambda images: network.get_logits(images, prompts)[0], network.parameters(), digits, 80)
    save_file(
        {key: value.contiguous() for key, value in network.state_dict().items()}, folder / "open_clip_model.safetensors"
    )


@pytest.mark.parametrize("bias", [False, True])
def test_open_clip(bias: bool, texts: Path, digits: tuple[Tensor, Tensor], tmp_path: Path) -> None:
    make_open_clip(tmp_path, digits, bias=bias)
    name = f"local-dir:{tmp_path}"
    model = brinell.open_model(f"open_clip:{name}?classes={texts / 'digits.txt'}&prompts=clip-7", PLAIN)
    network, _, transform = open_clip.create_model_and_transforms(name)
    network.eval()
    images = digits[0][-60:]
    given = torch.stack([transform(Image.fromarray(image.permute(1, 2, 0).numpy())) for image in images])
    with torch.inference_mode():
        templates = open_clip.SIMPLE_IMAGENET_TEMPLATES
        head = open_clip.build_zero_shot_classifier(network, open_clip.get_tokenizer(name), WORDS, templates)
        logits = network.logit_scale.exp() * network.encode_image(given, normalize=True) @ head
        expected = (logits + network.logit_bias).sigmoid() if bias else logits.softmax(1)
    assert torch.allclose(predict(model, images), expected, atol=1e-5)
    plain = brinell.open_model(f"open_clip:{name}?classes={texts / 'digits.txt'}&prompts={texts / 'one.txt'}", PLAIN)
    assert float((predict(plain, images).argmax(1) == digits[1][-60:]).to(torch.float32).mean()) > 0.4


def test_prompts_and_names_are_those_that_were_published() -> None:
    for name, published in (("clip-80", "OPENAI_IMAGENET_TEMPLATES"), ("clip-7", "SIMPLE_IMAGENET_TEMPLATES")):
        assert read_prompts(name) == tuple(template("{}") for template in getattr(open_clip, published))
    names = read_packaged_names()
    assert names == tuple(open_clip.IMAGENET_CLASSNAMES)


def read_packaged_names() -> tuple[str, ...]:
    from brinell.config.model import ModelOptions
    from brinell.models.imagenet import imagenet_classes
    from brinell.models.zero_shot.prompts import class_phrases

    return class_phrases(ModelOptions(source="x:y", classes="imagenet"), imagenet_classes())


def test_open_clip_names_its_weights(texts: Path) -> None:
    with pytest.raises(
        brinell.errors.BrinellError, match=r"name the weights of open_clip:ViT-B-32 .* it has openai, laion400m"
    ):
        brinell.open_model(f"open_clip:ViT-B-32?classes={texts / 'digits.txt'}")
    with pytest.raises(brinell.errors.BrinellError, match=r"has no weights 'opnai'; did you mean openai"):
        brinell.open_model(f"open_clip:ViT-B-32?weights=opnai&classes={texts / 'digits.txt'}")
    with pytest.raises(brinell.errors.BrinellError, match=r"open_clip has no model 'VIT-B32'; did you mean ViT-B-32"):
        brinell.open_model(f"open_clip:VIT-B32?classes={texts / 'digits.txt'}")


PAIRS = r"(?P<original>\w+/\d+)(_(?P<variant>\w+))?\.png$"
QUICK = {
    "profile": {"operators": ["fade_black"], "levels": 2},
    "knob": {"operators": ["brightness"]},
    "geometry": {"methods": ["manifool"], "operators": ["translation"]},
}


@pytest.mark.parametrize("lens", [lens.name for lens in LENSES.values() if lens.package.startswith("brinell.")])
def test_every_lens(lens: str, folder: Path, texts: Path, data: Path, tmp_path: Path) -> None:
    source = f"hf:{folder}?classes={texts / 'digits.txt'}&prompts={texts / 'one.txt'}&name=towers"
    run = brinell.run(
        source,
        {"source": str(data), "limit": 4, **({"pattern": PAIRS} if lens == "photographs" else {})},
        lens={"name": lens, "preset": "quick", **QUICK.get(lens, {})},
        execution=PLAIN,
        out=tmp_path / "run",
        quiet=True,
    )
    assert run.rows("select count(*) from rows").fetchall()[0][0] > 0


def test_the_command_of_the_page(folder: Path, texts: Path, data: Path, tmp_path: Path) -> None:
    for name, target in (("clip-digits", folder), ("digits", data), ("digits.txt", texts / "digits.txt")):
        (tmp_path / name).symlink_to(target)
    (tmp_path / "prompts.txt").symlink_to(texts / "two.txt")
    (command,), expected = shown("docs/models.md", "brinell run --model 'hf:clip-digits")
    printed = execute(tmp_path, shlex.split(command)[1:])
    assert "clip-digits\n" in printed and labels(expected) and set(labels(expected)) <= set(labels(printed)), printed
