"""The viewer's HTTP server: static files, stored content and live answers; who may ask, and what a page may load.

It listens on this machine alone unless another address is given, and then every request needs a token. A browser may only
load what comes from here: no inline scripts, nothing from elsewhere. Files are served from the package and, through
`Content`, from runs and their data; no path of a request is ever a path of the file system.
"""

from __future__ import annotations

import gzip
import hmac
import secrets
from http.cookies import CookieError, SimpleCookie
from importlib import resources
from importlib.resources.abc import Traversable
from urllib.parse import parse_qs, urlsplit

from brinell.listening import Handler, HttpServer, Refused
from brinell.viewer.content import Content, NotFound, Reply
from brinell.viewer.live_content import LiveContent

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


class Viewer(HttpServer):
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
        super().__init__(host, port, _Handler)
        self.content, self.live, self.files = content, live, static_files()
        self.host, self.port = host, self.address[1]
        self.token = token or (None if host in LOOPBACK else secrets.token_urlsafe(24))

    @property
    def url(self) -> str:
        """The address to open, with the token if one is needed."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}/" + (f"?token={self.token}" if self.token else "")

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

    def close(self) -> None:
        """Stop listening, and computing digests."""
        super().close()
        self.content.digests.close()


class _Handler(Handler):
    body_name, body_limit = "a photograph", 64 << 20
    error_status = 422

    @property
    def viewer(self) -> Viewer:
        """Whose request it is."""
        viewer: Viewer = self.server.owner
        return viewer

    def permit(self) -> None:
        """Refuse clients without the token, and requests of other pages."""
        self._check_host()
        if not self._given_token():
            self._check_token()
            self._check_origin()

    def answer(self, body: bytes) -> None:
        """Send the response to a request that is allowed."""
        url = urlsplit(self.path)
        if self._given_token():
            return self._redirect()
        try:
            return self._send(self.viewer.respond(self.command, url.path.lstrip("/"), body))
        except NotFound:
            raise Refused("there is nothing at this address", 404) from None

    # ---- who may ask ----

    def _check_host(self) -> None:
        """Refuse other names for this machine: a page elsewhere could otherwise read from here under its own name."""
        viewer = self.viewer
        host = self.headers.get("host", "")
        name = urlsplit(f"//{host}").hostname or ""
        if viewer.host in LOOPBACK and name not in LOOPBACK:
            raise Refused(f"this viewer is at {viewer.url}, not at {host!r}; open that address", 421)

    def _given_token(self) -> bool:
        given = parse_qs(urlsplit(self.path).query).get("token", [""])[0]
        return bool(given) and self._matches(given)

    def _matches(self, given: str) -> bool:
        token = self.viewer.token
        return token is not None and hmac.compare_digest(given.encode(), token.encode())

    def _check_token(self) -> None:
        if self.viewer.token is None:
            return
        try:
            cookie = SimpleCookie(self.headers.get("cookie", "")).get(COOKIE)
        except CookieError:
            cookie = None
        if cookie is None or not self._matches(cookie.value):
            raise Refused("this viewer needs its token: open the address that `brinell view` printed", 401)

    def _check_origin(self) -> None:
        """Refuse requests of other pages that change something or start work."""
        if self.command == "POST" and self.headers.get("x-brinell") != "1":
            raise Refused("live requests come from the viewer's own pages alone", 403)

    def _redirect(self) -> None:
        self.send_response(303)
        self.send_header("Location", "/")
        self.send_header("Set-Cookie", f"{COOKIE}={self.viewer.token}; Path=/; HttpOnly; SameSite=Strict")
        self.send_header("Content-Length", "0")
        self.end_headers()

    # ---- bytes ----

    def _send(self, reply: Reply) -> None:
        body, headers = reply.body, {"Cache-Control": "private, max-age=600" if reply.lasting else "no-store"}
        remote = self.client_address[0] not in LOOPBACK
        if remote and len(body) > 1024 and "gzip" in self.headers.get("accept-encoding", "") and "image" not in reply.kind:
            body = gzip.compress(body, 1)
            headers["Content-Encoding"] = "gzip"
        self.send_content(body, reply.kind, reply.status, headers)

    def end_headers(self) -> None:
        """End the headers with what every response has, errors included."""
        for name, value in HEADERS.items():
            self.send_header(name, value)
        super().end_headers()
