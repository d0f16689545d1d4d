"""The HTTP server: routes, errors as JSON, one thread per connection."""

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
from brinell.serve.responses import BadRequest, infer, metadata, model_path, parse_json, predict

MAX_REQUEST = 256 << 20  # bytes


class Server:
    """Serves one model. It listens from its construction on; `with` closes it."""

    def __init__(self, model: Model, host: str = "127.0.0.1", port: int = 8000) -> None:
        self.model = model
        self._busy = threading.BoundedSemaphore(max(1, torch.get_num_threads()))
        try:
            self._http = _Listener((host, port), _Handler)
        except (OSError, OverflowError) as error:
            raise ConfigError(f"can't listen on {host}:{port}: {error}; choose another --port or --host") from None
        self._http.server = self
        self._thread: threading.Thread | None = None

    @property
    def url(self) -> str:
        """The URL of the server."""
        host, port = self._http.server_address[:2]
        return f"http://{host!s}:{port}"

    def serve_until_stopped(self) -> None:
        """Respond to requests until Ctrl-C is pressed."""
        with suppress(KeyboardInterrupt):
            self._http.serve_forever()

    def start(self) -> Server:
        """Respond to requests in a separate thread."""
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()
        return self

    def respond(self, method: str, path: str, body: bytes, content_type: str) -> Any:
        """Return the JSON response to a request, and raise a `BadRequest` if it is invalid."""
        model, steps = self.model, [unquote(step) for step in path.strip("/").split("/")]
        if method == "POST" and steps == ["predict"]:
            with self._busy:
                return predict(model, body, content_type)
        if method == "POST" and steps == ["v2", "repository", "index"]:
            return [{"name": model.name, "version": model.fingerprint, "state": "READY"}]
        if steps[:2] != ["v2", "models"]:
            return self._server_status(method, "/".join(steps))
        name, *rest = steps[2:] or [""]
        if rest[:1] == ["versions"] and rest[1:2] == [model.fingerprint]:
            rest = rest[2:]
        if name != model.name or rest not in ([], ["ready"], ["infer"]):
            raise BadRequest(f"there is no {path} on this server; the model is {model_path(model)}", 404)
        if rest == ["infer"]:
            self._require_method("POST", method)
            with self._busy:
                return infer(model, parse_json(body))
        self._require_method("GET", method)
        return {"name": model.name, "ready": True} if rest else metadata(model)

    def _server_status(self, method: str, path: str) -> Any:
        responses: dict[str, Any] = {
            "v2": {"name": "brinell", "version": version("brinell"), "extensions": []},
            "v2/health/live": {"live": True},
            "v2/health/ready": {"ready": True},
        }
        if path not in responses:
            raise BadRequest(f"there is no /{path} on this server; try /v2, {model_path(self.model)} or /predict", 404)
        self._require_method("GET", method)
        return responses[path]

    @staticmethod
    def _require_method(expected: str, method: str) -> None:
        if method != expected:
            raise BadRequest(f"expected {expected}, got {method}", 405)

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
        """Ignore clients that disconnected."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_version = "brinell"
    timeout = 60  # seconds until an idle connection is closed
    server: _Listener

    def do_GET(self) -> None:
        """Respond to GET."""
        self._respond()

    def do_POST(self) -> None:
        """Respond to POST."""
        self._respond()

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing."""

    def _respond(self) -> None:
        try:
            body = self._body()
            content_type = self.headers.get("content-type", "")
            self._send(200, self.server.server.respond(self.command, urlsplit(self.path).path, body, content_type))
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
        if self.headers.get("transfer-encoding") or (length is not None and not (length.isascii() and length.isdecimal())):
            self.close_connection = True
            raise BadRequest("set the length of the body (Content-Length)", 411)
        size = int(length or 0)
        if size > MAX_REQUEST:
            self.close_connection = True
            raise BadRequest(f"a request may have at most {MAX_REQUEST >> 20} MB, this one has {size >> 20}", 413)
        return self.rfile.read(size)

    def _send(self, status: int, content: Any) -> None:
        data = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


def usage_lines(server: Server) -> list[str]:
    """Return what to print when a server starts: how to query it."""
    model = f"{server.url}{model_path(server.model)}"
    return [
        f"serving {server.model.name}: {model} (Open Inference Protocol v2; press Ctrl-C to stop)",
        f"  curl --data-binary @photo.jpg {server.url}/predict",
        f"  brinell run --model {model} --data photos/",
    ]
