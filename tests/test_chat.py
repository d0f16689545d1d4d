"""Chat models with vision, behind servers that respond as vLLM, Ollama and commercial APIs document it."""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import brinell
from brinell.classes import NO_ANSWER
from brinell.config.execution import Execution
from brinell.errors import BrinellError, ConfigError, ServiceError
from brinell.lenses.lens import LENSES
from brinell.models.model import Model
from brinell.models.remote.questions import Question
from brinell.models.sources import open_model
from brinell.run_config import load_config
from brinell.runs.queries import describe_invalid
from services import SECRET, Handler, Listener, decode_image, expected_scores, light_or_dark, listening, pixels

pytestmark = pytest.mark.usefixtures("answer_cache")
TINY = {"size": 32, "resize": "stretch"}


@pytest.fixture
def classes(tmp_path: Path) -> Path:
    (tmp_path / "classes.txt").write_text("light\ndark\n")
    return tmp_path / "classes.txt"


def image_of(body: bytes) -> np.ndarray:
    (message,) = json.loads(body)["messages"]
    text, picture = message["content"]
    assert "A. light\nB. dark" in text["text"]
    head, _, data = picture["image_url"]["url"].partition(",")
    assert head == "data:image/png;base64"
    return decode_image(base64.b64decode(data))


def completion(*answers: str | None, logprobs: Any = None, **more: Any) -> dict[str, Any]:
    """A response of chat completions."""
    choices = [
        {
            "index": number,
            "message": {"role": "assistant", "content": answer, **more},
            "logprobs": logprobs,
            "finish_reason": "stop",
        }
        for number, answer in enumerate(answers)
    ]
    return {"id": "chatcmpl-1", "object": "chat.completion", "choices": choices, "usage": {"total_tokens": 300}}


def letter(image: np.ndarray) -> str:
    scores = light_or_dark(image)
    return "A" if scores["light"] >= 0.5 else "B"


def vllm(handler: Handler, body: bytes) -> Any:
    """Answer with a letter and the probabilities of tokens, spread over several spellings."""
    asked = json.loads(body)
    assert asked["logprobs"] is True and asked["top_logprobs"] == 20 and asked["temperature"] == 0
    image = image_of(body)
    light = light_or_dark(image)["light"] * 0.98
    spellings = [("A", light * 0.75), (" A", light * 0.25), ("B", 0.98 - light), ("The", 0.02)]
    top = [{"token": token, "logprob": math.log(max(share, 1e-9)), "bytes": None} for token, share in spellings]
    best = max(top, key=lambda each: each["logprob"])
    return completion(best["token"], logprobs={"content": [{**best, "top_logprobs": top}]})


def ollama(handler: Handler, body: bytes) -> Any:
    """Answer with a letter alone, whatever else was asked for; dark images with a sentence."""
    image = image_of(body)
    return completion("I can't tell from this picture." if image.mean() < 40 else f" {letter(image)}.\n")


def chat(server: Listener, classes: Path, more: str = "", **execution: Any) -> Model:
    url = server.url.removesuffix("/predict")
    return open_model({"source": f"chat:{url}/v1?model=tiny&classes={classes}{more}", **TINY}, Execution(**execution))


def test_scores_are_probabilities_of_letters(classes: Path) -> None:
    with listening(vllm) as server:
        model = chat(server, classes)
        assert model.classes is not None and model.classes.names == ("light", "dark", NO_ANSWER) and model.scores
        scores = model.predict(pixels())
        assert torch.allclose(scores[:, :2], expected_scores(pixels()) * 0.98, atol=1e-5)
        assert torch.allclose(scores[:, 2], torch.tensor(0.02), atol=1e-5)
        count = len(server.requests)
        assert count == 1 + len(pixels())  # the first learns what the server understands
        again = chat(server, classes)
        assert torch.equal(again.predict(pixels()), scores) and len(server.requests) == count
        assert again.fingerprint == model.fingerprint and model.name == "tiny"


