"""The viewer without a browser: digests against rows, who may ask, and what starts without torch."""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import numpy as np
import pytest

import brinell
from brinell.perturb.find import find_turnable, turnable_changes
from brinell.viewer.digest import STRONGEST, SURVIVED, WRONG, compute_digest, read_digest
from brinell.viewer.headline import headline
from brinell.viewer.index import RunIndex, find_runs, name_runs
from brinell.viewer.names import escape, format_parameters, parse_parameters, unescape
from brinell.viewer.open import open_viewer
from brinell.viewer.server import Viewer, static_files
from conftest import PLAIN

STATIC = Path(brinell.__file__).parent / "viewer" / "static"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, shared_greys: Path) -> brinell.Run:
    """Two fakes with known breaking points; the images are labelled light, and the darker ones are wrong when clean."""
    return brinell.run(
        ["fake:grey:0.4", "fake:grey:0.6"],
        shared_greys,
        lens=[
            {"name": "profile", "operators": ["fade_black", "boxes"], "levels": 20},
            {"name": "knob", "operators": ["brightness"], "points": 50},
        ],
        out=tmp_path_factory.mktemp("runs") / "greys",
        execution=PLAIN,
        quiet=True,
    )


@pytest.fixture(scope="module")
def viewer(run: brinell.Run) -> Iterator[Viewer]:
    with open_viewer([str(Path(run.folder).parent)]) as opened:
        yield opened.start()


def ask(viewer: Viewer, path: str, body: bytes | None = None, **headers: str) -> tuple[int, bytes]:
    address = f"http://127.0.0.1:{viewer.port}/{path}"
    try:
        with urlopen(Request(address, data=body, headers=headers)) as response:
            return response.status, response.read()
    except HTTPError as error:
        return error.code, error.read()


# ---- digests ----


def test_first_failures_are_those_of_the_rows(run: brinell.Run) -> None:
    digest = compute_digest(run)
    assert [(one.lens, one.operator.partition(":")[0]) for one in digest.columns] == [
        ("profile", "fade_black"),
        ("profile", "boxes"),
        ("knob", "brightness"),
    ]
    for number, column in enumerate(digest.columns[:2]):
        for model, cells in digest.cells.items():
            for position, image in enumerate(digest.images["id"]):
                levels = run.query(
                    "select level, correct from rows where lens = 'profile' and model = $m and operator = $o "
                    "and image = $i order by level",
                    {"m": model, "o": column.operator, "i": image},
                )
                broken = [level for level, correct in levels if not correct]
                code = int(cells.first[number, position])
                if broken and broken[0] == 0:
                    assert code == WRONG
                elif broken:
                    assert code == round(STRONGEST * broken[0] / 30)
                else:
                    assert code == SURVIVED


def test_hardness_is_that_of_the_run(run: brinell.Run) -> None:
    digest = compute_digest(run)
    measured = run.hardness()
    for one in headline(digest):
        assert {each["lens"] for each in one["hardness"]} == {"profile", "knob"}
        for each in one["hardness"]:
            stored = measured[each["lens"]][one["model"]]
            assert each["value"] == pytest.approx(stored.value.value, abs=1e-3) and each["images"] == stored.images


def test_a_digest_is_stored_once_and_made_again_when_rows_change(run: brinell.Run, monkeypatch: pytest.MonkeyPatch) -> None:
    first = read_digest(run)
    monkeypatch.setattr("brinell.viewer.digest.compute_digest", lambda *given: pytest.fail("it is stored"))
    again = read_digest(run)
    assert again.columns == first.columns and again.images == first.images
    for model, cells in first.cells.items():
        assert all(
            np.array_equal(getattr(cells, name), getattr(again.cells[model], name), equal_nan=name == "value")
            for name in ("first", "value", "shard")
        )
    files = run.store.unit_files()
    monkeypatch.setattr(type(run.store), "unit_files", lambda self: files[1:])
    with pytest.raises(BaseException, match="it is stored"):
        read_digest(run)


