"""Services that fail: retries, clean stops, and secrets that are never written."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Callable
from email.utils import formatdate
from pathlib import Path
from typing import Any

import pytest
import torch

import brinell
from brinell.cli.main import main
from brinell.errors import ServiceError
from brinell.models.sources import open_model
from conftest import PLAIN
from services import (
    LENS,
    SECRET,
    Handler,
    expected_scores,
    listening,
    mapping,
    pixels,
    respond_with_scores,
    service,
    v2,
)

pytestmark = pytest.mark.usefixtures("answer_cache")


def test_a_transient_error_is_retried(tmp_path: Path) -> None:
    def at_first_not(handler: Handler, body: bytes) -> Any:
        return handler.send(500, b"oh") if handler.number <= 2 else respond_with_scores(handler, body)

    with listening(at_first_not) as server:
        model = service(server, tmp_path, "", "concurrency: 1")
        assert torch.allclose(model.predict(pixels(3)), expected_scores(pixels(3)), atol=1e-6)
        assert len(server.requests) == 5
        assert model.service is not None and model.service.counts.sent == 5


@pytest.mark.parametrize("form", ["seconds", "date"])
def test_retry_after_is_respected(form: str, tmp_path: Path) -> None:
    def busy_at_first(handler: Handler, body: bytes) -> Any:
        wait = "1" if form == "seconds" else formatdate(time.time() + 2, usegmt=True)
        return handler.send(429, b"{}", retry_after=wait) if handler.number == 1 else respond_with_scores(handler, body)

    with listening(busy_at_first) as server:
        service(server, tmp_path, "", "concurrency: 1").predict(pixels(2))
        assert len(server.requests) == 3
        assert server.times[1] - server.times[0] > 0.9


def test_a_long_retry_after_stops_the_run(tmp_path: Path) -> None:
    with listening(lambda handler, _: handler.send(429, b"{}", retry_after="7200")) as server:
        with pytest.raises(ServiceError, match="asks to retry after 7,200 s"):
            service(server, tmp_path, "", "concurrency: 1").predict(pixels(3))
        assert len(server.requests) == 1


def html(handler: Handler, body: bytes) -> None:
    handler.send(200, b"<html>Welcome to the proxy</html>", content_type="text/html; charset=utf-8")


def hanging(handler: Handler, body: bytes) -> None:
    time.sleep(1.0)


def dripping(handler: Handler, body: bytes) -> None:
    handler.send_response(200)
    handler.send_header("content-length", "1000")
    handler.end_headers()
    for _ in range(15):
        handler.wfile.write(b" ")
        handler.wfile.flush()
        time.sleep(0.1)


FAULTS: dict[str, tuple[Callable[[Handler, bytes], Any], str]] = {
    "error": (
        lambda handler, _: handler.send(500, b'{"error": "no more memory"}'),
        "responded with status 500 (no more memory)",
    ),
    "busy": (lambda handler, _: handler.send(429, b""), "responded with status 429"),
    "hangs": (hanging, "sent no response within 0.3 s"),
    "drips": (dripping, "sent no response within 0.3 s"),
    "breaks off": (
        lambda handler, _: handler.break_off(b'{"result": {"li'),
        "closed the connection before its response was complete",
    ),
    "breaks off without a length": (
        lambda handler, _: handler.send(200, b'{"result": {"li'),
        "responded with application/json that is not JSON",
    ),
    "html": (html, "responded with text/html that is not JSON"),
}


def test_a_response_byte_by_byte_times_out(tmp_path: Path) -> None:
    with listening(dripping) as server:
        began = time.monotonic()
        with pytest.raises(ServiceError, match=r"no response within 0\.3 s \(1 attempt\)"):
            service(server, tmp_path, "", "timeout: 0.3, retries: 0").predict(pixels(1))
        assert time.monotonic() - began < 1.2, "although a byte arrived every tenth of a second"


@pytest.mark.parametrize("fault", FAULTS)
def test_a_permanent_fault_stops_the_run_and_loses_nothing(fault: str, greys: Path, tmp_path: Path) -> None:
    answer, part = FAULTS[fault]
    broken = True

    def later_broken(handler: Handler, body: bytes) -> Any:
        return answer(handler, body) if broken and handler.number > 30 else respond_with_scores(handler, body)

    with listening(later_broken) as server:
        path = mapping(tmp_path, "", "timeout: 0.3, retries: 1, concurrency: 2")
        options = {"source": server.url, "mapping": str(path), "size": 32}
        how: dict[str, Any] = {"lens": {**LENS, "operators": ["noise"]}, "out": tmp_path / "run", "quiet": True}
        with pytest.raises(ServiceError) as error:
            brinell.run(options, greys, execution=PLAIN, **how)
        assert f"{part} (2 attempts)" in str(error.value)
        assert "rerun to resume" in str(error.value)
        sent = len(server.requests)
        assert 32 <= sent <= 30 + 2 * 4, "no request is started after a failure"
        broken = False
        brinell.run(options, greys, execution=PLAIN, **how)
        assert set(server.requests[:30]) & set(server.requests[sent:]) == set(), "answered images are not sent again"
        assert len(set(server.requests)) == 48


@pytest.mark.slow
def test_transient_faults_do_not_change_rows(greys: Path, tmp_path: Path) -> None:
    """Every fault in turn, each followed by a response: the rows are the same as without faults."""
    kinds = [answer for answer, _ in FAULTS.values()]
    fine: set[bytes] = set()

    def now_and_then(handler: Handler, body: bytes) -> Any:
        if handler.number % 9 == 0 and body not in fine:
            fine.add(body)
            return kinds[len(fine) % len(kinds)](handler, body)
        return respond_with_scores(handler, body)

    calls = "timeout: 0.3, backoff: 0.01"
    runs = []
    for answer in (now_and_then, respond_with_scores):
        with listening(answer) as server:
            options = {"source": server.url, "mapping": str(mapping(tmp_path, "", calls.partition(",")[0])), "size": 32}
            out = tmp_path / answer.__name__
            runs.append(brinell.run(options, greys, lens=LENS, out=out, execution=PLAIN, quiet=True))
            assert len(set(server.requests)) == 84
    rows = [run.rows("select * from rows order by operator, image, level").fetchall() for run in runs]
    assert rows[0] == rows[1] and len(fine) > 7


@pytest.mark.parametrize("status", [400, 401, 403, 404, 302])
def test_permanent_errors_are_not_retried(status: int, tmp_path: Path) -> None:
    refuse = {"message": f"the key {SECRET} is not known"}
    with listening(lambda handler, _: handler.send(status, json.dumps(refuse).encode(), location="/elsewhere")) as server:
        with pytest.raises(ServiceError, match=f"responded with status {status} .the key"):
            service(server, tmp_path, "", "concurrency: 1").predict(pixels(3))
        assert len(server.requests) == 1


@pytest.mark.parametrize("bad", [b'{"result": {"light": NaN}}', b'{"result": {"light": null}}', b'{"result": 1}'])
def test_invalid_scores_stop_the_run_and_are_queried_again(bad: bytes, tmp_path: Path) -> None:
    def at_first_bad(handler: Handler, body: bytes) -> Any:
        return handler.send(200, bad) if handler.number == 3 else respond_with_scores(handler, body)

    with listening(at_first_bad) as server:
        with pytest.raises(ServiceError, match="its response"):
            service(server, tmp_path, "", "concurrency: 1").predict(pixels(5))
        assert len(server.requests) == 3, "an invalid response is not retried"
        model = service(server, tmp_path, "", "concurrency: 1")
        assert torch.allclose(model.predict(pixels(5)), expected_scores(pixels(5)), atol=1e-6)
        assert len(server.requests) == 6


def test_nan_from_a_tensor_server() -> None:
    def answer(request: Any) -> Any:
        return {"outputs": [{"name": "y", "data": [[float("nan"), 1.0]] * request["inputs"][0]["shape"][0]}]}

    with listening(v2({"name": "x", "datatype": "UINT8", "shape": [-1, 3, 32, 32]}, answer)) as server:
        url = server.url.replace("/predict", "/v2/models/m")
        with pytest.raises(ServiceError, match="NaN or nothing"):
            open_model(url)


def test_a_model_that_failed_can_be_used_by_another_run(tmp_path: Path) -> None:
    def at_first_refused(handler: Handler, body: bytes) -> Any:
        return handler.send(403, b"") if handler.number == 1 else respond_with_scores(handler, body)

    with listening(at_first_refused) as server:
        model = service(server, tmp_path, "", "concurrency: 1")
        for _ in range(2):
            with pytest.raises(ServiceError, match="responded with status 403"):
                model.predict(pixels(2))
        assert len(server.requests) == 1, "nothing more is sent"
        assert model.service is not None
        model.service.begin("another run")
        assert torch.allclose(model.predict(pixels(2)), expected_scores(pixels(2)), atol=1e-6)


# ---- secrets ----


def test_secrets_are_never_written(
    greys: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("API_TOKEN", SECRET)
    monkeypatch.setenv("URL_KEY", "key-in-the-url")
    broken = True

    def echoing(handler: Handler, body: bytes) -> Any:
        assert handler.headers["authorization"] == f"Bearer {SECRET}" and handler.path.endswith("?key=key-in-the-url")
        if broken and handler.number > 20:
            return handler.send(403, json.dumps({"error": f"{handler.headers['authorization']} {handler.path}"}).encode())
        return respond_with_scores(handler, body)

    request = 'body: raw, headers: {Authorization: "Bearer ${API_TOKEN}"}'
    with listening(echoing) as server:
        model = f"{server.url}?key=${{URL_KEY}}#size=32&mapping={mapping(tmp_path, '', '', request)}"
        command = ["--debug", "run", "--model", model, "--data", str(greys), "--operator", "noise", "--levels", "3"]
        command += ["--out", str(tmp_path / "run")]
        with pytest.raises(SystemExit):
            main(command)
        output = capsys.readouterr()
        assert "responded with status 403 (Bearer *** /predict?key=***)" in output.err
        broken = False
        main(command)
    with pytest.raises(SystemExit):
        main([*command, "--seed", "7", "--out", str(tmp_path / "gone")])  # the server is gone
    later = capsys.readouterr()
    written = [path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()]
    written += [text.encode() for text in (output.out, output.err, later.out, later.err)]
    assert len(written) > 8 and any(b"${URL_KEY}" in content for content in written)
    for secret in (SECRET, "key-in-the-url"):
        assert not any(secret.encode() in content for content in written)
        assert not any(base64.b64encode(secret.encode())[:12] in content for content in written)
