"""Workers on a real Ray cluster: the rows of one process, also if an actor is killed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from PIL import Image

import brinell
from brinell.engine.ray_crew import RayCrew
from brinell.engine.worker import ShardTask

ray = pytest.importorskip("ray", reason="needs Ray")
PLAIN = brinell.Execution(runtime="torch", batch=4, shard=2, device="cpu")
PROFILE = {"name": "profile", "operators": ["fade_black", "noise"], "levels": 4}


@pytest.fixture(scope="module")
def greys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    (folder / "light").mkdir()
    for index in range(12):
        Image.fromarray(np.full((32, 32, 3), 100 + 10 * index, np.uint8)).save(folder / "light" / f"{index:02d}.png")
    return folder


@pytest.fixture(scope="module")
def cluster() -> Any:
    """Four slots on this machine; a run that finds it leaves it alone."""
    ray.init(num_cpus=4, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    yield
    ray.shutdown()


def measure(data: Path, out: Path, on: str | None = None) -> dict[str, Any]:
    """Measure, and return the rows, file by file."""
    execution = PLAIN.model_copy(update={"on": on})
    run = brinell.run("fake:grey", str(data), lens=PROFILE, out=out, execution=execution, quiet=True)
    assert run.finished
    return {str(file.relative_to(out)): pq.read_table(file).to_pylist() for file in sorted(out.glob("rows/**/*.parquet"))}


@pytest.mark.filterwarnings("ignore")
def test_actors_give_the_rows_of_one_process_and_one_may_die(
    cluster: Any, greys: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = measure(greys, tmp_path / "plain")
    send = RayCrew.send
    for workers in (1, 2, 4):
        sent = [0]

        def kill_at_the_second_task(self: RayCrew, worker: int, task: ShardTask, sent: list[int] = sent) -> None:
            sent[0] += 1
            send(self, worker, task)
            if sent[0] == 2:
                ray.kill(self._actors[worker])

        monkeypatch.setattr(RayCrew, "send", kill_at_the_second_task)
        assert measure(greys, tmp_path / str(workers), f"ray?workers={workers}") == plain
        assert sent[0] == 7  # six shards, and one of them again
