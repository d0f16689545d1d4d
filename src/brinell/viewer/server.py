"""The viewer's HTTP server: static files, stored content and live answers; who may ask, and what a page may load.

It listens on this machine alone unless another address is given, and then every request needs a token. A browser may only
load what comes from here: no inline scripts, nothing from elsewhere. Files are served from the package and, through
`Content`, from runs and their data; no path of a request is ever a path of the file system.
"""

from __future__ import annotations

import gzip
import hmac
import json
import secrets
import threading
from contextlib import suppress
from http.cookies import CookieError, SimpleCookie
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import resources
from importlib.resources.abc import Traversable
from types import TracebackType
from typing import Any
from urllib.parse import parse_qs, urlsplit

from brinell.errors import BrinellError, ConfigError
from brinell.viewer.content import Content, NotFound, Reply
from brinell.viewer.live_content import LiveContent

MAX_BODY = 64 << 20  # bytes of a photograph
LOOPBACK = ("127.0.0.1", "localhost", "::1")
COOKIE = "brinell_token"
TYPES = {
    "html": "text/html; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "svg": "image/svg+xml",
    "md": "text/plain; charset=utf-8",
    "txt": "text/plain; charset=utf-8",
}
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob: data:; "
    "connect-src 'self'; font-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
}


def static_files() -> dict[str, Traversable]:
    """Return the files of the front end by their paths below /."""
    found: dict[str, Traversable] = {}

    def add(folder: Traversable, prefix: str) -> None:
        for entry in folder.iterdir():
            if entry.is_dir():
                add(entry, f"{prefix}{entry.name}/")
            elif entry.name.rpartition(".")[2] in TYPES:
                found[prefix + entry.name] = entry

    add(resources.files("brinell.viewer") / "static", "")
    return found


class Viewer:
    """Serves the viewer. It listens from its construction on; `with` closes it."""

    def __init__(
        self,
        content: Content,
        live: LiveContent | None,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        token: str | None = None,
    ) -> None:
        self.content, self.live, self.files = content, live, static_files()
        self.host = host
        self.token = token or (None if host in LOOPBACK else secrets.token_urlsafe(24))
        try:
            self._http = _Listener((host, port), _Handler)
        except (OSError, OverflowError) as error:
            raise ConfigError(f"can't listen on {host}:{port}: {error}; choose another --port or --host") from None
        self._http.viewer = self
        self._thread: threading.Thread | None = None

    @property
    def port(self) -> int:
        """The port that it listens on."""
        return int(self._http.server_address[1])

    @property
    def url(self) -> str:
        """The address to open, with the token if one is needed."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}/" + (f"?token={self.token}" if self.token else "")

    def serve_until_stopped(self) -> None:
        """Respond to requests until Ctrl-C is pressed."""
        with suppress(KeyboardInterrupt):
            self._http.serve_forever()

    def start(self) -> Viewer:
        """Respond to requests in a separate thread."""
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()
        return self

    def respond(self, method: str, path: str, body: bytes) -> Reply:
        """Return the response to a request that is allowed."""
        if path.startswith("api/live/"):
            if self.live is None:
                raise NotFound(path)
            return self.live.respond(method, path.removeprefix("api/live/"), body)
        if method != "GET":
            raise NotFound(path)
        if path.startswith("api/"):
            return self.content.respond(path.removeprefix("api/"))
        file = self.files.get(path or "index.html")
        if file is None:
            raise NotFound(path)
        return Reply(file.read_bytes(), TYPES[file.name.rpartition(".")[2]])

    def __enter__(self) -> Viewer:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._thread is not None:
            self._http.shutdown()
            self._thread.join()
        self._http.server_close()
        self.content.digests.close()


class _Listener(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128
    viewer: Viewer

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore clients that disconnected."""


class _Refused(Exception):
    """A request that is not allowed, and its status."""

    def __init__(self, problem: str, status: int = 403) -> None:
        super().__init__(problem)
        self.status = status


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_version = "brinell"
    sys_version = ""
    timeout = 120  # seconds until an idle connection is closed
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
            self._check_host()
            url = urlsplit(self.path)
            if self._given_token(url.query):
                return self._redirect()
            self._check_token()
            self._check_origin()
            self._send(self.server.viewer.respond(self.command, url.path.lstrip("/"), body))
        except NotFound:
            self._problem("there is nothing at this address", 404)
        except _Refused as error:
            self._problem(str(error), error.status)
        except BrinellError as error:
            self._problem(str(error), 422)
        except ConnectionError:
            raise
        except Exception as error:  # a model or a data source may raise anything
            self._problem(f"{type(error).__name__}: {error}", 500)
        return None

    # ---- who may ask ----

    def _check_host(self) -> None:
        """Refuse other names for this machine: a page elsewhere could otherwise read from here under its own name."""
        viewer = self.server.viewer
        host = self.headers.get("host", "")
        name = urlsplit(f"//{host}").hostname or ""
        if viewer.host in LOOPBACK and name not in LOOPBACK:
            raise _Refused(f"this viewer is at {viewer.url}, not at {host!r}; open that address", 421)

    def _given_token(self, query: str) -> bool:
        given = parse_qs(query).get("token", [""])[0]
        return bool(given) and self._matches(given)

    def _matches(self, given: str) -> bool:
        token = self.server.viewer.token
        return token is not None and hmac.compare_digest(given.encode(), token.encode())

    def _check_token(self) -> None:
        if self.server.viewer.token is None:
            return
        try:
            cookie = SimpleCookie(self.headers.get("cookie", "")).get(COOKIE)
        except CookieError:
            cookie = None
        if cookie is None or not self._matches(cookie.value):
            raise _Refused("this viewer needs its token: open the address that `brinell view` printed", 401)

    def _check_origin(self) -> None:
        """Refuse requests of other pages that change something or start work."""
        if self.command == "POST" and self.headers.get("x-brinell") != "1":
            raise _Refused("live requests come from the viewer's own pages alone")

    def _redirect(self) -> None:
        self.send_response(303)
        self.send_header("Location", "/")
        self.send_header("Set-Cookie", f"{COOKIE}={self.server.viewer.token}; Path=/; HttpOnly; SameSite=Strict")
        self.send_header("Content-Length", "0")
        self.end_headers()

    # ---- bytes ----

    def _body(self) -> bytes:
        length = self.headers.get("content-length")
        if self.headers.get("transfer-encoding") or (length is not None and not length.isdigit()):
            self.close_connection = True
            raise _Refused("set the length of the body (Content-Length)", 411)
        size = int(length or 0)
        if size > MAX_BODY:
            self.close_connection = True
            raise _Refused(f"a photograph may have at most {MAX_BODY >> 20} MB, this one has {size >> 20}", 413)
        return self.rfile.read(size)

    def _problem(self, message: str, status: int) -> None:
        self._send(Reply(json.dumps({"error": message}).encode(), status=status))

    def _send(self, reply: Reply) -> None:
        body = reply.body
        self.send_response(reply.status)
        self.send_header("Content-Type", reply.kind)
        remote = self.client_address[0] not in LOOPBACK
        if remote and len(body) > 1024 and "gzip" in self.headers.get("accept-encoding", "") and "image" not in reply.kind:
            body = gzip.compress(body, 1)
            self.send_header("Content-Encoding", "gzip")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "private, max-age=600" if reply.lasting else "no-store")
        for name, value in HEADERS.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)
