"""Real HTTP servers on this machine that misbehave as told, and count what they are asked."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Answer = Callable[["Handler", bytes], Any]


class Listener(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64

    def __init__(self, answer: Answer) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.answer = answer
        self.asked: list[bytes] = []
        self.headers: list[dict[str, str]] = []
        self.times: list[float] = []
        self.most_at_once = self.now = 0
        self.lock = threading.Lock()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/predict"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients that go away are part of the tests."""


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Listener

    def do_GET(self) -> None:
        self.do_POST()

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        with self.server.lock:
            self.server.asked.append(body)
            self.server.headers.append(dict(self.headers.items()))
            self.server.times.append(time.monotonic())
            self.number = len(self.server.asked)
            self.server.now += 1
            self.server.most_at_once = max(self.server.most_at_once, self.server.now)
        try:
            answer = self.server.answer(self, body)
        finally:
            with self.server.lock:
                self.server.now -= 1
        if answer is not None:
            self.send(200, json.dumps(answer).encode())

    def send(self, status: int, content: bytes, **headers: str) -> None:
        self.send_response(status)
        self.send_header("content-length", str(len(content)))
        for name, value in {"content_type": "application/json", **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(content)

    def break_off(self, content: bytes) -> None:
        """Promise more than comes."""
        self.send_response(200)
        self.send_header("content-length", str(len(content) + 100))
        self.end_headers()
        self.wfile.write(content)
        self.close_connection = True

    def log_message(self, format: str, *args: Any) -> None:
        """Write no log."""


@contextmanager
def listening(answer: Answer) -> Iterator[Listener]:
    """A server that gives each POST to a function, which answers by what it returns or by itself."""
    server = Listener(answer)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
