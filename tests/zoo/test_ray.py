"""Real actors of Ray: the rows of one process, also if one is killed, and runs that are cancelled and resumed."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import brinell
from brinell.engine.workers import ray_actors as on_ray
from brinell.engine.workers.worker import ShardTask
from test_budget import same
from test_parts import PLAIN, PROFILE, measure

ray = pytest.importorskip("ray", reason="needs ray: make test-zoo", exc_type=ImportError)

from brinell.engine.workers.ray_actors import Actors  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(scope="module")
def started() -> Iterator[None]:
    """Ray on this machine; more cores than it has, as four actors mostly wait here."""
    ray.init(num_cpus=4, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    yield
    ray.shutdown()


@pytest.mark.parametrize("actors", [1, 2, 4])
def test_actors_give_the_rows_of_one_process_and_one_may_die(
    actors: int, started: None, greys: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[ShardTask] = []
    plain_send = Actors.send

    def kill_at_the_second_task(self: Actors, worker: int, task: ShardTask) -> None:
        sent.append(task)
        if len(sent) == 2:
            os.kill(ray.get(self.actors[worker].__ray_call__.remote(lambda holder: os.getpid())), signal.SIGKILL)
        plain_send(self, worker, task)

    monkeypatch.setattr(Actors, "send", kill_at_the_second_task)
    monkeypatch.setattr("brinell.engine.workers.schedule.LATE", float("inf"))  # a slow task gets no second worker
    execution = PLAIN.model_copy(update={"cluster": "ray", "actors": actors})
    joint = brinell.run("fake:grey", greys, lens=PROFILE, out=tmp_path / "joint", execution=execution, quiet=True)
    assert len(sent) == 7 and len(set(sent)) == 6 and sent.count(sent[1]) == 2  # six shards, and that one again
    assert joint.finished and same(joint, measure(greys, tmp_path / "plain"))
    assert ray.is_initialized()  # a connection that was there before stays


def test_an_error_in_an_actor_ends_the_run_with_its_message(
    started: None, greys: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain_send = Actors.send

    def replace_an_image(self: Actors, worker: int, task: ShardTask) -> None:
        Image.fromarray(np.zeros((40, 48, 3), np.uint8)).save(greys / "light/00.png")
        plain_send(self, worker, task)

    monkeypatch.setattr(Actors, "send", replace_an_image)
    with pytest.raises(brinell.RunError, match=r"00\.png"):
        measure(greys, tmp_path / "run", execution=PLAIN.model_copy(update={"cluster": "ray", "actors": 1}))


def test_a_cluster_elsewhere_needs_rays_client(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(on_ray, "find_spec", lambda name: None)
    missing = r"this needs ray\[client\], which is not installed: pip install"
    with pytest.raises(brinell.MissingExtra, match=missing), on_ray.connected("ray://head:10001"):
        pass


@pytest.mark.parametrize(
    ("message", "failures", "attempts", "connects"),
    [
        ("Initialization failure: RuntimeError: Starting Ray client server failed. See …", 2, 3, True),
        ("Initialization failure: RuntimeError: Starting Ray client server failed. See …", 3, 3, False),
        ("no cluster there", 1, 1, False),
    ],
)
def test_a_client_server_that_does_not_start_is_tried_again(
    message: str, failures: int, attempts: int, connects: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[str] = []

    def init(address: str, **options: object) -> None:
        tried.append(address)
        if len(tried) <= failures:
            raise ConnectionAbortedError(message)

    monkeypatch.setattr(ray, "init", init)
    monkeypatch.setattr(ray, "is_initialized", lambda: False)  # other tests' Ray may still run
    monkeypatch.setattr(ray, "shutdown", lambda: None)
    refused = pytest.raises(brinell.RunError, match="can't connect to Ray")
    with nullcontext() if connects else refused, on_ray.connected("ray://head:10001"):
        pass
    assert tried == ["ray://head:10001"] * attempts


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


@pytest.fixture
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A cluster of one machine that is not started by the run, behind the address that other machines use."""
    pytest.importorskip("grpc", reason="needs ray[client]: make test-zoo", exc_type=ImportError)
    port, client = free_port(), free_port()
    # without fork support, as docs/scale.md recommends: with it, Ray's server for a client may die while it starts
    environment = {**os.environ, "RAY_TMPDIR": str(tmp_path_factory.mktemp("ray")), "GRPC_ENABLE_FORK_SUPPORT": "0"}
    command = [Path(sys.executable).with_name("ray"), "start", "--head", "--block", "--include-dashboard=false"]
    options = [f"--port={port}", f"--ray-client-server-port={client}", "--num-cpus=2", "--disable-usage-stats"]
    head = subprocess.Popen([*command, *options], env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 120
        while True:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", client)) == 0:
                    break
            assert head.poll() is None and time.monotonic() < deadline, "Ray did not start"
            time.sleep(0.2)
        yield f"ray://127.0.0.1:{client}"
    finally:
        head.send_signal(signal.SIGTERM)
        head.wait(60)


def command(data: Path, out: Path, cluster: str) -> list[str]:
    what = ["--model", "fake:grey", "--data", str(data), "--operator", "noise", "--levels", "30", "--runtime", "torch"]
    how = ["--batch", "1", "--shard", "1", "--on", cluster, "--actors", "2", "--out", str(out)]
    return [sys.executable, "-m", "brinell", "run", *what, *how]


def cancel_and_resume(data: Path, out: Path, cluster: str, number: signal.Signals) -> None:
    """Send a run a signal when it has its first rows, and run it again."""
    joint = command(data, out, cluster)
    run = subprocess.Popen(joint, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    deadline = time.monotonic() + 120
    while not list(out.glob("rows/*/*/*/*.parquet")):
        assert run.poll() is None and time.monotonic() < deadline, run.communicate()[0]
        time.sleep(0.01)
    run.send_signal(number)
    said = run.communicate(timeout=60)[0]
    assert run.returncode == 130 and "rerun to resume" in said, said
    done = list(out.glob("rows/*/*/*/*.parquet"))
    assert 0 < len(done) < len(list(data.rglob("*.png")))
    times = {file: file.stat().st_mtime_ns for file in done}
    subprocess.run(joint, check=True, capture_output=True, timeout=120)
    assert {file: file.stat().st_mtime_ns for file in done} == times  # what was finished is not measured again


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, brinell.Run]:
    """Enough images for a run to be cancelled in the middle, and their rows by one process."""
    data, out = tmp_path_factory.mktemp("many"), tmp_path_factory.mktemp("plain") / "run"
    (data / "light").mkdir()
    for index in range(60):
        pixels = np.random.default_rng(index).integers(60, 200, (32, 32, 3), np.uint8)
        Image.fromarray(pixels).save(data / f"light/{index:02d}.png")
    execution = brinell.Execution(runtime="torch", batch=1, shard=1)
    lens = {"name": "profile", "operators": ["noise"], "levels": 30}
    return data, brinell.run("fake:grey", data, lens=lens, out=out, execution=execution, quiet=True)


def test_a_cancelled_run_resumes(plain: tuple[Path, brinell.Run], tmp_path: Path) -> None:
    cancel_and_resume(plain[0], tmp_path / "run", "ray", signal.SIGTERM)
    assert same(brinell.Run(tmp_path / "run"), plain[1])


def test_a_cluster_elsewhere_is_named_by_its_address(plain: tuple[Path, brinell.Run], tmp_path: Path, cluster: str) -> None:
    cancel_and_resume(plain[0], tmp_path / "run", cluster, signal.SIGINT)
    assert same(brinell.Run(tmp_path / "run"), plain[1])
