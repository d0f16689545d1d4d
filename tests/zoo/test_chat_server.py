"""A real server of chat completions, `transformers serve`, with a small network that sees light and dark."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

import brinell
from brinell.classes import Classes
from brinell.models.remote.questions import QUESTION, Question

transformers = pytest.importorskip("transformers", reason="needs transformers: make test-zoo", exc_type=ImportError)
pytest.importorskip("fastapi", reason="needs transformers[serving]: make test-zoo", exc_type=ImportError)
pytest.importorskip("uvicorn", reason="needs transformers[serving]: make test-zoo", exc_type=ImportError)

pytestmark = pytest.mark.filterwarnings("ignore")
SIDE, IMAGE_TOKEN = 32, 4
TEMPLATE = (
    "{% for message in messages %}{% for part in message['content'] %}{% if part['type'] == 'image' %}<image>"
    "{% elif part['type'] == 'text' %}{{ part['text'] }}{% endif %}{% endfor %}{% endfor %}"
)


def tokeniser() -> Any:
    """One token per character."""
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers

    words = ["<pad>", "<unk>", "<s>", "</s>", "<image>", *map(chr, range(32, 127)), "\n"]
    plain = Tokenizer(models.WordLevel({word: index for index, word in enumerate(words)}, unk_token="<unk>"))
    plain.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
    plain.decoder = decoders.Fuse()
    special = {"pad_token": "<pad>", "unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>"}
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=plain, additional_special_tokens=["<image>"], model_max_length=2048, **special
    )


def make_network(folder: Path) -> None:
    """Train a small LLaVA for seconds to answer A for light images and B for dark ones."""
    tokens = tokeniser()
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2}
    vision = transformers.CLIPVisionConfig(image_size=SIDE, patch_size=8, **sizes)
    text = transformers.LlamaConfig(
        vocab_size=len(tokens), max_position_embeddings=2048, bos_token_id=2, eos_token_id=3, pad_token_id=0, **sizes
    )
    torch.manual_seed(0)
    network = transformers.LlavaForConditionalGeneration(
        transformers.LlavaConfig(vision_config=vision, text_config=text, image_token_index=IMAGE_TOKEN, image_seq_length=16)
    )
    network.generation_config.eos_token_id, network.generation_config.pad_token_id = 3, 0
    images = transformers.CLIPImageProcessor(size={"shortest_edge": SIDE}, crop_size={"height": SIDE, "width": SIDE})
    processor = transformers.LlavaProcessor(
        image_processor=images,
        tokenizer=tokens,
        patch_size=8,
        vision_feature_select_strategy="default",
        chat_template=TEMPLATE,
        num_additional_image_tokens=1,
    )
    greys = torch.cat([torch.linspace(5, 100, 8), torch.linspace(150, 250, 8)])
    prompt = f"{Question(QUESTION, Classes(('light', 'dark'))).ask()}<image>"
    given = processor(images=[picture(float(grey)) for grey in greys], text=[prompt] * 16, return_tensors="pt")
    letters = torch.tensor([tokens.convert_tokens_to_ids("A" if grey > 125 else "B") for grey in greys])
    ends = torch.full_like(letters, 3)
    inputs = torch.cat([given["input_ids"], letters[:, None], ends[:, None]], 1)
    labels = inputs.clone()
    labels[:, :-2] = -100
    adam = torch.optim.Adam(network.parameters(), lr=3e-3)
    for _ in range(60):
        loss = network(input_ids=inputs, pixel_values=given["pixel_values"], labels=labels).loss
        adam.zero_grad()
        loss.backward()
        adam.step()
    network.save_pretrained(folder)
    processor.save_pretrained(folder)


def picture(grey: float) -> Image.Image:
    return Image.fromarray(np.full((SIDE, SIDE, 3), grey, np.uint8))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """The URL of the server, and the folder of its network."""
    folder = tmp_path_factory.mktemp("llava")
    make_network(folder)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = Path(sys.executable).with_name("transformers")
    log = (folder / "log.txt").open("wb")
    process = subprocess.Popen(
        [str(command), "serve", str(folder), "--device", "cpu", "--port", str(port)], stdout=log, stderr=log
    )
    try:
        url = f"http://127.0.0.1:{port}"
        for _ in range(600):
            assert process.poll() is None, (folder / "log.txt").read_text()[-2000:]
            try:
                urllib.request.urlopen(f"{url}/health", timeout=1).close()
                break
            except OSError:
                time.sleep(0.2)
        yield f"{url}/v1", folder
    finally:
        process.terminate()
        process.wait(20)
        log.close()


@pytest.mark.usefixtures("answer_cache")
def test_a_real_server(server: tuple[str, Path], tmp_path: Path) -> None:
    url, folder = server
    (tmp_path / "classes.txt").write_text("light\ndark\n")
    (tmp_path / "calls.yaml").write_text("protocol: chat\ncalls: {concurrency: 1, timeout: 120}\n")
    source = f"chat:{url}?model={folder}&classes={tmp_path / 'classes.txt'}&mapping={tmp_path / 'calls.yaml'}&size={SIDE}"
    model = brinell.open_model(f"{source}&resize=stretch")
    assert not model.scores, "this server returns no probabilities of tokens"
    assert model.predict(greys(230, 20, 180, 60)).argmax(1).tolist() == [0, 1, 0, 1]
    photos = tmp_path / "photos" / "light"
    photos.mkdir(parents=True)
    picture(230).save(photos / "a.png")
    lens = {"name": "profile", "operators": ["fade_black"], "levels": 4}
    data = {"source": str(photos.parent)}
    run = brinell.run(f"{source}&resize=stretch&name=llava", data, lens=lens, budget=1.0, out=tmp_path / "run", quiet=True)
    assert run.rows("select count(*), bool_and(correct) from rows where level = 0").fetchall() == [(1, True)]


def greys(*values: int) -> Tensor:
    return torch.tensor(values, dtype=torch.uint8)[:, None, None, None].expand(-1, 3, SIDE, SIDE).contiguous()