def test_a_digest_of_a_folder_that_cannot_be_written_goes_to_the_cache(
    run: brinell.Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from brinell.errors import RunError
    from brinell.viewer.stored import Stored

    monkeypatch.setenv("BRINELL_CACHE", str(tmp_path))
    stored = Stored(run)
    own, _ = stored._places[0]
    monkeypatch.setattr(own, "write", lambda *given: (_ for _ in ()).throw(RunError("read-only")))
    stored.write(b"content", "one.bin")
    assert stored.read("one.bin") == b"content"
    assert [path.name for path in tmp_path.rglob("*.bin")] == ["one.bin"]


# ---- runs and names ----


def test_runs_are_found_below_folders(run: brinell.Run, tmp_path: Path) -> None:
    assert find_runs(run.folder) == [run.folder]
    assert find_runs(str(Path(run.folder).parent)) == [run.folder]
    assert find_runs(str(tmp_path)) == find_runs(str(tmp_path / "missing")) == []
    assert name_runs(["/a/x/run", "/a/y/run", "/b/other"]) == {
        "x~run": "/a/x/run",
        "y~run": "/a/y/run",
        "other": "/b/other",
    }


def test_a_folder_that_is_no_run_is_shown_with_the_reason(tmp_path: Path) -> None:
    (tmp_path / "odd").mkdir()
    (tmp_path / "odd" / "manifest.json").write_text("{}")
    ((identity, _, problem),) = RunIndex([str(tmp_path)]).all()
    assert identity == "odd" and "is not that of a brinell run" in str(problem)


def test_names_survive_paths() -> None:
    for name in ("jpeg:published", "a/../b", "größe ~x", "%2e%2e"):
        assert re.fullmatch(r"[\w.~-]+", escape(name), re.ASCII) and unescape(escape(name)) == name
    with pytest.raises(ValueError, match="~x"):
        unescape("~x")
    assert parse_parameters(format_parameters((0.25, -3.0), 2)) == ((0.25, -3.0), 2)
    assert format_parameters((7.0,)) == "7"


# ---- who may ask ----


def test_only_the_viewers_own_address_is_answered(viewer: Viewer) -> None:
    assert ask(viewer, "api/site.json")[0] == 200
    status, body = ask(viewer, "api/site.json", Host="evil.example")
    assert status == 421 and b"open that address" in body


def test_live_requests_of_other_pages_are_refused(viewer: Viewer) -> None:
    assert ask(viewer, "api/live/open", b"{}")[0] == 403
    assert ask(viewer, "api/live/open", b"{}", **{"X-Brinell": "1"})[0] == 200


@pytest.mark.parametrize(
    "path",
    [
        "../pyproject.toml",
        "..%2f..%2fetc/passwd",
        "js/../../server.py",
        "api/runs/..~2F../run.json",
        "api/runs/greys/thumbnails/..~2F..~2Fmanifest.webp",
        "api/runs/greys/thumbnails/~2Fetc~2Fpasswd.webp",
        "api/runs/greys/inputs/fake/..~2Fx.webp",
        "server.py",
    ],
)
def test_no_other_file_is_served(viewer: Viewer, path: str) -> None:
    status, body = ask(viewer, path)
    assert status in (404, 422) and b"root:" not in body and b"identity" not in body


def test_other_addresses_need_the_token(run: brinell.Run) -> None:
    with open_viewer([run.folder], host="0.0.0.0") as opened:
        opened.start()
        assert ask(opened, "api/site.json")[0] == 401
        assert ask(opened, "?token=wrong")[0] == 401
        cookie = f"brinell_token={opened.token}"
        assert ask(opened, "api/site.json", Cookie=cookie)[0] == 200
        assert f"?token={opened.token}" in opened.url and len(opened.token or "") >= 32


def test_pages_may_load_nothing_from_elsewhere(viewer: Viewer) -> None:
    with urlopen(viewer.url) as response:
        policy = response.headers["Content-Security-Policy"]
        page = response.read().decode()
    assert "default-src 'none'" in policy and "unsafe" not in policy and "http" not in policy
    assert not re.findall(r"<script(?![^>]*\bsrc=)|\son\w+=|style=", page)


def test_vendored_files_are_those_that_are_listed() -> None:
    readme = (STATIC / "vendor" / "README.md").read_text()
    listed = re.findall(r"^\| (\S+\.(?:js|css)) .* \| ([0-9a-f]{64}) \|$", readme, re.MULTILINE)
    files = {path.name for path in (STATIC / "vendor").iterdir() if path.suffix in (".js", ".css")}
    assert {name for name, _ in listed} == files
    for name, digest in listed:
        assert hashlib.sha256((STATIC / "vendor" / name).read_bytes()).hexdigest() == digest
    assert sum(len(file.read_bytes()) for file in static_files().values()) < 250_000


def test_the_front_end_names_no_lens() -> None:
    from brinell.lenses.lens import LENSES

    for path in STATIC.rglob("js/**/*.js"):
        assert not re.findall(rf"""["'`]({"|".join(LENSES)})["'`]""", path.read_text()), path


def test_stored_pages_start_without_torch(run: brinell.Run) -> None:
    code = f"""
import sys, time
from urllib.request import urlopen
from brinell.viewer.open import open_viewer
with open_viewer([{run.folder!r}]) as viewer:
    viewer.start()
    for path in ("", "api/runs.json", "api/runs/greys/run.json", "api/runs/greys/digest.json", "api/live/models.json"):
        urlopen(viewer.url + path).read()
print("torch" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_models_that_run_code_are_opened_only_if_trusted(run: brinell.Run, tmp_path: Path) -> None:
    """Whoever wrote a run's folder may not decide which code is run here."""
    import shutil

    folder = tmp_path / "foreign"
    shutil.copytree(run.folder, folder)
    (tmp_path / "code.py").write_text("raise SystemExit('the code ran')")
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["source"]["models"][0]["source"] = f"torch:{tmp_path}/code.py:make"
    manifest["source"]["models"][0]["name"] = "grey:0.4"
    (folder / "manifest.json").write_text(json.dumps(manifest))
    with open_viewer([str(folder)]) as opened:
        opened.start()
        body = json.dumps({"model": "grey:0.4"}).encode()
        status, answer = ask(opened, "api/live/open", body, **{"X-Brinell": "1"})
    assert status == 200 and "use --trust if you trust it" in json.loads(answer)["problem"]


# ---- sliders ----


def test_every_change_can_be_turned_or_says_why_not() -> None:
    for kind, changes in turnable_changes().items():
        for change in changes:
            sliders = change.sliders((224, 224), (300, 400))
            assert sliders, f"{kind}: {change.id}"
            assert any(slider.neutral is not None for slider in sliders)
            clean = [slider.start if slider.neutral is None else slider.neutral for slider in sliders]
            assert change.caption(clean, (224, 224)) == "clean"
            assert change.caption([slider.high for slider in sliders], (224, 224)) not in ("", "clean")
            assert find_turnable(change.id).id == change.id


def test_live_answers_find_the_known_breaking_point(viewer: Viewer, run: brinell.Run) -> None:
    """The fake model calls an image dark below a mean grey of 0.4."""

    def post(what: str, content: Any) -> Any:
        body = content if isinstance(content, bytes) else json.dumps(content).encode()
        status, answer = ask(viewer, f"api/live/{what}", body, **{"X-Brinell": "1"})
        assert status == 200, answer
        return json.loads(answer)

    image = list(run.image_names)[-1]
    photo = post("original", {"run": "greys", "image": image})["photo"]
    request = {"photo": photo, "models": ["grey:0.4"]}
    swept = post("sweep", {**request, "change": "fade_black:published", "parameters": [0], "axis": 0})
    stored = run.query(
        "select not correct, probability from rows where lens = 'profile' and model = 'grey:0.4' "
        "and operator = 'fade_black:published' and image = $image order by level",
        {"image": image},
    )
    assert swept["models"][0]["broken"][: len(stored)] == [broken for broken, _ in stored]
    assert swept["models"][0]["probability"][: len(stored)] == pytest.approx([one for _, one in stored], abs=1e-5)
    found = post("break", {**request, "change": "brightness:standard"})["grey:0.4"]
    assert found["parameters"][0] < 0 and found["queries"] > 5
    at = post(
        "sweep", {**request, "change": "brightness:standard", "parameters": [0], "axis": 0, "values": found["parameters"]}
    )
    assert at["models"][0]["broken"] == [True]
    assert post("break", {**request, "change": "fade_black:published"}) == {"grey:0.4": None}
