"""Several runs read as one: the same findings as one run with everything, one page, and refusals in one line."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

import brinell
from brinell.cli.main import main
from conftest import PLAIN

PROFILE: dict[str, Any] = {"name": "profile", "operators": ["fade_black", "boxes"], "levels": 4}
KNOB: dict[str, Any] = {"name": "knob", "operators": ["brightness"], "points": 8}
FRAGILITY: dict[str, Any] = {"name": "fragility", "sizes": [0.5], "stride": 8}
SOFT, HARD = ({"source": f"fake:grey:{threshold}", "name": name} for name, threshold in (("soft", 0.5), ("hard", 0.3)))


def measured(models: Any, data: Path, out: Path, *lenses: dict[str, Any], **more: Any) -> brinell.Run:
    return brinell.run(models, data, lens=list(lenses), out=out, execution=PLAIN, quiet=True, **more)


@pytest.fixture(scope="module")
def runs(shared_greys: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, brinell.Run]:
    folder = tmp_path_factory.mktemp("merged")
    return {
        "soft": measured(SOFT, shared_greys, folder / "soft", PROFILE, FRAGILITY),
        "hard": measured(HARD, shared_greys, folder / "hard", PROFILE, FRAGILITY),
        "knob": measured([SOFT, HARD], shared_greys, folder / "knob", KNOB),
        "all": measured([SOFT, HARD], shared_greys, folder / "all", PROFILE, FRAGILITY, KNOB),
    }


def assert_close(one: Any, two: Any) -> None:
    """Compare plain data, numbers but for their last digits: rows may be added up in another order."""
    if isinstance(one, dict):
        assert one.keys() == two.keys()
        for key, value in one.items():
            assert_close(value, two[key])
    elif isinstance(one, list):
        assert len(one) == len(two)
        for value, other in zip(one, two, strict=True):
            assert_close(value, other)
    else:
        assert one == (pytest.approx(two, rel=1e-9) if isinstance(two, float) else two)


def test_merged_runs_find_what_one_run_finds(runs: dict[str, brinell.Run]) -> None:
    merged = brinell.merge(runs["soft"], runs["hard"].folder, runs["knob"])
    assert list(merged.models) == ["soft", "hard"] and list(merged.found) == ["profile", "fragility", "knob"]
    assert_close(merged.to_json()["lenses"], runs["all"].to_json()["lenses"])
    assert str(merged.hardness()["knob"]["soft"]) == str(runs["all"].hardness()["knob"]["soft"])
    counts = "select count(*) from rows union all select count(*) from clean union all select count(*) from samples"
    assert merged.rows(counts).fetchall() == runs["all"].rows(counts).fetchall()


def test_the_command_writes_one_page(
    runs: dict[str, brinell.Run], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    main(["report", *(runs[name].folder for name in ("soft", "hard", "knob"))])
    assert "report: report.html" in capsys.readouterr().out
    page, whole = (tmp_path / "report.html").read_text(), Path(runs["all"].report()).read_text()
    assert page.count('<section class="card') == 2
    assert re.findall("<h2[^>]*>([^<]*)", page) == re.findall("<h2[^>]*>([^<]*)", whole)
    assert page.count("data:image/") >= whole.count("data:image/") > 50, "pictures of all runs"
    assert page.count('class="viewer"') == 2, "and maps"
    main(["report", runs["soft"].folder, "--out", "one.html"])
    assert "How hard is soft?" in (tmp_path / "one.html").read_text()


def test_one_run_is_itself(runs: dict[str, brinell.Run]) -> None:
    assert brinell.merge(runs["soft"]) is runs["soft"]
    with pytest.raises(brinell.ConfigError, match="expected at least one run"):
        brinell.merge()


def test_what_can_t_be_read_together_is_refused(runs: dict[str, brinell.Run], greys: Path, tmp_path: Path) -> None:
    (greys / "light" / "00.png").unlink()
    refused = {
        "different images": measured(HARD, greys, tmp_path / "images", PROFILE),
        "different options of the lens profile": measured(
            HARD, Path(runs["soft"].source["data"]["source"]), tmp_path / "options", {**PROFILE, "levels": 3}
        ),
        "both measured soft by the lens fragility": runs["all"],
        "call different models 'soft'": measured(
            {**HARD, "name": "soft"}, Path(runs["soft"].source["data"]["source"]), tmp_path / "names", KNOB
        ),
    }
    for message, run in refused.items():
        with pytest.raises(brinell.RunError, match=message) as caught:
            brinell.merge(runs["soft"], run)
        assert "\n" not in str(caught.value)


def test_nothing_is_written_into_merged_runs(runs: dict[str, brinell.Run]) -> None:
    merged = brinell.merge(runs["soft"], runs["hard"])
    with pytest.raises(brinell.RunError, match="nothing can be written into a run"):
        merged.report()
    assert json.loads(runs["soft"].store.read("manifest.json"))["identity"]["models"].keys() == {"soft"}
