"""One request over HTTP, and what may come of it."""

from __future__ import annotations

import json
import time
import urllib.request
from typing import Any
from urllib.parse import urlsplit

import urllib3

from brinell.errors import ServiceError
from brinell.models.remote.mapping import CallOptions, RequestOptions
from brinell.models.remote.secrets import expanded, hidden

PASSING = frozenset({408, 425, 429, 500, 502, 503, 504})  # what may go well the next time
LARGEST = 64 << 20  # bytes of an answer
_LOCAL = {"localhost", "127.0.0.1", "::1"}


class Passing(Exception):
    """A question that may be answered the next time, after a pause where the service asks for one."""

    def __init__(self, problem: str, pause: float = 0.0) -> None:
        super().__init__(problem)
        self.pause = pause


class Wire:
    """One service's connections. Errors never tell secrets, and chains of errors are cut where they might."""

    def __init__(self, url: str, options: RequestOptions, calls: CallOptions) -> None:
        self.url, self.options, self.calls = url, options, calls
        parts = urlsplit(url)
        proxies = urllib.request.getproxies()
        near = parts.hostname in _LOCAL or urllib.request.proxy_bypass(parts.hostname or "")
        proxy = None if near else proxies.get(parts.scheme)
        size = calls.concurrency
        self._pool = urllib3.ProxyManager(proxy, maxsize=size) if proxy else urllib3.PoolManager(maxsize=size)
        expanded(url)  # a variable that is not set is told now
        self._headers()

    def json(self, method: str, url: str, body: bytes | None = None, content_type: str | None = None) -> Any:
        """A JSON answer; what else comes is an error, a `Passing` one where another try makes sense."""
        deadline = time.monotonic() + self.calls.timeout
        kind = {} if content_type is None else {"content-type": content_type}
        try:
            response = self._pool.request(
                method,
                expanded(url),
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
        except urllib3.exceptions.NewConnectionError as error:  # which urllib3 takes for a kind of timeout
            raise Passing(_broken(error)) from None
        except urllib3.exceptions.TimeoutError:
            raise Passing(f"gave no answer in {self.calls.timeout:g} s") from None
        except urllib3.exceptions.LocationValueError:
            raise ServiceError(f"{url} is no URL that can be asked") from None
        except urllib3.exceptions.SSLError:
            raise ServiceError(f"the certificate of {urlsplit(url).netloc} can't be trusted") from None
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise Passing(_broken(error)) from None
        if 200 <= response.status < 300:
            try:
                return json.loads(content)
            except ValueError:
                kind_told = response.headers.get("content-type", "something").partition(";")[0]
                raise Passing(f"answered with {kind_told} that is not JSON") from None
        problem = f"answered {response.status}{self._told(content)}"
        if response.status in PASSING:
            raise Passing(problem, _retry_after(response.headers.get("retry-after")))
        raise ServiceError(f"it {problem}")

    def hidden(self, text: str) -> str:
        """A text without secrets."""
        options = self.options
        return hidden(text, self.url, options.headers, options.fields, options.template)

    def _headers(self) -> dict[str, str]:
        return {name: expanded(value) for name, value in self.options.headers.items()}

    def _told(self, content: bytes) -> str:
        """What an error's body says in words."""
        try:
            found = json.loads(content)
        except ValueError:
            return ""
        for key in ("error", "message", "detail"):
            if isinstance(found, dict) and key in found:
                found = found[key]
        return f" ({self.hidden(' '.join(str(found).split()))[:200]})" if found else ""


def _read(response: urllib3.BaseHTTPResponse, deadline: float) -> bytes:
    """A response's body. A server that sends it in drops is as late as one that sends nothing."""
    parts, size = [], 0
    while part := response.read1(1 << 16):
        parts.append(part)
        size += len(part)
        if time.monotonic() > deadline:
            raise urllib3.exceptions.TimeoutError
        if size > LARGEST:
            raise ServiceError(f"it answers with more than {LARGEST >> 20} MB")
    return b"".join(parts)


def _broken(error: Exception) -> str:
    if isinstance(error, urllib3.exceptions.NameResolutionError):
        return "has an address that can't be found"
    if isinstance(error, urllib3.exceptions.NewConnectionError):
        return "refuses connections"
    return "closed the connection before its answer was whole"


def _retry_after(text: str | None) -> float:
    """Seconds, from a number or a date."""
    if not text:
        return 0.0
    try:
        return urllib3.Retry().parse_retry_after(text)
    except urllib3.exceptions.InvalidHeader:
        return 0.0
