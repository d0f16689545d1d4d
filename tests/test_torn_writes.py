"""What commands write appears whole: exports that are stopped, and datasets killed at their first or last write."""

from __future__ import annotations

from pathlib import Path

import pytest

import brinell
from brinell.runs.store import Store
from conftest import PLAIN
from curating import curated, measured, same_files


@pytest.fixture(scope="module")
def moved(shared_greys: Path, tmp_path_factory: pytest.TempPathFactory) -> brinell.Run:
    lens = {"name": "geometry", "operators": ["translation"], "radii": [0.3], "draws": 1, "methods": "random"}
    out = tmp_path_factory.mktemp("moved") / "run"
    return brinell.run("fake:grey:0.25", shared_greys, lens=lens, out=out, execution=PLAIN, quiet=True)


@pytest.mark.parametrize(("name", "file"), [("moved.npz", "moved.npz"), ("moved", "moved/metadata.jsonl")])
def test_an_export_has_its_name_when_it_is_whole(
    name: str, file: str, moved: brinell.Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    replace = Path.replace

    def stop(part: Path, target: Path) -> Path:
        if target == tmp_path / file:
            raise KeyboardInterrupt
        return replace(part, target)

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(Path, "replace", stop)
        moved.export_moved(tmp_path / name, "translation:random", score=0.3)
    assert not (tmp_path / file).exists()
    moved.export_moved(tmp_path / name, "translation:random", score=0.3)
    assert len(brinell.open_dataset(tmp_path / name)) > 5
    assert not list(tmp_path.rglob("*.part"))


def test_a_dataset_that_was_killed_at_its_first_or_last_write_is_written(
    shared_greys: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = measured("fake:grey:0.25", shared_greys, tmp_path / "run", operators=["fade_black"], levels=6)
    curated(run, tmp_path / "whole" / "set")
    half = tmp_path / "half" / "set" / ".unfinished.0123.part"  # killed while it wrote its first file
    half.parent.mkdir(parents=True)
    half.write_bytes(b"0")
    curated(run, half.parent)
    assert same_files(tmp_path / "whole", tmp_path / "half") and not half.exists()

    def killed(store: Store, *names: str) -> None:
        raise KeyboardInterrupt

    out = tmp_path / "killed" / "set"
    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(Store, "remove", killed)
        curated(run, out)
    assert (out / ".unfinished").exists()
    curated(run, out)
    assert same_files(tmp_path / "whole", tmp_path / "killed") and not (out / ".unfinished").exists()
