"""Chat models with vision behind OpenAI-compatible chat completions: classifiers over a closed set, or free answers.

Scores are the probabilities of the choices' letters as the first token of the answer, where the server returns them;
otherwise the answer is parsed strictly and stands alone.
"""

from __future__ import annotations

import base64
import json
import string
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from brinell.classes import NO_ANSWER, Classes
from brinell.config.execution import Execution
from brinell.config.model import ModelOptions
from brinell.errors import ConfigError, ServiceError
from brinell.models.device import select_device
from brinell.models.model import Model
from brinell.models.options import LETTERBOX_FILL, select_classes, select_preprocess
from brinell.models.preprocess import Preprocess
from brinell.models.remote.cache import AnswerCache, default_file
from brinell.models.remote.http import HttpClient, TransientError
from brinell.models.remote.mapping import RequestOptions, ServiceMapping, read_mapping
from brinell.models.remote.protocol import Request, encode_image
from brinell.models.remote.questions import CHOICES, QUESTION, QUESTION_BY_NAME, OpenQuestion, Question
from brinell.models.remote.service import MAX_PAUSE
from brinell.models.remote.source import (
    Opening,
    check_url,
    digest,
    public_headers,
    service_forward,
    without_normalisation,
)

SIDE = 448  # of the images that are sent
TOP = 20  # tokens whose probabilities are asked for, which is what APIs allow at most


@dataclass(frozen=True)
class ChatCodec:
    """Requests and answers of chat completions, with one image per request."""

    name: str
    question: Question | OpenQuestion
    options: RequestOptions
    parameters: Mapping[str, Any] = field(default_factory=dict)  # that this server understands
    votes: int = 1
    most: int = 1

    @property
    def seen(self) -> Mapping[int, str]:
        """The answers to an open question, by output."""
        return self.question.seen if isinstance(self.question, OpenQuestion) else {}

    def request(self, inputs: list[np.ndarray]) -> Request:
        """Write the question and the image as one message."""
        (image,) = inputs
        encoded = base64.b64encode(encode_image(image, self.options)).decode()
        picture = {"type": "image_url", "image_url": {"url": f"data:image/{self.options.format};base64,{encoded}"}}
        content = [{"type": "text", "text": self.question.ask()}, picture]
        body = {"model": self.name, "messages": [{"role": "user", "content": content}], **self.parameters}
        return Request(json.dumps(body).encode(), "application/json")

    def split(self, response: Any, count: int) -> list[Any]:
        """Return the whole response, so that it can be read in another way later."""
        return [response]

    def scores(self, answer: Any) -> np.ndarray:
        """Return the mean scores of a response's answers."""
        choices = answer.get("choices") if isinstance(answer, dict) else None
        if not isinstance(choices, list) or not choices or not all(isinstance(each, dict) for each in choices):
            raise ServiceError("its response has no choices, as chat completions have")
        if len(choices) < self.votes:
            raise ServiceError(f"it returned {len(choices)} of {self.votes} answers; it may not support n: use votes=1")
        scores: np.ndarray = np.stack([self._read(choice) for choice in choices]).mean(0)
        return scores.astype(np.float32)

    def _read(self, choice: Mapping[str, Any]) -> np.ndarray:
        message = choice.get("message")
        message = message if isinstance(message, dict) else {}
        answer = message.get("content")
        answer = answer if isinstance(answer, str) and not message.get("refusal") else None
        found = None
        if answer is not None:
            logs = choice.get("logprobs")
            found = self.question.read_tokens((logs.get("content") or []) if isinstance(logs, dict) else [], answer)
        if found is None:
            found = np.zeros(self.question.outputs)
            found[self.question.invalid if answer is None else self.question.read(answer)] = 1
        return found


def open_chat(rest: str, options: ModelOptions, execution: Execution) -> Model:
    """Open a chat model. One plain image is sent first, to learn whether the server returns probabilities of tokens."""
    options.is_detector()  # raises if there are options of detectors
    opening = _opening(rest, options, execution)
    question = _question(options)
    codec = ChatCodec(options.model or "", question, opening.mapping.request, votes=options.votes)
    identity: dict[str, Any] = {
        "url": opening.url,
        "model": options.model,
        "question": question.ask(),
        "votes": options.votes,
    }
    identity |= {"version": opening.mapping.version, "headers": public_headers(opening.mapping)}
    identity |= {"format": opening.mapping.request.format, "quality": opening.mapping.request.quality}
    parameters, scored = _learn(opening, codec, digest(identity))
    codec = ChatCodec(codec.name, question, codec.options, parameters, options.votes)
    service = opening.service(opening.url, codec, digest({**identity, "parameters": parameters}))
    classes = Classes((*question.classes.names, NO_ANSWER)) if isinstance(question, Question) else None
    known = Preprocess(SIDE, SIDE, fill=LETTERBOX_FILL)
    return Model(
        name=options.label,
        forward=service_forward(service),
        preprocess=without_normalisation(select_preprocess(options, known)),
        device=select_device(execution),
        fingerprint=digest({**identity, "parameters": parameters, "classes": classes and classes.names}),
        outputs=question.outputs,
        probabilities=True,
        classes=classes,
        facts={**opening.facts("chat completions", opening.mapping.request.format), "question": question.ask()},
        scores=scored or options.votes > 1,
        service=service,
        whole_only=True,
    )


