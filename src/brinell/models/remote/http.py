"""One HTTP request, and how its failures are classified."""

from __future__ import annotations

import time
import urllib.request
from typing import Any
from urllib.parse import urlsplit

import urllib3

from brinell.documents import load_json, printable
from brinell.errors import ServiceError
from brinell.models.remote.mapping import CallOptions, RequestOptions
from brinell.models.remote.secrets import expand, literal_secrets, redact

TRANSIENT = frozenset({408, 425, 429, 500, 502, 503, 504})  # status codes that a retry may get past
MAX_RESPONSE = 64 << 20  # bytes
_LOCAL = {"localhost", "127.0.0.1", "::1"}


class TransientError(Exception):
    """A request that may succeed if it is retried, after a pause if the service asks for one."""

    def __init__(self, problem: str, pause: float = 0.0) -> None:
        super().__init__(problem)
        self.pause = pause


class HttpClient:
    """The connections to one service. Errors never contain secrets: their chain is cut where it might."""

    def __init__(self, url: str, options: RequestOptions, calls: CallOptions) -> None:
        self.url, self.options, self.calls = url, options, calls
        parts = urlsplit(url)
        proxies = urllib.request.getproxies()
        local = parts.hostname in _LOCAL or urllib.request.proxy_bypass(parts.hostname or "")
        proxy = None if local else proxies.get(parts.scheme)
        size = calls.concurrency
        self._pool = urllib3.ProxyManager(proxy, maxsize=size) if proxy else urllib3.PoolManager(maxsize=size)
        expand(url)  # raises early if a variable is not set
        self._headers()

    def json(self, method: str, url: str, body: bytes | None = None, content_type: str | None = None) -> Any:
        """Return the JSON response; raise a `TransientError` if a retry may help, otherwise a `ServiceError`."""
        deadline = time.monotonic() + self.calls.timeout
        kind = {} if content_type is None else {"content-type": content_type}
        try:
            response = self._pool.request(
                method,
                expand(url),
                body=body,
                headers={"accept": "application/json", "user-agent": "brinell", **kind, **self._headers()},
                timeout=self.calls.timeout,
                retries=False,
                redirect=False,
                preload_content=False,
            )
            try:
                content = _read(response, deadline)
                response.release_conn()
            except BaseException:
                response.close()
                raise
        except urllib3.exceptions.NewConnectionError as error:  # a subclass of urllib3's TimeoutError
            raise TransientError(_describe(error)) from None
        except urllib3.exceptions.TimeoutError:
            raise TransientError(f"sent no response within {self.calls.timeout:g} s") from None
        except urllib3.exceptions.LocationValueError:
            raise ServiceError(f"{url} is not a valid URL") from None
        except urllib3.exceptions.SSLError:
            raise ServiceError(f"the certificate of {urlsplit(url).netloc} is not trusted") from None
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise TransientError(_describe(error)) from None
        return self._parse(response, content)

    def _parse(self, response: urllib3.BaseHTTPResponse, content: bytes) -> Any:
        if 200 <= response.status < 300:
            try:
                return load_json(content)
            except ValueError:
                kind = printable(response.headers.get("content-type", "something").partition(";")[0])[:100]
                raise TransientError(f"responded with {kind} that is not JSON") from None
        problem = f"responded with status {response.status}{self._reason(content)}"
        if response.status in TRANSIENT:
            raise TransientError(problem, _retry_after(response.headers.get("retry-after")))
        raise ServiceError(f"it {problem}")

    def redact(self, text: str) -> str:
        """Return a text without secrets."""
        options = self.options
        known = literal_secrets(options.headers)
        return redact(text, self.url, options.headers, options.fields, options.template, known=known)

    def _headers(self) -> dict[str, str]:
        return {name: expand(value) for name, value in self.options.headers.items()}

    def _reason(self, content: bytes) -> str:
        """Return the message in the body of an error response."""
        try:
            found = load_json(content)
        except ValueError:
            return ""
        for key in ("error", "message", "detail"):
            if isinstance(found, dict) and key in found:
                found = found[key]
        return f" ({self.redact(printable(str(found)))[:200]})" if found else ""


def _read(response: urllib3.BaseHTTPResponse, deadline: float) -> bytes:
    """Return a response's body. The deadline is for all of it, so that a server can't delay it byte by byte."""
    parts, size = [], 0
    while part := response.read1(1 << 16):
        parts.append(part)
        size += len(part)
        if time.monotonic() > deadline:
            raise urllib3.exceptions.TimeoutError
        if size > MAX_RESPONSE:
            raise ServiceError(f"it responds with more than {MAX_RESPONSE >> 20} MB")
    return b"".join(parts)


def _describe(error: Exception) -> str:
    if isinstance(error, urllib3.exceptions.NameResolutionError):
        return "has an address that can't be resolved"
    if isinstance(error, urllib3.exceptions.NewConnectionError):
        return "refuses connections"
    return "closed the connection before its response was complete"


def _retry_after(text: str | None) -> float:
    """Return the seconds of a Retry-After header, which is a number or a date."""
    if not text:
        return 0.0
    try:
        return urllib3.Retry().parse_retry_after(text)
    except urllib3.exceptions.InvalidHeader:
        return 0.0
