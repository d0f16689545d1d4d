"""What our HTTP servers share: one thread per connection, bodies of a known length, and errors as JSON."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, ClassVar, Self

from brinell.errors import BrinellError, ConfigError

_DIGITS = 19  # of a length that is a number at all
_SHORT = 1 << 16  # bytes of a body that is read though it is not used


class Refused(Exception):
    """A request that is invalid or not allowed, and the status of the response."""

    def __init__(self, problem: str, status: int = 400) -> None:
        super().__init__(problem)
        self.status = status


class HttpServer:
    """Listens from its construction on; `with` closes it. A `Handler` finds it as `self.server.owner`."""

    def __init__(self, host: str, port: int, handler: type[Handler]) -> None:
        try:
            self._http = Listener((host, port), handler)
        except (OSError, OverflowError) as error:
            raise ConfigError(f"can't listen on {host}:{port}: {error}; choose another --port or --host") from None
        self._http.owner = self
        self._thread: threading.Thread | None = None

    @property
    def address(self) -> tuple[str, int]:
        """The host and the port that it listens on."""
        host, port = self._http.server_address[:2]
        return str(host), int(port)

    def serve_until_stopped(self) -> None:
        """Respond to requests until Ctrl-C is pressed."""
        with suppress(KeyboardInterrupt):
            self._http.serve_forever()

    def start(self) -> Self:
        """Respond to requests in a separate thread."""
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()
        return self

    def close(self) -> None:
        """Stop listening."""
        if self._thread is not None:
            self._http.shutdown()
            self._thread.join()
        self._http.server_close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


class Listener(ThreadingHTTPServer):
    """The socket, and whose it is."""

    daemon_threads = True
    request_queue_size = 128
    owner: Any

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore clients that disconnected."""


class Handler(BaseHTTPRequestHandler):
    """Reads a request, leaves the response to `answer`, and sends what that raises as JSON."""

    protocol_version = "HTTP/1.1"
    server_version = "brinell"
    sys_version = ""
    timeout = 120  # seconds until an idle connection is closed
    server: Listener
    body_name: ClassVar[str] = "a request"
    body_limit: ClassVar[int] = 256 << 20  # bytes
    error_status: ClassVar[int] = 500  # of a `BrinellError`

    def permit(self) -> None:
        """Raise a `Refused` if this client may not ask; its body is not kept then."""

    def answer(self, body: bytes) -> None:
        """Send the response to a request, or raise why there is none."""
        raise NotImplementedError

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
            size = self._body_size()
            try:
                self.permit()
            except Exception:
                self._skip(size)
                raise
            self.answer(self.rfile.read(size))
        except Refused as error:
            self.send_problem(str(error), error.status)
        except BrinellError as error:
            self.send_problem(str(error), self.error_status)
        except ConnectionError:
            raise
        except Exception as error:  # a model or a data source may raise anything
            self.send_problem(f"{type(error).__name__}: {error}", 500)

    def _body_size(self) -> int:
        """Return the length of the body. One that is unknown or excessive is refused, and the connection closed."""
        lengths = self.headers.get_all("content-length") or ["0"]
        known = len(lengths) == 1 and lengths[0].isascii() and lengths[0].isdecimal()
        if not known or self.headers.get("transfer-encoding"):
            self.close_connection = True
            raise Refused("set the length of the body (Content-Length)", 411)
        size = int(lengths[0]) if len(lengths[0]) < _DIGITS else 10**_DIGITS
        if size > self.body_limit:
            self.close_connection = True
            raise Refused(f"{self.body_name} may have at most {self.body_limit >> 20} MB, this one has {size >> 20}", 413)
        return size

    def _skip(self, size: int) -> None:
        """Read a short body that is not used, so that the client reads the response; hang up before a long one."""
        if size <= _SHORT:
            self.rfile.read(size)
        else:
            self.close_connection = True

    def send_problem(self, message: str, status: int) -> None:
        """Send why there is no response."""
        self.send_content(json.dumps({"error": message}).encode(), status=status, headers={"Cache-Control": "no-store"})

    def send_content(
        self, body: bytes, kind: str = "application/json", status: int = 200, headers: Mapping[str, str] | None = None
    ) -> None:
        """Send a response with its type and length."""
        self.send_response(status)
        for name, value in {"Content-Type": kind, "Content-Length": str(len(body)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)