def _opening(rest: str, options: ModelOptions, execution: Execution) -> Opening:
    if not rest.startswith(("http://", "https://")):
        raise ConfigError(f"expected chat:https://HOST/v1?model=NAME, got chat:{rest}")
    if options.model is None:
        raise ConfigError(f"name the model at {rest}: chat:{rest}?model=NAME&classes=…")
    mapping = ServiceMapping(protocol="chat") if options.mapping is None else read_mapping(options.mapping)
    if mapping.protocol != "chat":
        raise ConfigError(
            f"{options.mapping} should have `protocol: chat` for a chat model, with request.headers and calls"
        )
    if options.key is not None:
        headers = {"Authorization": f"Bearer ${{{options.key}}}", **mapping.request.headers}
        mapping = mapping.model_copy(update={"request": mapping.request.model_copy(update={"headers": headers})})
    url = check_url(f"{rest.rstrip('/')}/chat/completions")
    client = HttpClient(url, mapping.request, mapping.calls)
    cache = AnswerCache(Path(execution.answers).expanduser() if execution.answers else default_file())
    return Opening(url, mapping, client, cache, options, execution)


def _question(options: ModelOptions) -> Question | OpenQuestion:
    if options.task == "answer":
        if options.question is None or options.classes is not None or options.votes > 1:
            raise ConfigError(
                f"{options.source} answers freely (task=answer): it needs ?question=FILE, and no classes or votes"
            )
        return OpenQuestion(_read_question(options.question))
    classes = select_classes(options, None)
    if classes is None:
        raise ConfigError(f"{options.source} needs class names to choose from: ?classes=imagenet or a file")
    if options.question is None:
        letters = len(classes) <= len(string.ascii_uppercase)
        return Question(QUESTION if letters else QUESTION_BY_NAME, classes)
    text = _read_question(options.question)
    if CHOICES not in text:
        raise ConfigError(f"the question {options.question!r} needs {CHOICES} in the place of the classes")
    return Question(text, classes)


def _read_question(file: str) -> str:
    try:
        return Path(file).expanduser().read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"the question {file!r} can't be read as UTF-8 text: {error}") from error


# ---- what a server understands ----

FEWER = 5  # tokens whose probabilities are asked for where 20 are too many
_OPTIONAL = ("max_tokens", "top_logprobs", "logprobs", "temperature")  # the longer of two names first


def _without(parameters: Mapping[str, Any], refused: str) -> dict[str, Any]:
    """Return parameters for a server that refuses one of them."""
    kept = {name: value for name, value in parameters.items() if name != refused}
    if refused == "max_tokens":
        return {**kept, "max_completion_tokens": parameters[refused]}
    if refused == "top_logprobs" and parameters[refused] > FEWER:
        return {**kept, "top_logprobs": FEWER}
    if refused in ("logprobs", "top_logprobs"):
        return {name: value for name, value in kept.items() if name not in ("logprobs", "top_logprobs")}
    return kept


def _learn(opening: Opening, codec: ChatCodec, identity: str) -> tuple[dict[str, Any], bool]:
    """Return the parameters that a server takes, and whether it returns probabilities; cached after the first time.

    Servers refuse parameters that they or their models don't have, and name them in the error.
    """
    key = "parameters"
    if known := opening.cache.read(identity, [key]).get(key):
        return dict(known[0]["parameters"]), bool(known[0]["scored"])
    parameters: dict[str, Any] = {"max_tokens": codec.question.tokens, "temperature": 0 if codec.votes == 1 else 1}
    parameters |= {"logprobs": True, "top_logprobs": TOP} if codec.question.letters else {}
    parameters |= {} if codec.votes == 1 else {"n": codec.votes}
    while True:
        trial = ChatCodec(codec.name, codec.question, codec.options, parameters, codec.votes)
        try:
            response = _send(opening, trial.request([np.full((3, 64, 64), 128, np.uint8)]))
            trial.scores(response)
            break
        except ServiceError as error:
            problem = opening.client.redact(str(error))
            refused = next((name for name in _OPTIONAL if name in parameters and name in problem), None)
            if refused is None:
                raise ServiceError(
                    f"model {opening.options.label} ({opening.url}) can't be opened: {problem.removeprefix('it ')}"
                ) from None
            parameters = _without(parameters, refused)
    logs = [choice.get("logprobs") for choice in response["choices"]]
    scored = all(isinstance(each, dict) and each.get("content") for each in logs)
    opening.cache.store(identity, {key: {"parameters": parameters, "scored": scored}})
    return parameters, scored


def _send(opening: Opening, request: Request) -> Any:
    """Return the response to a request, with the same retries as in a run."""
    calls = opening.mapping.calls
    for attempt in range(calls.retries + 1):
        try:
            return opening.client.json("POST", opening.url, request.body, request.content_type)
        except TransientError as error:
            if attempt == calls.retries:
                raise ServiceError(f"it {error}") from None
            time.sleep(max(error.pause, min(calls.backoff * 2**attempt, MAX_PAUSE)))
    raise AssertionError
