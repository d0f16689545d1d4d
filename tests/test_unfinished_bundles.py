"""Bundles of the viewer that were interrupted, and manifests of another shape."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from brinell.errors import RunError
from brinell.runs.store import FORMAT, Store
from brinell.viewer.bundle import write_bundle


class Empty:
    """Content without runs; it may stop answering."""

    def __init__(self, broken: bool = False) -> None:
        self.site: dict[str, Any] = {}
        self.index = SimpleNamespace(all=list)
        self.broken = broken

    def respond(self, path: str) -> Any:
        if self.broken:
            raise KeyboardInterrupt
        return SimpleNamespace(body=b"{}")


def test_a_bundle_that_was_interrupted_is_written_again(tmp_path: Path) -> None:
    content: Any = Empty(broken=True)
    with pytest.raises(KeyboardInterrupt):
        write_bundle(content, tmp_path / "site")
    content.broken = False
    count = write_bundle(content, tmp_path / "site")
    files = [file for file in (tmp_path / "site").rglob("*") if file.is_file()]
    assert count == len(files) and not (tmp_path / "site" / ".unfinished").exists()
    assert write_bundle(content, tmp_path / "site") == count, "a finished one, too"


def test_other_files_are_left_alone(tmp_path: Path) -> None:
    content: Any = Empty()
    (tmp_path / "mine").write_text("x")
    with pytest.raises(RunError, match="holds other files"):
        write_bundle(content, tmp_path)
    with pytest.raises(RunError, match=r"can't write .*mine: Not a directory"):
        write_bundle(content, tmp_path / "mine")
    with pytest.raises(RunError, match=r"can't write .*: Not a directory; give the same command again"):
        write_bundle(content, tmp_path / "mine" / "below")


@pytest.mark.parametrize("content", [[], {}, {"identity": []}, {"identity": {}, "models": []}, "x", None])
def test_manifests_of_another_shape_are_refused(content: Any, tmp_path: Path) -> None:
    text = json.dumps({"format": FORMAT, **content} if isinstance(content, dict) else content)
    (tmp_path / "manifest.json").write_text(text)
    with pytest.raises(RunError, match="is not that of a brinell run"):
        Store(tmp_path).manifest()
