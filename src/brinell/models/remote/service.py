"""Queries to a service over HTTP: in parallel, rate-limited, retried, and cached."""

from __future__ import annotations

import hashlib
import threading
import time
import uuid
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from brinell.errors import BrinellError, ServiceError
from brinell.interrupts import interrupted, set_on_interrupt
from brinell.models.model import Counts
from brinell.models.remote.cache import AnswerCache
from brinell.models.remote.http import HttpClient, TransientError
from brinell.models.remote.protocol import Codec

MAX_PAUSE = 30.0  # seconds between two attempts
MAX_RETRY_AFTER = 300.0  # seconds; a service that asks for a longer pause stops the run

POLL = 0.2  # seconds between two looks for another process's answers
GRACE = 0.8  # seconds after Ctrl-C in which answers are waited for

Scores = dict[str, np.ndarray]  # by the key of an image


@dataclass(frozen=True)
class Endpoint:
    """The name and URL of a model behind HTTP, and the identity under which its answers are cached."""

    name: str
    url: str
    identity: str


class RemoteService:
    """A model behind HTTP, and what its queries cost. See `models.model.Service`.

    Requests run in threads. An answer is stored in the cache before it is used. As many images as `calls.failures` allows
    may remain without an answer: their scores are NaN. One more failure stops the run: no new request is sent, but those in
    flight are completed and stored.
    """

    def __init__(
        self, client: HttpClient, endpoint: Endpoint, codec: Codec, cache: AnswerCache, *, limit: int | None
    ) -> None:
        self.client, self.endpoint, self.codec, self.cache, self.limit = client, endpoint, codec, cache, limit
        self.batch = client.calls.concurrency * codec.most
        self.price, self.currency = client.calls.price, client.calls.currency
        self._run = f"not a run: {uuid.uuid4().hex}"
        self._pool = ThreadPoolExecutor(client.calls.concurrency, "query")
        self._lock = threading.RLock()
        self._in_flight: dict[str, Future[Scores]] = {}
        self._unanswered = 0
        self._shape: tuple[int, ...] | None = None  # of an image's scores
        self._next = 0.0  # when the next request may be sent
        self._failure: BrinellError | None = None
        self._stopped = threading.Event()
        set_on_interrupt(self._stopped)

    # ---- counting ----

    def begin(self, run: str) -> None:
        """Count queries for a run from now on, in addition to those it made before it was interrupted."""
        self.cache.rename(self._run, run, self.endpoint.identity)
        self._run = run
        self._unanswered = 0
        self._failure = None
        self._stopped.clear()

    @property
    def counts(self) -> Counts:
        """The queries of the current run."""
        return self.cache.counts(self._run, self.endpoint.identity)

    @property
    def tolerant(self) -> bool:
        """Whether images may remain without an answer."""
        return self.client.calls.failures > 0

    @property
    def unanswered(self) -> int:
        """The number of images without an answer since the run was started or resumed."""
        return self._unanswered

    @property
    def rate(self) -> float | None:
        """The maximum number of images per second, if there is one."""
        return self.client.calls.rate

    @property
    def seen(self) -> Mapping[int, str]:
        """The texts of answers that are no classes, by output."""
        found: Mapping[int, str] = getattr(self.codec, "seen", {})
        return found

    # ---- queries ----

    def scores(self, inputs: Tensor) -> Tensor:
        """Return scores (N, K) for uint8 inputs (N, C, H, W) on the CPU. Equal inputs are queried once."""
        images = inputs.numpy()
        keys = [_key(image) for image in images]
        distinct = dict(zip(keys, images, strict=True))
        known, futures = self._submit(distinct)
        found = {**known, **self._collect(futures)}
        return torch.from_numpy(np.stack([found[key] for key in keys]))

    def _submit(self, images: Scores) -> tuple[Scores, set[Future[Scores]]]:
        """Return the scores that are cached, and requests for the others, some of which may be in flight already."""
        with self._lock:  # so that no image is sent twice
            known, oldest = self._read_cache(images)
            futures = {self._in_flight[key] for key in images if key in self._in_flight}
            new = [key for key in images if key not in known and key not in self._in_flight]
            size = min(self.codec.most, -(-len(new) // self.client.calls.concurrency) or 1)
            for start in range(0, len(new), size):
                part = {key: images[key] for key in new[start : start + size]}
                future = self._pool.submit(self._query, part)
                self._in_flight.update(dict.fromkeys(part, future))
                future.add_done_callback(lambda _, part=part: self._forget(part))  # type: ignore[misc]
                futures.add(future)
        if known:
            self.cache.count_cached(self._run, self.endpoint.identity, len(known), oldest)
        return known, futures

    def _read_cache(self, images: Scores) -> tuple[Scores, str | None]:
        """Return scores from cached answers, and the oldest date. An answer that can't be read is queried again."""
        scores, oldest = {}, None
        for key, (answer, date) in self.cache.read(self.endpoint.identity, images).items():
            try:
                scores[key] = self.codec.scores(answer)
            except ServiceError:
                continue
            oldest = min(oldest or date, date)
        return scores, oldest

    def _forget(self, part: Scores) -> None:
        with self._lock:
            for key in part:
                self._in_flight.pop(key, None)

    def _collect(self, futures: set[Future[Scores]]) -> Scores:
        try:
            _wait_for(futures)
            return {key: scores for future in futures for key, scores in future.result().items()}
        except (BrinellError, _Stopped) as error:
            with self._lock:
                in_flight = set(self._in_flight.values())
            _wait_for(in_flight)  # they are paid for, and a resumed run must find their answers
            raise self._failure or error from None  # the first failure, which stopped the other requests

    def _query(self, part: Scores) -> Scores:
        """Query the service for some images, and return their scores."""
        try:
            return self._query_or_wait(part)
        except ServiceError as error:
            if len(part) > 1 and self.tolerant:  # find out which image it was
                return {key: scores for key, image in part.items() for key, scores in self._query({key: image}).items()}
            with self._lock:
                if self._shape is not None and self._unanswered < self.client.calls.failures:
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

    def _query_or_wait(self, part: Scores) -> Scores:
        """Query the service for some images; wait for the answers to those that another process is sending."""
        found: Scores = {}
        while part:
            mine = self.cache.claim(self.endpoint.identity, part)
            try:
                known, _ = self._read_cache(part)  # after the claim: another process may have just answered
                found |= known
                left = {key: image for key, image in part.items() if key in mine and key not in known}
                found |= self._query_and_store(left) if left else {}
            finally:
                self.cache.release(self.endpoint.identity, mine)
            part = {key: image for key, image in part.items() if key not in found}
            if part:
                self._pause(POLL)
        return found

    def _query_and_store(self, part: Scores) -> Scores:
        response = self._send(list(part.values()))
        try:
            answers = dict(zip(part, self.codec.split(response, len(part)), strict=True))
            self.cache.store(self.endpoint.identity, answers)
            found = {key: self.codec.scores(answer) for key, answer in answers.items()}
        except ServiceError as error:
            raise self._error(str(error)) from None
        self._shape = next(iter(found.values())).shape
        return found

    def _send(self, inputs: Sequence[np.ndarray]) -> Any:
        """Send a request, with retries, and return the JSON response."""
        request, calls = self.codec.request(list(inputs)), self.client.calls
        for attempt in range(calls.retries + 1):
            self._wait_for_turn(len(inputs))
            self.cache.spend(self._run, self.endpoint.identity, len(inputs), self.limit)
            try:
                return self.client.json("POST", self.endpoint.url, request.body, request.content_type)
            except ServiceError as error:
                raise self._error(str(error)) from None
            except TransientError as error:
                problem, pause = str(error), error.pause
            if pause > MAX_RETRY_AFTER:
                raise self._error(f"it {problem} and asks to retry after {pause:,.0f} s")
            self._delay_all(max(pause, 0.0))
            if attempt < calls.retries:
                self._pause(max(pause, min(calls.backoff * 2**attempt, MAX_PAUSE)))
        attempts = calls.retries + 1
        raise self._error(f"it {problem} ({attempts} attempt{'s' if attempts > 1 else ''})")

    def _error(self, problem: str) -> ServiceError:
        return ServiceError(
            f"model {self.endpoint.name} ({self.endpoint.url}) failed: {self.client.redact(problem)}; its answers are kept "
            f"in {self.cache.path}: rerun to resume"
        )

    # ---- waiting ----

    def _wait_for_turn(self, images: int) -> None:
        with self._lock:
            turn = max(self._next, time.monotonic())
            if self.client.calls.rate is not None:
                self._next = turn + images / self.client.calls.rate
        self._pause(turn - time.monotonic())

    def _delay_all(self, seconds: float) -> None:
        """Delay all further requests."""
        with self._lock:
            self._next = max(self._next, time.monotonic() + seconds)

    def _pause(self, seconds: float) -> None:
        if self._stopped.wait(max(seconds, 0.0)):
            raise _Stopped


class _Stopped(Exception):
    """Another request failed, or Ctrl-C was pressed."""


def _wait_for(futures: set[Future[Scores]]) -> None:
    """Wait for requests; after Ctrl-C for a moment only, in which answers that are on their way are still stored."""
    ends = None
    while wait(futures, timeout=0.1).not_done:
        if interrupted():
            ends = ends or time.monotonic() + GRACE
            if time.monotonic() > ends:
                raise _Stopped


def _key(image: np.ndarray) -> str:
    """Return 32 hex digits of a hash of a model input's shape and pixels."""
    return hashlib.blake2b(str(image.shape).encode() + image.tobytes(), digest_size=16).hexdigest()
