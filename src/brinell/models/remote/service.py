"""Asking a service over HTTP: side by side, no faster than allowed, again where that helps, and nothing twice."""

from __future__ import annotations

import hashlib
import threading
import time
import uuid
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any

import numpy as np
import torch
from torch import Tensor

from brinell.errors import BrinellError, ServiceError
from brinell.models.remote.cache import Answers, Counts
from brinell.models.remote.http import Passing, Wire
from brinell.models.remote.protocol import Asking

LONGEST_PAUSE = 30.0  # seconds between two tries
PATIENCE = 300.0  # seconds: a service that wants a longer wait (Retry-After) is asked another day


class Service:
    """A model behind HTTP, with what it costs to ask it. `batch` is how many images at a time keep it busy.

    A question is asked in a thread of its own. What comes back is kept before anything else is done with it. As many
    images as `calls.failures` allows may go without an answer: theirs is NaN. After one more no question is begun until
    another run begins; those under way are answered and kept.
    """

    def __init__(
        self, wire: Wire, url: str, asking: Asking, answers: Answers, *, identity: str, name: str, limit: int | None
    ) -> None:
        self.wire, self.url, self.asking, self.answers = wire, url, asking, answers
        self.identity, self.name, self.limit = identity, name, limit
        self.batch = wire.calls.concurrency * asking.most
        self.price = wire.calls.price
        self._run = f"not a run: {uuid.uuid4().hex}"
        self._pool = ThreadPoolExecutor(wire.calls.concurrency, "ask")
        self._lock = threading.RLock()
        self._under_way: dict[str, Future[dict[str, np.ndarray]]] = {}
        self._unanswered = 0
        self._shape: tuple[int, ...] | None = None  # of an answer's scores
        self._next = 0.0  # when the next question may be sent
        self._failure: BrinellError | None = None
        self._stopped = threading.Event()

    # ---- counting ----

    def begin(self, run: str) -> None:
        """Count for a run from here on, together with what it asked before it was stopped."""
        self.answers.rename(self._run, run, self.identity)
        self._run = run
        self._unanswered = 0
        self._failure = None
        self._stopped.clear()

    @property
    def counts(self) -> Counts:
        """What the run has asked so far."""
        return self.answers.counts(self._run, self.identity)

    @property
    def tolerant(self) -> bool:
        """Whether an image may go without an answer."""
        return self.wire.calls.failures > 0

    @property
    def unanswered(self) -> int:
        """How many images did in this run, since it was begun or went on."""
        return self._unanswered

    @property
    def rate(self) -> float | None:
        """Images a second at most, where that is set."""
        return self.wire.calls.rate

    # ---- asking ----

    def scores(self, inputs: Tensor) -> Tensor:
        """Scores (N, K) of uint8 inputs (N, C, H, W) on the host. Equal inputs are one question."""
        images = inputs.numpy()
        keys = [_key(image) for image in images]
        distinct = dict(zip(keys, images, strict=True))
        known, futures = self._begin(distinct)
        found = {**known, **self._finished(futures)}
        return torch.from_numpy(np.stack([found[key] for key in keys]))

    def _begin(self, images: dict[str, np.ndarray]) -> tuple[dict[str, np.ndarray], set[Future[dict[str, np.ndarray]]]]:
        """What is known about images, and questions about the others, which someone may be asking already."""
        with self._lock:  # nobody asks what another has just asked
            known, oldest = self._read(images)
            futures = {self._under_way[key] for key in images if key in self._under_way}
            new = [key for key in images if key not in known and key not in self._under_way]
            size = min(self.asking.most, -(-len(new) // self.wire.calls.concurrency) or 1)
            for start in range(0, len(new), size):
                part = {key: images[key] for key in new[start : start + size]}
                future = self._pool.submit(self._ask, part)
                self._under_way.update(dict.fromkeys(part, future))
                future.add_done_callback(lambda _, part=part: self._forget(part))  # type: ignore[misc]
                futures.add(future)
        if known:
            self.answers.count_cached(self._run, self.identity, len(known), oldest)
        return known, futures

    def _read(self, images: dict[str, np.ndarray]) -> tuple[dict[str, np.ndarray], str | None]:
        """Scores from kept answers, and the oldest one's day. One that can't be read is asked for again."""
        scores, oldest = {}, None
        for key, (answer, day) in self.answers.read(self.identity, images).items():
            try:
                scores[key] = self.asking.scores(answer)
            except ServiceError:
                continue
            oldest = min(oldest or day, day)
        return scores, oldest

    def _forget(self, part: dict[str, np.ndarray]) -> None:
        with self._lock:
            for key in part:
                self._under_way.pop(key, None)

    def _finished(self, futures: set[Future[dict[str, np.ndarray]]]) -> dict[str, np.ndarray]:
        try:
            return {key: scores for future in futures for key, scores in future.result().items()}
        except (BrinellError, _Stopped) as error:
            with self._lock:
                under_way = set(self._under_way.values())
            wait(under_way)  # they are paid for; whoever goes on from here must find their answers
            raise self._failure or error from None  # of all that failed, the first one, which stopped the others

    def _ask(self, part: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Ask about a few images, keep what is answered, and give their scores."""
        try:
            return self._answered(part)
        except ServiceError as error:
            if len(part) > 1 and self.tolerant:  # which of them was it?
                return {key: scores for key, image in part.items() for key, scores in self._ask({key: image}).items()}
            with self._lock:
                if self._shape is not None and self._unanswered < self.wire.calls.failures:
                    self._unanswered += 1
                    return {key: np.full(self._shape, np.nan, np.float32) for key in part}
                self._failure = self._failure or error
                self._stopped.set()
            raise
        except BrinellError as error:
            with self._lock:
                self._failure = self._failure or error
                self._stopped.set()
            raise

    def _answered(self, part: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        answer = self._answer(list(part.values()))
        try:
            answers = dict(zip(part, self.asking.split(answer, len(part)), strict=True))
            self.answers.keep(self.identity, answers)
            found = {key: self.asking.scores(answer) for key, answer in answers.items()}
        except ServiceError as error:
            raise self._told(str(error)) from None
        self._shape = next(iter(found.values())).shape
        return found

    def _answer(self, inputs: Sequence[np.ndarray]) -> Any:
        """The JSON answer to a request, after as many tries as it takes."""
        request, calls = self.asking.request(list(inputs)), self.wire.calls
        for attempt in range(calls.retries + 1):
            self._wait_for_a_turn(len(inputs))
            self.answers.spend(self._run, self.identity, len(inputs), self.limit)
            try:
                return self.wire.json("POST", self.url, request.body, request.content_type)
            except ServiceError as error:
                raise self._told(str(error)) from None
            except Passing as error:
                problem, pause = str(error), error.pause
            if pause > PATIENCE:
                raise self._told(f"it {problem} and wants to be left alone for {pause:,.0f} s")
            self._hold_back(max(pause, 0.0))
            if attempt < calls.retries:
                self._pause(max(pause, min(calls.backoff * 2**attempt, LONGEST_PAUSE)))
        raise self._told(f"it {problem}, {calls.retries + 1} times over")

    def _told(self, problem: str) -> ServiceError:
        return ServiceError(
            f"model {self.name} ({self.url}) can't go on: {self.wire.hidden(problem)}; what it answered is kept in "
            f"{self.answers.path}, and the same command goes on from there"
        )

    # ---- waiting ----

    def _wait_for_a_turn(self, images: int) -> None:
        with self._lock:
            turn = max(self._next, time.monotonic())
            if self.wire.calls.rate is not None:
                self._next = turn + images / self.wire.calls.rate
        self._pause(turn - time.monotonic())

    def _hold_back(self, seconds: float) -> None:
        """Let nobody ask before so many seconds have passed."""
        with self._lock:
            self._next = max(self._next, time.monotonic() + seconds)

    def _pause(self, seconds: float) -> None:
        if self._stopped.wait(max(seconds, 0.0)):
            raise _Stopped


class _Stopped(Exception):
    """Another question failed."""


def _key(image: np.ndarray) -> str:
    """32 hex digits of a model input: its shape and its pixels."""
    return hashlib.blake2b(str(image.shape).encode() + image.tobytes(), digest_size=16).hexdigest()