def test_answers_are_parsed_strictly_where_there_are_no_probabilities(classes: Path, tmp_path: Path) -> None:
    with listening(ollama) as server:
        model = chat(server, classes)
        assert not model.scores
        inputs = torch.stack([torch.full((3, 32, 32), grey, dtype=torch.uint8) for grey in (250, 90, 10)])
        assert model.predict(inputs).argmax(1).tolist() == [0, 1, 2]
        photos = tmp_path / "photos" / "light"
        photos.mkdir(parents=True)
        for index in range(4):
            Image.fromarray(np.full((32, 32, 3), 180 + 20 * index, np.uint8)).save(photos / f"{index}.png")
        lens = {"name": "profile", "operators": ["fade_black"], "levels": 30}
        run = brinell.run(
            f"chat:{server.url.removesuffix('/predict')}/v1?model=tiny&classes={classes}&size=32&resize=stretch",
            {"source": str(photos.parent)},
            lens=lens,
            budget=1.0,
            out=tmp_path / "run",
            quiet=True,
        )
    counts = dict(run.rows("select prediction, count(*) from rows group by all").fetchall())
    assert set(counts) == {0, 1, 2}, "no valid answer is counted apart"
    assert describe_invalid(run) == [f"tiny: {counts[2]} of {sum(counts.values())} answers are no valid answer."]
    assert describe_invalid(run)[0] in Path(str(run.report())).read_text()


@pytest.mark.parametrize(
    ("answer", "more", "expected"),
    [
        ("A", {}, 0),
        ("b) dark", {}, 1),
        ("**B**", {}, 1),
        ("Dark.", {}, 1),
        ("A. dark", {}, 2),
        ("It is a light image", {}, 2),
        ("A or B", {}, 2),
        ("", {}, 2),
        (None, {"refusal": "I'm sorry, I can't help with that."}, 2),
        ("A", {"refusal": "no"}, 2),
    ],
)
def test_what_is_a_valid_answer(answer: str | None, more: dict[str, Any], expected: int, classes: Path) -> None:
    with listening(lambda handler, body: completion(answer, **more)) as server:
        assert int(chat(server, classes).predict(pixels(1)).argmax()) == expected


@pytest.mark.parametrize(
    ("answer", "first", "expected"),
    [
        ("B", "B", [0.1, 0.7, 0.2]),
        ("**B**", "B", [0.1, 0.7, 0.2]),
        ("B. dark, since it is night", "B", [0.1, 0.7, 0.2]),
        ("B\n\nThe image is dark.", "B", [0.1, 0.7, 0.2]),
        ("dark", "dark", [0.1, 0.7, 0.2]),
        ("A dark image", "A", [0.0, 0.0, 1.0]),
        ("A'right", "A", [0.0, 0.0, 1.0]),
        ("I can't tell.", "I", [0.1, 0.0, 0.9]),
        ("Bright", "B", [0.1, 0.0, 0.9]),
    ],
)
def test_only_a_choice_has_the_probability_of_its_first_token(
    answer: str, first: str, expected: list[float], classes: Path
) -> None:
    """A sentence may begin with the same token."""
    top = [{"token": first, "logprob": math.log(0.7)}, {"token": "A", "logprob": math.log(0.1)}]
    logprobs = {"content": [{**top[0], "top_logprobs": top if first != "A" else top[:1]}]}
    with listening(lambda handler, body: completion(answer, logprobs=logprobs)) as server:
        assert chat(server, classes).predict(pixels(1))[0].tolist() == pytest.approx(expected, abs=1e-6)


def test_a_truncated_answer_is_not_valid(classes: Path) -> None:
    def truncate(handler: Handler, body: bytes) -> Any:
        response = completion("<think>The image seems")
        response["choices"][0]["finish_reason"] = "length"
        return response

    with listening(truncate) as server:
        assert int(chat(server, classes).predict(pixels(1)).argmax()) == 2


def commercial(handler: Handler, body: bytes) -> Any:
    """Refuse parameters as reasoning models do, and ask for a pause first."""
    asked = json.loads(body)
    if handler.number == 1:
        handler.send(429, b'{"error": {"message": "Rate limit reached"}}', retry_after="0")
        return None
    for name, hint in (("max_tokens", " Use 'max_completion_tokens' instead."), ("logprobs", ""), ("temperature", "")):
        if name in asked:
            message = f"Unsupported parameter: '{name}' is not supported with this model.{hint}"
            handler.send(400, json.dumps({"error": {"message": message, "type": "invalid_request_error"}}).encode())
            return None
    assert asked["max_completion_tokens"] > 0 and "top_logprobs" not in asked
    return completion(letter(image_of(body)))


