"""Real servers of chat completions with a small network that sees light and dark: `transformers serve` and llama.cpp's."""

from __future__ import annotations

import re
import shlex
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import tiny_llava
import torch
from tiny_llava import SIDE, letter_scores, picture, serving, write_gguf
from torch import Tensor

import brinell
from brinell.classes import NO_ANSWER
from worked import execute, labels, shown

transformers = pytest.importorskip("transformers", reason="needs transformers: make test-zoo", exc_type=ImportError)
pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.usefixtures("answer_cache")]
LLAMA = """
import sys, time, xllamacpp
options = xllamacpp.CommonParams()
options.model.path, options.mmproj.path, port = sys.argv[1:]
options.hostnames, options.port, options.n_ctx, options.n_parallel = ["127.0.0.1"], int(port), 2048, 4
options.cpuparams.n_threads = options.cpuparams_batch.n_threads = 1
server = xllamacpp.Server(options)
time.sleep(3600)
"""


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Any, Path]:
    """The network, its processor, and a folder that has both for transformers."""
    folder = tmp_path_factory.mktemp("servers") / "llava"
    module, processor = tiny_llava.train(transformers)
    module.save_pretrained(folder)
    processor.save_pretrained(folder)
    return module, processor, folder


@pytest.fixture(scope="module")
def transformers_server(network: tuple[Any, Any, Path]) -> Iterator[str]:
    """The URL of `transformers serve`."""
    pytest.importorskip("fastapi", reason="needs transformers[serving]: make test-zoo", exc_type=ImportError)
    pytest.importorskip("uvicorn", reason="needs transformers[serving]: make test-zoo", exc_type=ImportError)
    folder, port = network[2], str(free_port())
    command = [str(Path(sys.executable).with_name("transformers")), "serve", "llava", "--device", "cpu", "--port", port]
    log = folder.with_name("transformers.txt")
    start = lambda file: subprocess.Popen(command, stdout=file, stderr=file, cwd=folder.parent)  # noqa: E731
    with serving(start, f"http://127.0.0.1:{port}", log) as url:
        yield url


@pytest.fixture(scope="module")
def llama_server(network: tuple[Any, Any, Path]) -> Iterator[str]:
    """The URL of llama.cpp's server."""
    pytest.importorskip("xllamacpp", reason="needs llama.cpp: make test-zoo", exc_type=ImportError)
    pytest.importorskip("gguf", reason="needs gguf: make test-zoo", exc_type=ImportError)
    module, processor, folder = network
    port = str(free_port())
    command = [sys.executable, "-c", LLAMA, *map(str, write_gguf(module, processor, folder)), port]
    log = folder.with_name("llama.txt")
    start = lambda file: subprocess.Popen(command, stdout=file, stderr=file)  # noqa: E731
    with serving(start, f"http://127.0.0.1:{port}", log) as url:
        yield url


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with classes, a patient mapping, and photographs, which is the current one."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "classes.txt").write_text("light\ndark\n")
    (tmp_path / "calls.yaml").write_text("protocol: chat\ncalls: {concurrency: 1, timeout: 120}\n")
    for name, grey in (("light", 230), ("dark", 40)):
        (tmp_path / "photos" / name).mkdir(parents=True)
        picture(grey).save(tmp_path / "photos" / name / "a.png")
    return tmp_path


def greys(*values: int) -> Tensor:
    return torch.tensor(values, dtype=torch.uint8)[:, None, None, None].expand(-1, 3, SIDE, SIDE).contiguous()


def source(url: str, more: str = "") -> str:
    return f"chat:{url}?model=llava&classes=classes.txt&mapping=calls.yaml&size={SIDE}&resize=stretch{more}"


def test_a_server_without_probabilities(transformers_server: str, here: Path) -> None:
    model = brinell.open_model(source(transformers_server))
    assert not model.scores, "this server returns no probabilities of tokens"
    assert model.predict(greys(230, 20, 180, 60)).argmax(1).tolist() == [0, 1, 0, 1]


