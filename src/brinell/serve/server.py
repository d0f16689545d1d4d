"""The HTTP side: paths to answers, errors as JSON, one thread a connection."""

from __future__ import annotations

import json
import threading
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.metadata import version
from types import TracebackType
from typing import Any
from urllib.parse import unquote, urlsplit

import torch

from brinell.errors import BrinellError, ConfigError
from brinell.models.model import Model
from brinell.serve.answering import BadRequest, infer, metadata, parsed, path_of, predict

LARGEST = 256 << 20  # bytes of a request


class Server:
    """A model's server, which listens from the start; `with` closes it."""

    def __init__(self, model: Model, host: str = "127.0.0.1", port: int = 8000) -> None:
        self.model = model
        self._busy = threading.BoundedSemaphore(max(1, torch.get_num_threads()))
        try:
            self._http = _Listener((host, port), _Handler)
        except (OSError, OverflowError) as error:
            raise ConfigError(f"can't listen on {host}:{port}: {error}; give another --port or --host") from None
        self._http.server = self
        self._thread: threading.Thread | None = None

    @property
    def url(self) -> str:
        """Where it is."""
        host, port = self._http.server_address[:2]
        return f"http://{host!s}:{port}"

    def serve_until_stopped(self) -> None:
        """Answer until someone presses Ctrl-C."""
        with suppress(KeyboardInterrupt):
            self._http.serve_forever()

    def start(self) -> Server:
        """Answer in a thread of its own."""
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()
        return self

    def answer(self, method: str, path: str, body: bytes, content_type: str) -> Any:
        """The JSON answer to a request; what can't be answered is a `BadRequest`."""
        model, place = self.model, [unquote(step) for step in path.strip("/").split("/")]
        if method == "POST" and place == ["predict"]:
            with self._busy:
                return predict(model, body, content_type)
        if method == "POST" and place == ["v2", "repository", "index"]:
            return [{"name": model.name, "version": model.fingerprint, "state": "READY"}]
        if place[:2] != ["v2", "models"]:
            return self._about(method, place)
        name, *rest = place[2:] or [""]
        if rest[:1] == ["versions"] and rest[1:2] == [model.fingerprint]:
            rest = rest[2:]
        if name != model.name or rest not in ([], ["ready"], ["infer"]):
            raise BadRequest(f"there is no {path} here; the model is {path_of(model)}", 404)
        if rest == ["infer"]:
            self._only("POST", method)
            with self._busy:
                return infer(model, parsed(body))
        self._only("GET", method)
        return {"name": model.name, "ready": True} if rest else metadata(model)

    def _about(self, method: str, place: list[str]) -> Any:
        answers: dict[str, Any] = {
            "v2": {"name": "brinell", "version": version("brinell"), "extensions": []},
            "v2/health/live": {"live": True},
            "v2/health/ready": {"ready": True},
        }
        if "/".join(place) not in answers:
            raise BadRequest(f"there is no /{'/'.join(place)} here; try /v2, {path_of(self.model)} or /predict", 404)
        self._only("GET", method)
        return answers["/".join(place)]

    @staticmethod
    def _only(wanted: str, method: str) -> None:
        if method != wanted:
            raise BadRequest(f"this takes {wanted}, not {method}", 405)

    def __enter__(self) -> Server:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._thread is not None:
            self._http.shutdown()
            self._thread.join()
        self._http.server_close()


class _Listener(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128
    server: Server

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing: whoever went away needs no answer."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_version = "brinell"
    timeout = 60  # seconds that a connection may be idle
    server: _Listener

    def do_GET(self) -> None:
        """Answer a GET."""
        self._respond()

    def do_POST(self) -> None:
        """Answer a POST."""
        self._respond()

    def log_message(self, format: str, *args: Any) -> None:
        """Write no log."""

    def _respond(self) -> None:
        try:
            body = self._body()
            content_type = self.headers.get("content-type", "")
            self._send(200, self.server.server.answer(self.command, urlsplit(self.path).path, body, content_type))
        except BadRequest as error:
            self._send(error.status, {"error": str(error)})
        except BrinellError as error:
            self._send(500, {"error": str(error)})
        except ConnectionError:
            raise
        except Exception as error:  # a model may raise anything
            self._send(500, {"error": f"{type(error).__name__}: {error}"})

    def _body(self) -> bytes:
        length = self.headers.get("content-length")
        if self.headers.get("transfer-encoding") or (length is not None and not length.isdigit()):
            self.close_connection = True
            raise BadRequest("give the body's length (Content-Length)", 411)
        size = int(length or 0)
        if size > LARGEST:
            self.close_connection = True
            raise BadRequest(f"a request may have {LARGEST >> 20} MB, and this one has {size >> 20}", 413)
        return self.rfile.read(size)

    def _send(self, status: int, content: Any) -> None:
        data = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


def served_lines(server: Server) -> list[str]:
    """What to do with a server, for people."""
    model = f"{server.url}{path_of(server.model)}"
    return [
        f"serving {server.model.name}: {model} (Open Inference Protocol v2; Ctrl-C stops it)",
        f"  curl --data-binary @photo.jpg {server.url}/predict",
        f"  brinell run --model {model} --data photos/",
    ]