def test_parameters_that_a_server_refuses_are_left_out(
    classes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OUR_KEY", SECRET)
    (tmp_path / "calls.yaml").write_text("protocol: chat\ncalls: {backoff: 0.01, price: 0.002, currency: USD}\n")
    with listening(commercial) as server:
        model = chat(server, classes, f"&key=OUR_KEY&mapping={tmp_path / 'calls.yaml'}")
        assert not model.scores and model.service is not None and model.service.price == 0.002
        assert torch.equal(model.predict(pixels()).argmax(1), expected_scores(pixels()).argmax(1))
        assert all(headers["Authorization"] == f"Bearer {SECRET}" for headers in server.headers)
    assert (
        SECRET not in str(model) and SECRET.encode() not in (tmp_path / "cache" / "brinell" / "answers.sqlite").read_bytes()
    )


def test_votes(classes: Path) -> None:
    def vote(handler: Handler, body: bytes) -> Any:
        asked = json.loads(body)
        assert asked["n"] == 4 and asked["temperature"] == 1
        return completion("A", "A", "B", "hm")

    with listening(vote) as server:
        model = chat(server, classes, "&votes=4")
        assert model.scores and model.predict(pixels(1)).tolist() == [[0.5, 0.25, 0.25]]
    with listening(ollama) as server, pytest.raises(ServiceError, match="returned 1 of 4 answers; it may not support n"):
        chat(server, classes, "&votes=4")


def test_many_classes_are_named(tmp_path: Path) -> None:
    names = [f"thing {index}" for index in range(30)]
    (tmp_path / "many.txt").write_text("\n".join(names))

    def name(handler: Handler, body: bytes) -> Any:
        asked = json.loads(body)
        assert "logprobs" not in asked and "thing 7\nthing 8" in asked["messages"][0]["content"][0]["text"]
        return completion("thing 7")

    with listening(name) as server:
        assert int(chat(server, tmp_path / "many.txt").predict(pixels(1)).argmax()) == 7


def test_questions_and_errors(classes: Path, tmp_path: Path) -> None:
    (tmp_path / "question.txt").write_text("Is it {choices}?")
    (tmp_path / "bad.txt").write_text("What is it?")
    model: dict[str, Any] = {"source": "chat:http://127.0.0.1:9/v1", "model": "m", "classes": str(classes)}
    errors: list[tuple[dict[str, Any], str]] = [
        ({"question": str(tmp_path / "bad.txt")}, r"needs \{choices\} in the place of the classes"),
        ({"model": None}, r"name the model at http://127.0.0.1:9/v1: chat:"),
        ({"classes": None}, "needs class names to choose from"),
        ({"source": "chat:localhost"}, r"expected chat:https://HOST/v1\?model=NAME, got chat:localhost"),
        ({"key": "no-name"}, "key"),
    ]
    for change, message in errors:
        with pytest.raises(BrinellError, match=message):
            open_model({key: value for key, value in {**model, **change}.items() if value is not None})
    names = brinell.models.model.Classes(("light", "dark"))
    assert Question("Is it {choices}?", names).ask() == "Is it A. light\nB. dark?"


def test_frugal_by_default() -> None:
    config = load_config({"model": "chat:http://host/v1?model=m&classes=2", "data": "demo-photos", "lens": "knob"})
    assert config.budget is not None and config.budget.share == 0.1 and config.lenses[0].search == "bracket"  # type: ignore[attr-defined]
    full = {
        "model": "chat:http://host/v1?model=m",
        "data": "x",
        "budget": "0.5",
        "lens": {"name": "knob", "search": "exact"},
    }
    config = load_config(full)
    assert config.budget is not None and config.budget.share == 0.5 and config.lenses[0].search == "exact"  # type: ignore[attr-defined]
    assert load_config({"model": "fake:grey", "data": "x"}).budget is None


def test_two_operators_under_the_default_budget(classes: Path, tmp_path: Path) -> None:
    """Without scores there is nothing to average but accuracy; a warning would be an error here."""
    photos = tmp_path / "photos" / "light"
    photos.mkdir(parents=True)
    for index in range(4):
        Image.fromarray(np.full((32, 32, 3), 180 + 20 * index, np.uint8)).save(photos / f"{index}.png")
    with listening(ollama) as server:
        source = f"chat:{server.url.removesuffix('/predict')}/v1?model=tiny&classes={classes}&size=32&resize=stretch"
        lens = {"name": "profile", "operators": ["fade_black", "noise"]}
        run = brinell.run(source, {"source": str(photos.parent)}, lens=lens, out=tmp_path / "run", quiet=True)
    assert run.sampled and "average" in str(run.summary())
    assert run.rows("select count(*) from rows where probability is not null").fetchall() == [(0,)]


def test_free_answers(tmp_path: Path) -> None:
    (tmp_path / "question.txt").write_text("What is in the image?\n")

    def describe(handler: Handler, body: bytes) -> Any:
        text, picture = json.loads(body)["messages"][0]["content"]
        assert text["text"] == "What is in the image?" and json.loads(body)["max_tokens"] == 64
        image = decode_image(base64.b64decode(picture["image_url"]["url"].partition(",")[2]))
        if image.mean() < 20:
            return completion(None, refusal="no")
        return completion(f"A {'bright' if image.mean() > 128 else 'dim'} wall" + "." * (handler.number % 2))

    photos = tmp_path / "photos"
    (photos / "light").mkdir(parents=True)
    for index in range(3):
        Image.fromarray(np.full((16, 16, 3), 200 + 20 * index, np.uint8)).save(photos / "light" / f"{index}.png")
    lens = {"name": "profile", "operators": ["fade_black"], "levels": 30, "criterion": "same_answer"}
    with listening(describe) as server:
        url = server.url.removesuffix("/predict")
        source = f"chat:{url}/v1?model=tiny&task=answer&question={tmp_path / 'question.txt'}&size=16"
        data = {"source": str(photos), "labels": "prediction"}
        run = brinell.run(source, data, lens=lens, budget=1.0, out=tmp_path / "run", quiet=True)
        with pytest.raises(ConfigError, match=r"tiny answers freely.*add --labels prediction"):
            brinell.run(source, photos, lens=lens, out=tmp_path / "other", quiet=True)
        with pytest.raises(ConfigError, match="compares with the answer to the clean image; add --labels prediction"):
            brinell.run("fake:grey", photos, lens=lens, out=tmp_path / "o", quiet=True)
    counts = run.rows("select prediction, bool_and(correct), bool_or(correct) from rows group by all").fetchall()
    names = {run.models["tiny"].class_name(index): (all_right, any_right) for index, all_right, any_right in counts}
    assert {name.rstrip(".") for name in names if name} == {"A bright wall", "A dim wall", NO_ANSWER}
    assert [right for name, right in names.items() if name and name.startswith("A bright")] == [(True, True)]
    assert [right for name, right in names.items() if name and name.startswith("A dim")] == [(False, False)]


QUICK: dict[str, dict[str, Any]] = {
    "profile": {"operators": ["fade_black"], "levels": 3},
    "knob": {"operators": ["brightness"], "points": 8},
    "geometry": {"operators": ["translation"], "methods": ["grid"]},
}


@pytest.mark.parametrize("lens", [one.name for one in LENSES.values() if one.package.startswith("brinell.lenses.")])
def test_every_lens(lens: str, classes: Path, tmp_path: Path) -> None:
    photos = tmp_path / "photos" / "light"
    photos.mkdir(parents=True)
    for name, grey in (("a", 200), ("a_night", 120), ("b", 180), ("b_night", 60)):
        Image.fromarray(np.full((24, 36, 3), grey, np.uint8)).save(photos / f"{name}.png")
    data: dict[str, Any] = {"source": str(photos.parent)}
    if lens == "photographs":
        data["pattern"] = r"(?P<original>[^/_]+)(_(?P<variant>\w+))?\.png$"
    with listening(vllm) as server:
        source = f"chat:{server.url.removesuffix('/predict')}/v1?model=tiny&classes={classes}&size=16"
        run: Callable[..., Any] = lambda **options: brinell.run(  # noqa: E731
            source, data, lens={"name": lens, **options}, budget=1.0, out=tmp_path / "run", quiet=True
        )
        if lens == "geometry":
            with pytest.raises(ConfigError, match="needs gradients, and model tiny has none"):
                run(methods=["manifool"])
        found = run(**({"preset": "quick"} | QUICK.get(lens, {})))
    assert found.rows("select count(*) from rows").fetchall()[0][0] > 0