def test_the_command_of_the_page(transformers_server: str, here: Path) -> None:
    """As it is printed, but for the port."""
    (_, command), _ = shown("docs/remote.md", "transformers serve")
    printed = execute(here, [*shlex.split(at(transformers_server, command), comments=True)[1:], "--out", "run"])
    assert "llava: 0 of " in printed and {"fade to black", "random noise"} <= set(labels(printed)), printed
    assert brinell.Run("run").rows("select bool_and(correct) from rows where level = 0").fetchall() == [(True,)]


def test_the_command_for_free_answers(llama_server: str, here: Path) -> None:
    (here / "question.txt").write_text(tiny_llava.PROMPT)
    (_, command), expected = shown("docs/remote.md", "llama-server")
    printed = execute(here, [*shlex.split(at(llama_server, command), comments=True)[1:], "--limit", "2"])
    assert labels(expected) and set(labels(expected)) <= set(labels(printed)), printed


def at(url: str, command: str) -> str:
    return re.sub(r"http://127\.0\.0\.1:\d+/v1", url, command)


def test_probabilities_are_those_of_the_network(
    llama_server: str, network: tuple[Any, Any, Path], here: Path, tmp_path: Path
) -> None:
    """llama.cpp computes with other code; its GELU comes from a table of half precision."""
    shown = (230, 131, 128, 126, 124, 60)
    model = brinell.open_model(source(llama_server))
    assert model.scores and model.classes is not None and model.classes.names == ("light", "dark", NO_ANSWER)
    expected = letter_scores(*network[:2], torch.tensor(shown, dtype=torch.float32))
    scores = model.predict(greys(*shown))
    torch.testing.assert_close(scores[:, :2], expected, atol=5e-3, rtol=0)
    torch.testing.assert_close(scores[:, 2], 1 - expected.sum(1), atol=5e-3, rtol=0)
    assert scores[:, 2].min() > 0, "tokens that are no choice"
    lens = {"name": "knob", "operators": ["brightness"], "points": 16, "criterion": "confident_misclassification(0.5)"}
    given: dict[str, Any] = {"budget": 1.0, "out": tmp_path / "run", "quiet": True}
    run = brinell.run(source(llama_server, "&name=llava"), "photos", lens=lens, **given)
    assert run.rows("select count(*) from rows").fetchall()[0][0] > 0, "a criterion that needs scores"


def test_votes_of_a_server(llama_server: str, here: Path) -> None:
    model = brinell.open_model(source(llama_server, "&votes=4"))
    scores = model.predict(greys(230, 30))
    assert scores[:, :2].argmax(1).tolist() == [0, 1] and scores.sum(1).tolist() == pytest.approx([1, 1])


def test_free_answers_of_a_server(llama_server: str, here: Path, tmp_path: Path) -> None:
    """The answer to the clean image is what counts, whatever it is."""
    (here / "question.txt").write_text(tiny_llava.PROMPT)
    asked = f"chat:{llama_server}?model=llava&task=answer&question=question.txt&size={SIDE}&resize=stretch&name=llava"
    lens = {"name": "profile", "operators": ["fade_black"], "levels": 30, "criterion": "same_answer"}
    data = {"source": "photos", "labels": "prediction"}
    run = brinell.run(asked, data, lens=lens, budget=1.0, out=tmp_path / "run", quiet=True)
    rows = run.rows("select image, level, correct, prediction from rows order by image, level").fetchall()
    names = {run.models["llava"].class_name(prediction) for *_, prediction in rows}
    assert names == {"A", "B"}
    by_image: dict[str, list[bool]] = {}
    for image, _, correct, _ in rows:
        by_image.setdefault(image, []).append(correct)
    changed = sorted(not all(each) for each in by_image.values())
    assert changed == [False, True], "a dark image stays dark, and a light one does not stay light"
