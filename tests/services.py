"""HTTP servers on this machine that behave as a test needs it, and services behind them."""

from __future__ import annotations

import io
import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

from brinell.config.execution import Execution
from brinell.models.model import Model
from brinell.models.sources import open_model

Respond = Callable[["Handler", bytes], Any]


class Listener(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64

    def __init__(self, respond: Respond) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.respond = respond
        self.requests: list[bytes] = []
        self.headers: list[dict[str, str]] = []
        self.times: list[float] = []
        self.most_parallel = self.parallel = 0
        self.lock = threading.Lock()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/predict"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore clients that disconnect: that is part of the tests."""


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Listener

    def do_GET(self) -> None:
        self.do_POST()

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        with self.server.lock:
            self.server.requests.append(body)
            self.server.headers.append(dict(self.headers.items()))
            self.server.times.append(time.monotonic())
            self.number = len(self.server.requests)
            self.server.parallel += 1
            self.server.most_parallel = max(self.server.most_parallel, self.server.parallel)
        try:
            response = self.server.respond(self, body)
        finally:
            with self.server.lock:
                self.server.parallel -= 1
        if response is not None:
            self.send(200, json.dumps(response).encode())

    def send(self, status: int, content: bytes, **headers: str) -> None:
        self.send_response(status)
        self.send_header("content-length", str(len(content)))
        for name, value in {"content_type": "application/json", **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(content)

    def break_off(self, content: bytes) -> None:
        """Close the connection before the response is complete."""
        self.send_response(200)
        self.send_header("content-length", str(len(content) + 100))
        self.end_headers()
        self.wfile.write(content)
        self.close_connection = True

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing."""


@contextmanager
def listening(respond: Respond) -> Iterator[Listener]:
    """Run a server that responds to each request with what a function returns, or as the function does itself."""
    server = Listener(respond)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


# ---- services behind them ----

SECRET = "s3cret-t0ken-of-ours"
LENS = {"name": "profile", "operators": ["fade_black", "noise"], "levels": 3}


def pixels(count: int = 5, size: int = 32) -> torch.Tensor:
    generator = torch.Generator().manual_seed(1)
    images = torch.randint(0, 256, (count, 3, size, size), dtype=torch.uint8, generator=generator)
    return (images * torch.linspace(0.2, 1, count)[:, None, None, None]).to(torch.uint8)


def light_or_dark(image: np.ndarray) -> dict[str, float]:
    light = float(1 / (1 + np.exp(-(image.mean() / 255 - 0.4) * 20)))
    return {"light": light, "dark": 1 - light}


def decode_image(body: bytes) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(body)))


def respond_with_scores(handler: Handler, body: bytes) -> Any:
    """Respond to an image file with scores."""
    return {"result": light_or_dark(decode_image(body))}


def mapping(folder: Path, text: str = "", calls: str = "", request: str = "body: raw") -> Path:
    """Write a mapping file for `respond_with_scores`, or with another response."""
    path = folder / "mapping.yaml"
    path.write_text(
        f"""
        classes: [light, dark]
        request: {{{request}}}
        response: {{{text or "scores: result"}}}
        calls: {{backoff: 0.05, {calls}}}
        """
    )
    return path


def service(server: Listener, folder: Path, text: str = "", calls: str = "", **more: Any) -> Model:
    options = {"source": server.url, "mapping": str(mapping(folder, text, calls)), "size": 32, "name": "service"}
    return open_model(options, Execution(**more))


def expected_scores(images: torch.Tensor) -> torch.Tensor:
    return torch.tensor([list(light_or_dark(image.numpy()).values()) for image in images])


def v2(inputs: dict[str, Any], infer: Callable[[Any], Any], **more: Any) -> Respond:
    """Return a server of the Open Inference Protocol with one input."""

    def respond(handler: Handler, body: bytes) -> Any:
        if handler.path.endswith("/infer"):
            return infer(json.loads(body))
        return {"name": "m", "inputs": [inputs], "outputs": [], **more}

    return respond
