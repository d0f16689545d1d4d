"""A real S3 server on this machine (moto), with faults in between."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from random import Random
from typing import Any

import brinell
from brinell.config.execution import Execution
from brinell.errors import RunError
from brinell.runs import files
from brinell.runs.store import Store
from chaos.processes import prepare, rows_of
from chaos.scenario import Result


def object_store(work: Path, random: Random, scale: float) -> Result:
    """Run in a bucket, with operations that fail now and then, and let two runs claim one folder."""
    result = Result(
        "an S3 server with faults (moto)",
        "the same rows as on a disk; of two manifests one is created; operations are tried again",
    )
    try:
        import s3fs
        from moto.server import ThreadedMotoServer
    except ImportError:
        result.skipped = "needs pip install --requirement chaos/requirements.txt"
        return result
    prepare(work)
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    os.environ |= {"AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "x", "AWS_ENDPOINT_URL": f"http://{host}:{port}"}
    try:
        s3fs.S3FileSystem().mkdir("bucket")
        _run_with_faults(work, random, result)
        _claim(result)
    finally:
        server.stop()
    return result


def _run_with_faults(work: Path, random: Random, result: Result) -> None:
    execution = Execution(runtime="torch", batch=4, shard=3)
    lens = {"name": "profile", "operators": ["noise"], "levels": 4}
    data = {"source": str(work / "greys"), "labels": "index"}
    plain = brinell.run("fake:grey:0.25", data, lens=lens, out=str(work / "plain"), execution=execution, quiet=True)
    files.PAUSE = 0.01
    retried, original = [0], files.with_retries

    def faulty(fs: Any, operation: Any) -> Any:
        def sometimes() -> Any:
            if not files.is_local(fs) and random.random() < 0.15:
                retried[0] += 1
                raise ConnectionResetError("a fault on purpose")
            return operation()

        return original(fs, sometimes)

    from brinell.runs import store as stores

    files.with_retries = stores.with_retries = faulty
    try:
        with result.attempt("a run in a bucket", seconds=300):
            brinell.run("fake:grey:0.25", data, lens=lens, out="s3://bucket/run", execution=execution, quiet=True)
    finally:
        files.with_retries = stores.with_retries = original
    result.tried += retried[0]
    result.expect(retried[0] > 0, "no fault was tried")
    there = brinell.Run("s3://bucket/run").rows("select * exclude (queries) from rows order by all").fetchall()
    result.expect(there == rows_of(Path(plain.folder)), "other rows in the bucket than on the disk")
    checks = brinell.Run("s3://bucket/run").verify(0, quiet=True)
    result.expect(all(check.passed for check in checks), f"verify: {checks}")


def _claim(result: Result) -> None:
    manifest = {"format": 1, "identity": {"config": {"seed": 0}, "models": {}, "data": {}}}
    with result.attempt("two manifests", RunError):
        created = [Store("s3://bucket/claimed").create_manifest(manifest) for _ in range(3)]
        result.expect(created == [True, False, False], f"a manifest was created {created}")
