"""Runs in a bucket of a real S3 server on this machine: parts that write at once, and connections that drop."""

from __future__ import annotations

import logging
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import brinell
from brinell.runs.status import read_status
from brinell.runs.store import Store

pytest.importorskip("moto", reason="needs moto, an S3 server")
s3fs = pytest.importorskip("s3fs", reason="needs s3fs")

OPTIONS = ["--lens", "profile", "--operator", "noise", "--levels", "4", "--labels", "index", "--runtime", "torch"]
OPTIONS += ["--batch", "4", "--shard", "2", "--yes"]


class Dropping:
    """A proxy in front of a server. It closes every so many connections when the answer begins."""

    def __init__(self, port: int, every: int) -> None:
        self.target, self.every, self.accepted, self.dropped = port, every, 0, 0
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:  # closed
                return
            self.accepted += 1
            drop = self.accepted % self.every == 0
            try:
                server = socket.create_connection(("127.0.0.1", self.target))
            except OSError:  # the server has ended
                client.close()
                return
            threading.Thread(target=self._serve, args=(client, server, drop), daemon=True).start()

    def _serve(self, client: socket.socket, server: socket.socket, drop: bool) -> None:
        with client, server:
            forth = threading.Thread(target=self._copy, args=(client, server, False), daemon=True)
            forth.start()
            self._copy(server, client, drop)
            forth.join()

    def _copy(self, source: socket.socket, target: socket.socket, drop: bool) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                if drop:
                    self.dropped += 1
                    break
                target.sendall(data)
        for each in (source, target):  # wakes the thread that copies the other way
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)


@pytest.fixture(scope="module")
def server() -> Iterator[int]:
    """The port of an S3 server."""
    from moto.server import ThreadedMotoServer

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    running = ThreadedMotoServer(port=0, verbose=False)
    running.start()
    yield running.get_host_and_port()[1]
    running.stop()


@pytest.fixture
def bucket(server: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The URL of a bucket, which this process and those that it starts can reach."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "x")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "x")
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{server}")
    s3fs.S3FileSystem.clear_instance_cache()
    files = s3fs.S3FileSystem()
    if not files.exists("bucket"):
        files.mkdir("bucket")
    yield "s3://bucket"
    s3fs.S3FileSystem.clear_instance_cache()


def rows(folder: str) -> list[tuple[Any, ...]]:
    return brinell.Run(folder).rows("select * exclude (queries) from rows order by all").fetchall()


def plain(data: Path, out: Path) -> list[tuple[Any, ...]]:
    execution = brinell.Execution(runtime="torch", batch=4, shard=2)
    lens = {"name": "profile", "operators": ["noise"], "levels": 4}
    source = {"source": str(data), "labels": "index"}
    return rows(brinell.run("fake:grey", source, lens=lens, out=out, execution=execution, quiet=True).folder)


def start(data: Path, out: str, part: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "brinell", "run", "--model", "fake:grey", "--data", str(data), "--out", out]
    return subprocess.Popen(
        [*command, *OPTIONS, "--part", part],
        env=dict(os.environ),
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


@pytest.mark.slow
def test_two_parts_write_at_once(bucket: str, greys: Path, tmp_path: Path) -> None:
    out = f"{bucket}/joint"
    parts = [start(greys, out, part) for part in ("1/2", "2/2")]
    for part in parts:
        _, errors = part.communicate(timeout=600)
        assert part.returncode == 0, errors
    assert brinell.Run(out).finished and rows(out) == plain(greys, tmp_path / "plain")
    status = read_status(out)
    assert [part.state for part in status.parts] == ["done", "done"] and status.done == status.total == 6
    leftovers = [path for path in s3fs.S3FileSystem().find("bucket/joint") if path.endswith(".part")]
    assert leftovers == []


@pytest.mark.slow
def test_connections_that_drop(
    bucket: str, server: int, greys: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    proxy = Dropping(server, every=3)
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{proxy.port}")
    s3fs.S3FileSystem.clear_instance_cache()
    execution = brinell.Execution(runtime="torch", batch=4, shard=2)
    lens = {"name": "profile", "operators": ["noise"], "levels": 4}
    source = {"source": str(greys), "labels": "index"}
    for part in ("2/2", "1/2"):
        own = execution.model_copy(update={"part": part})
        brinell.run("fake:grey", source, lens=lens, out=f"{bucket}/dropped", execution=own, quiet=True)
    proxy.listener.close()
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{server}")
    s3fs.S3FileSystem.clear_instance_cache()
    assert proxy.dropped > 0
    assert brinell.Run(f"{bucket}/dropped").finished
    assert rows(f"{bucket}/dropped") == plain(greys, tmp_path / "plain")


def test_what_another_process_writes_is_seen(bucket: str) -> None:
    """An object store's client remembers folders; a part has to see what others write meanwhile."""
    store = Store(f"{bucket}/seen")
    store.write(b"1", "rows", "a.parquet")
    assert store.names("rows") == ["a.parquet"] and len(store.unit_files()) == 1 and not store.exists("rows", "b.parquet")
    import boto3

    boto3.client("s3", region_name="us-east-1").put_object(Bucket="bucket", Key="seen/rows/b.parquet", Body=b"2")
    assert store.exists("rows", "b.parquet") and store.names("rows") == ["a.parquet", "b.parquet"]
    assert len(store.unit_files()) == 2
