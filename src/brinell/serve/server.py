"""The HTTP server: routes, errors as JSON, one thread per connection."""

from __future__ import annotations

import json
import threading
from importlib.metadata import version
from typing import Any
from urllib.parse import unquote, urlsplit

import torch

from brinell.listening import Handler, HttpServer, Refused
from brinell.models.model import Model
from brinell.serve.responses import infer, metadata, model_path, parse_json, predict


class Server(HttpServer):
    """Serves one model. It listens from its construction on; `with` closes it."""

    def __init__(self, model: Model, host: str = "127.0.0.1", port: int = 8000) -> None:
        super().__init__(host, port, _Handler)
        self.model = model
        self._busy = threading.BoundedSemaphore(max(1, torch.get_num_threads()))

    @property
    def url(self) -> str:
        """The URL of the server."""
        host, port = self.address
        return f"http://{host}:{port}"

    def respond(self, method: str, path: str, body: bytes, content_type: str) -> Any:
        """Return the JSON response to a request, and raise a `Refused` if it is invalid."""
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
            raise Refused(f"there is no {path} on this server; the model is {model_path(model)}", 404)
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
            raise Refused(f"there is no /{path} on this server; try /v2, {model_path(self.model)} or /predict", 404)
        self._require_method("GET", method)
        return responses[path]

    @staticmethod
    def _require_method(expected: str, method: str) -> None:
        if method != expected:
            raise Refused(f"expected {expected}, got {method}", 405)


class _Handler(Handler):
    timeout = 60  # seconds until an idle connection is closed

    def answer(self, body: bytes) -> None:
        server: Server = self.server.owner
        content_type = self.headers.get("content-type", "")
        found = server.respond(self.command, urlsplit(self.path).path, body, content_type)
        self.send_content(json.dumps(found).encode())


def usage_lines(server: Server) -> list[str]:
    """Return what to print when a server starts: how to query it."""
    model = f"{server.url}{model_path(server.model)}"
    return [
        f"serving {server.model.name}: {model} (Open Inference Protocol v2; press Ctrl-C to stop)",
        f"  curl --data-binary @photo.jpg {server.url}/predict",
        f"  brinell run --model {model} --data photos/",
    ]
