"""Hostile HTTP servers: whatever they answer, a run stops with one line or goes on, and never hangs."""

from __future__ import annotations

import gzip
import json
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from random import Random
from typing import Any

import torch

from brinell.config.execution import Execution
from brinell.errors import BrinellError
from brinell.models.sources import open_model
from chaos.scenario import Result

MAPPING = """
classes: [light, dark]
request: {body: raw}
response: {scores: result}
calls: {retries: 1, backoff: 0.01, timeout: 1, concurrency: 2}
"""


def _plain(status: int, body: bytes, **headers: str) -> Callable[[Any], None]:
    def answer(handler: Any) -> None:
        handler.send_response(status)
        for name, value in {"content-length": str(len(body)), **headers}.items():
            handler.send_header(name.replace("_", "-"), value)
        handler.end_headers()
        handler.wfile.write(body)

    return answer


def _raw(data: bytes, pause: float = 0.0) -> Callable[[Any], None]:
    def answer(handler: Any) -> None:
        for start in range(0, len(data), max(1, len(data) // 8)):
            handler.wfile.write(data[start : start + max(1, len(data) // 8)])
            time.sleep(pause)
        handler.close_connection = True

    return answer


def _endless(handler: Any) -> None:
    handler.send_response(200)
    handler.send_header("transfer-encoding", "chunked")
    handler.end_headers()
    for _ in range(100):
        handler.wfile.write(b"1000\r\n" + b" " * 4096 + b"\r\n")
        time.sleep(0.05)


def _answers() -> dict[str, Callable[[Any], None]]:
    scores: dict[str, Any] = {
        "nothing": None, "a list": [], "a number": 1, "no result": {}, "result null": {"result": None},
        "other classes": {"result": {"cat": 1}}, "one class": {"result": {"light": 0.5}}, "text": {"result": "light"},
        "texts": {"result": {"light": "x", "dark": "y"}}, "infinite": {"result": {"light": 1e400, "dark": 0}},
        "huge": {"result": {"light": 10**400, "dark": 0}}, "nested": {"result": [[[[0.1]]]]},
        "booleans": {"result": {"light": True, "dark": False}}, "negative": {"result": {"light": -5, "dark": 6}},
        "a list of pairs": {"result": [["light", 0.5], ["dark", 0.5]]},
    }  # fmt: skip
    found = {f"JSON: {name}": _plain(200, json.dumps(value).encode()) for name, value in scores.items()}
    found |= {
        f"status {code}": _plain(code, b'{"error": "\\u001b[2J no"}')
        for code in (204, 301, 400, 401, 404, 418, 429, 500, 503)
    }
    head = b"HTTP/1.1 200 OK\r\n"
    return found | {
        "NaN": _plain(200, b'{"result": {"light": NaN, "dark": 0}}'),
        "deep": _plain(200, b"[" * 200_000),
        "not UTF-8": _plain(200, b'{"result": "\xff\xfe"}'),
        "HTML": _plain(200, b"<html>", content_type="text/html"),
        "a redirect": _plain(302, b"", location="file:///etc/passwd"),
        "a redirect to itself": _plain(307, b"", location="/predict"),
        "retry after a year": _plain(429, b"{}", retry_after="31536000"),
        "retry after nonsense": _plain(503, b"{}", retry_after="\u00b2"),
        "wrong encoding": _plain(200, b"not gzip", content_encoding="gzip"),
        "a bomb": _plain(200, gzip.compress(b" " * 100_000_000), content_encoding="gzip"),
        "too short": _raw(head + b"Content-Length: 1000\r\n\r\n{}"),
        "negative length": _raw(head + b"Content-Length: -5\r\n\r\n{}"),
        "two lengths": _raw(head + b"Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}"),
        "bad chunks": _raw(head + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n{}\r\n"),
        "long headers": _raw(head + b"X: " + b"y" * 200_000 + b"\r\n\r\n{}"),
        "many headers": _raw(head + b"X: y\r\n" * 5000 + b"\r\n{}"),
        "no HTTP": _raw(b"\x16\x03\x01\x02\0" * 20),
        "silence": lambda handler: time.sleep(1.5),
        "drips": _raw(head + b"Content-Length: 64\r\n\r\n" + b" " * 64, 0.4),
        "endless": _endless,
        "hangs up": _raw(b""),
    }


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    answer: Callable[[Any], None]

    def do_POST(self) -> None:
        """Answer as this server does."""
        self.rfile.read(int(self.headers.get("content-length", 0)))
        self.answer(self)

    def log_message(self, *_: Any) -> None:
        """Log nothing."""


class _Quiet(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore clients that hang up."""


def hostile_servers(work: Path, random: Random, scale: float) -> Result:
    """Query servers that answer in every wrong way."""
    result = Result(
        "hostile HTTP answers", "the run stops with one line, or the answer is used, within 15 s; no escape code is printed"
    )
    (work / "mapping.yaml").write_text(MAPPING)
    for name, answer in _answers().items():
        server = _Quiet(("127.0.0.1", 0), type("Handler", (_Handler,), {"answer": staticmethod(answer)}))
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        url = f"http://127.0.0.1:{server.server_address[1]}/predict"
        with result.attempt(name, BrinellError, seconds=15):
            options = {"source": url, "mapping": str(work / "mapping.yaml"), "size": 8}
            execution = Execution(answers=str(work / f"{server.server_address[1]}.sqlite"))
            try:
                found = open_model(options, execution).predict(torch.zeros(2, 3, 8, 8, dtype=torch.uint8))
                result.expect(bool(found.isfinite().all()), f"{name}: scores are {found.tolist()}")
            except BrinellError as error:
                text = str(error)
                result.expect("\n" not in text and "\x1b" not in text, f"{name}: {text[:100]!r}")
                raise
        server.shutdown()
        server.server_close()
    return result
