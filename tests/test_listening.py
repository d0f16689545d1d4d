"""What all our HTTP servers do: refuse bodies of unknown or excessive length, and send errors as JSON."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from http.client import HTTPConnection

import pytest

from brinell.errors import ConfigError, ModelError
from brinell.listening import Handler, HttpServer, Refused

PROBLEMS: dict[str, Exception] = {
    "/refused": Refused("not like this", 418),
    "/ours": ModelError("the model has no classes"),
    "/theirs": ZeroDivisionError("division by zero"),
}


class Echo(Handler):
    body_limit, error_status = 1 << 20, 422

    def permit(self) -> None:
        if self.path == "/forbidden":
            raise Refused("not you", 403)

    def answer(self, body: bytes) -> None:
        if self.path in PROBLEMS:
            raise PROBLEMS[self.path]
        self.send_content(body, "text/plain", headers={"X-Method": self.command})


@pytest.fixture(scope="module")
def server() -> Iterator[HttpServer]:
    with HttpServer("127.0.0.1", 0, Echo) as opened:
        yield opened.start()


def send(server: HttpServer, head: str, path: str = "/") -> tuple[int, str]:
    """Send a request as it is, and return the status and the body after the server has closed the connection."""
    with socket.create_connection(server.address, timeout=20) as connection:
        connection.sendall(f"POST {path} HTTP/1.1\r\nHost: here\r\n{head}\r\n\r\n".encode("latin-1"))
        content = b"".join(iter(lambda: connection.recv(65536), b"")).decode()
    return int(content.split()[1]), content.partition("\r\n\r\n")[2]


@pytest.mark.parametrize(
    ("head", "status", "part"),
    [
        ("Content-Length: ²", 411, "Content-Length"),
        ("Content-Length: -1", 411, "Content-Length"),
        ("Content-Length: 1_0", 411, "Content-Length"),
        ("Transfer-Encoding: chunked", 411, "Content-Length"),
        ("Content-Length: 3\r\nContent-Length: 4", 411, "Content-Length"),
        ("Content-Length: 99999999", 413, "at most 1 MB, this one has 95"),
        (f"Content-Length: {'9' * 5000}", 413, "at most 1 MB"),
    ],
)
def test_bodies_of_unknown_or_excessive_length_are_refused(server: HttpServer, head: str, status: int, part: str) -> None:
    found, body = send(server, head)
    assert found == status and part in json.loads(body)["error"]


def test_a_connection_serves_requests_one_after_the_other(server: HttpServer) -> None:
    connection = HTTPConnection(*server.address, timeout=20)
    for path, status, text in (
        ("/", 200, "content"),
        ("/refused", 418, '{"error": "not like this"}'),
        ("/forbidden", 403, '{"error": "not you"}'),
        ("/ours", 422, '{"error": "the model has no classes"}'),
        ("/theirs", 500, '{"error": "ZeroDivisionError: division by zero"}'),
        ("/", 200, "content"),
    ):
        connection.request("POST", path, body=b"content")
        response = connection.getresponse()
        assert (response.status, response.read().decode()) == (status, text)
    assert response.headers["X-Method"] == "POST" and response.headers["Server"].strip() == "brinell"
    connection.close()


def test_the_body_of_a_client_that_may_not_ask_is_not_read(server: HttpServer) -> None:
    """The client announces more than a short body and sends nothing of it: the answer comes, and the connection ends."""
    found, body = send(server, "Content-Length: 1000000", "/forbidden")
    assert (found, body) == (403, '{"error": "not you"}')


def test_a_port_that_is_taken_is_named(server: HttpServer) -> None:
    with pytest.raises(ConfigError, match=r"can't listen on 127\.0\.0\.1:\d+.*choose another --port or --host"):
        HttpServer(*server.address, Echo)
