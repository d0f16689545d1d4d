"""The viewer of runs at URLs, from real servers: every page of a local run, from copies in the cache folder alone."""

from __future__ import annotations

import functools
import json
import threading
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

import brinell
from brinell.errors import RunError
from brinell.viewer.content import Content
from brinell.viewer.digest import compute_digest
from brinell.viewer.index import RunIndex, find_runs
from brinell.viewer.names import escape
from brinell.viewer.pictures import Pictures
from conftest import PLAIN


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, shared_greys: Path) -> brinell.Run:
    return brinell.run(
        ["fake:grey:0.4", "fake:grey:0.6"],
        shared_greys,
        lens=[
            {"name": "profile", "operators": ["fade_black"], "levels": 20},
            {"name": "knob", "operators": ["brightness"], "points": 20},
        ],
        out=tmp_path_factory.mktemp("published") / "greys",
        execution=PLAIN,
        quiet=True,
    )


class _Quiet(SimpleHTTPRequestHandler):
    asked: list[str]

    def do_GET(self) -> None:
        self.server.asked.append(self.path)  # type: ignore[attr-defined]
        super().do_GET()

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture(scope="module")
def web(run: brinell.Run) -> Iterator[Any]:
    """A plain web server of the folder that the run is in."""
    pytest.importorskip("aiohttp", reason="needs aiohttp")
    handler = functools.partial(_Quiet, directory=str(Path(run.folder).parent))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        server.asked = []  # type: ignore[attr-defined]
        server.url = f"http://127.0.0.1:{server.server_address[1]}"  # type: ignore[attr-defined]
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


@pytest.fixture(scope="module")
def bucket(run: brinell.Run) -> Iterator[str]:
    """The run in a bucket of an S3 server on this machine."""
    moto = pytest.importorskip("moto.server", reason="needs moto")
    s3fs = pytest.importorskip("s3fs", reason="needs s3fs")
    import fsspec

    server = moto.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    with pytest.MonkeyPatch.context() as patch:
        _, port = server.get_host_and_port()
        for name, value in {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
            "AWS_ACCESS_KEY_ID": "someone",
            "AWS_SECRET_ACCESS_KEY": "secret",
            "AWS_DEFAULT_REGION": "us-east-1",
        }.items():
            patch.setenv(name, value)
        s3fs.S3FileSystem.clear_instance_cache()  # of another server
        files = fsspec.filesystem("s3", skip_instance_cache=True)
        files.mkdir("nightly")
        files.put(run.folder, "nightly/runs/greys", recursive=True)
        yield "s3://nightly/runs"
        server.stop()
        s3fs.S3FileSystem.clear_instance_cache()


@pytest.fixture
def place(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    monkeypatch.setenv("BRINELL_CACHE", str(tmp_path / "cache"))
    found = request.getfixturevalue(request.param)
    return found if isinstance(found, str) else found.url


def content_of(place: str) -> Content:
    return Content(RunIndex([place]), Pictures())


def answer(content: Content, *parts: str) -> Any:
    path = "/".join(escape(part) for part in parts)
    while (reply := content.respond(path)).status == 202:
        pass
    return json.loads(reply.body)


@pytest.mark.parametrize("place", ["web", "bucket"], indirect=True)
def test_a_run_at_a_url_is_shown_as_at_home(place: str, run: brinell.Run) -> None:
    here, there = content_of(str(Path(run.folder).parent)), content_of(place)
    (listed,) = answer(there, "runs.json")
    assert (listed["id"], listed["finished"], listed["folder"]) == ("greys", True, f"{place}/greys")
    image = next(iter(run.image_names))
    sequence = "sequences", "grey:0.4", "profile", "fade_black:published", f"{image}.json"
    for parts in (["headline.json"], ["digest.json"], ["findings.json"], ["watch.json"], [*sequence]):
        at_home, at_url = (answer(content, "runs", "greys", *parts) for content in (here, there))
        for one in (at_home, at_url):
            if isinstance(one, dict):
                one.pop("idle", None)
                one.pop("per_minute", None)  # web servers don't say when files were written
        assert at_url == at_home, parts


@pytest.mark.parametrize("place", ["web", "bucket"], indirect=True)
def test_digests_and_thumbnails_are_kept_here_and_nothing_is_written_there(
    place: str, run: brinell.Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = {path for path in Path(run.folder).rglob("*") if path.is_file()}
    image = next(iter(run.image_names))
    first = content_of(place)
    answer(first, "runs", "greys", "digest.json")
    thumbnail = first.respond(f"runs/greys/thumbnails/{image}.webp").body
    kept = {path.name for path in (tmp_path / "cache").rglob("*")}
    assert {"digest.json", f"{image}.webp", "manifest.json"} <= kept
    assert {path for path in Path(run.folder).rglob("*") if path.is_file()} == before
    monkeypatch.setattr("brinell.viewer.digest.compute_digest", lambda *given: pytest.fail("it is stored"))
    monkeypatch.setattr("brinell.viewer.images.RunImages.original", lambda *given: pytest.fail("it is stored"))
    again = content_of(place)
    assert answer(again, "runs", "greys", "digest.json") == answer(first, "runs", "greys", "digest.json")
    assert again.respond(f"runs/greys/thumbnails/{image}.webp").body == thumbnail


@pytest.mark.parametrize("place", ["web"], indirect=True)
def test_rows_are_downloaded_once_and_only_when_they_are_needed(place: str, web: Any, run: brinell.Run) -> None:
    web.asked.clear()
    answer(content_of(place), "runs.json")
    rows = lambda: [path for path in web.asked if path.endswith(".parquet") and "/rows/" in path]  # noqa: E731
    assert not rows(), "the list of runs needs no rows"
    for _ in range(2):
        answer(content_of(place), "runs", "greys", "digest.json")
        assert len(rows()) == len(set(rows())) == len(run.store.unit_files())


@pytest.mark.parametrize("place", ["web"], indirect=True)
def test_a_run_that_was_written_again_is_read_again(place: str, run: brinell.Run) -> None:
    index = RunIndex([place])
    first = index.open("greys")
    compute_digest(first.run)
    assert index.open("greys") is first
    manifest = Path(run.folder) / "manifest.json"
    content, text = manifest.read_bytes(), manifest.read_text()
    try:
        manifest.write_text(text.replace('"created"', ' "created"', 1))
        first.looked -= 60
        second = index.open("greys")
        assert second is not first and second.run.store.read("manifest.json") == manifest.read_bytes()
    finally:
        manifest.write_bytes(content)


def test_a_place_that_cannot_be_reached_is_shown_with_the_reason(run: brinell.Run, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("aiohttp", reason="needs aiohttp")
    monkeypatch.setattr("brinell.runs.files.PAUSE", 0)
    index = RunIndex(["http://127.0.0.1:9/nightly", run.folder])
    known, unreachable = (Content(index, Pictures()).describe(*one) for one in index.all())
    assert known["id"] == "greys" and "problem" not in known
    assert unreachable["id"] == "http://127.0.0.1:9/nightly"
    assert "can't look for runs" in unreachable["problem"] and "check the address" in unreachable["problem"]


def test_an_address_without_runs_has_none_and_a_missing_run_says_so(web: Any, tmp_path: Path) -> None:
    assert find_runs(f"{web.url}/greys/exhibits") == []
    with pytest.raises(RunError, match="there is no run 'gone'"):
        RunIndex([web.url]).open("gone")
