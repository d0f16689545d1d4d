"""The command line as a whole: what it imports, its flags, and the shape of its JSON."""

from __future__ import annotations

import json
import subprocess
import sys
from itertools import chain
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import pytest

import brinell
from brinell.cli.config_flags import config_of, run_flags
from brinell.cli.flags import Flag, flags_of
from brinell.cli.main import main
from brinell.config.data import DataOptions
from brinell.config.execution import Execution
from brinell.config.saliency import SaliencyOptions
from brinell.corruption.options import CorruptOptions
from brinell.curation.options import CurateOptions
from brinell.hardening.options import HardenConfig, PartOptions, TrainingOptions
from brinell.lenses.lens import LENSES
from brinell.run_config import RunConfig, TrackOptions
from conftest import PLAIN

SECTIONS = {
    ("data",): DataOptions,
    ("execution",): Execution,
    ("saliency",): SaliencyOptions,
    ("track",): TrackOptions,
    (): RunConfig,
}
BY_NAME = {flag.name: flag for flag in run_flags()}


def in_process(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a command in a process of its own, and print the heavy modules that it imported."""
    code = f"""
import sys
from brinell.cli.main import main
try:
    main({list(arguments)!r})
finally:
    print(*sorted({{"torch", "torchvision", "cv2", "timm"}} & set(sys.modules)), file=sys.stderr)
"""
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small run of two models."""
    from PIL import Image

    folder = tmp_path_factory.mktemp("commands")
    for name, grey in (("light", 200), ("dark", 20)):
        (folder / "data" / name).mkdir(parents=True)
        Image.new("RGB", (16, 16), (grey,) * 3).save(folder / "data" / name / "0.png")
    models: Any = ["fake:grey:0.25", "fake:grey:0.4"]
    lens = {"name": next(iter(LENSES)), "operators": ["fade_black"], "levels": 2}
    brinell.run(models, folder / "data", lens=lens, out=folder / "run", execution=PLAIN, quiet=True)
    return folder / "run"


LISTINGS = [["ls", kind] for kind in ("lenses", "operators", "models", "datasets", "criteria")]
ON_RUNS = [["summary"], ["summary", "--json"], ["rows"], ["report"], ["compare"], ["leaderboard"]]


@pytest.mark.parametrize("arguments", [["--help"], ["run", "--help"], ["--version"], *LISTINGS], ids=" ".join)
def test_help_and_listings_need_no_torch(arguments: list[str]) -> None:
    assert in_process(*arguments).stderr.strip() == ""


@pytest.mark.parametrize("arguments", ON_RUNS, ids=" ".join)
def test_reading_a_run_needs_no_torch(arguments: list[str], finished: Path) -> None:
    name, *flags = arguments
    assert in_process(name, str(finished), *flags).stderr.strip() == ""


SLOW = {"asyncio", "altair", "fsspec", "jinja2", "numpy", "PIL", "pyarrow", "scipy", "torch", "yaml"}


@pytest.mark.parametrize(
    "name", ["cifar-fragility", "cifar-geometry", "cifar-highlights", "cifar-photographs", "detector", "imagenet-several"]
)
def test_a_summary_is_read_by_duckdb_alone(name: str) -> None:
    """What takes longer to import than a summary takes to compute stays out, and so do the options of lenses."""
    run = Path(__file__).parent / "golden" / "runs" / name
    code = f"""
import sys
from brinell.cli.main import main
main(["summary", {str(run)!r}])
print(*sorted(name for name in sys.modules if name in {SLOW} or name.endswith(".options")), file=sys.stderr)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr.strip() == "" and len(done.stdout.splitlines()) > 5


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    main(["--version"])
    assert capsys.readouterr().out == f"brinell {brinell.__version__}\n"


def test_shell_completion() -> None:
    code = "from brinell.cli.main import main; main(['--show-completion', 'bash'])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "_BRINELL_COMPLETE" in done.stdout, done.stderr


@pytest.mark.parametrize("flag", run_flags(), ids=lambda flag: flag.name)
def test_every_flag_is_described(flag: Flag) -> None:
    assert len(flag.help) > 10 and flag.help.endswith("."), "one sentence says what it sets"


MODELS = [CorruptOptions, CurateOptions, TrainingOptions, HardenConfig, PartOptions]


@pytest.mark.parametrize(
    "flag", [*run_flags(), *chain(*(flags_of(model, panel="") for model in MODELS))], ids=lambda flag: flag.name
)
def test_every_choice_is_shown(flag: Flag) -> None:
    if get_origin(flag.kind) is Literal:
        shown = f"{flag.metavar} {flag.help}"
        assert [choice for choice in get_args(flag.kind) if choice not in shown] == [], "next to the flag, or in its help"


def test_every_option_of_a_run_has_a_flag() -> None:
    paths = {flag.path for flag in run_flags()}
    for section, options in SECTIONS.items():
        for option in options.model_fields:
            assert (*section, option) in paths or any(path[0] == option for path in paths), (section, option)


@pytest.mark.parametrize("lens", list(LENSES))
def test_every_option_of_a_lens_has_a_flag(lens: str) -> None:
    paths = {flag.path for flag in run_flags()}
    for option, field in LENSES[lens].options.model_fields.items():
        assert option == "name" or ("lens", option) in paths or (option,) in paths, option
        assert option == "name" or field.description, option


def value_of(flag: Flag) -> Any:
    """Return some value of a flag's type."""
    kind = get_args(flag.kind)[0] if get_origin(flag.kind) is list else flag.kind
    value = get_args(kind)[-1] if get_origin(kind) is Literal else {bool: True, int: 2, float: 0.5}.get(kind, "some")
    return [value] if get_origin(flag.kind) is list else value


@pytest.mark.parametrize("name", [flag.name for flag in run_flags() if flag.path[0] in ("data", "execution", "track")])
def test_a_flag_reaches_the_config(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    flag, seen = BY_NAME[name], {}
    monkeypatch.setattr("brinell.cli.config_flags.load_config", lambda content, overrides: seen.update(content))
    value = value_of(flag)
    config_of(None, {"model": ["fake:grey"], "data": "greys", name: value})
    assert seen[flag.path[0]][flag.path[1]] == value


@pytest.mark.parametrize(
    ("lens", "name"),
    [(lens.name, flag.name) for lens in LENSES.values() for flag in run_flags() if flag.path[0] == "lens"
     and flag.path[1] in lens.options.model_fields],
)  # fmt: skip
def test_a_flag_reaches_its_lens(lens: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    flag, seen = BY_NAME[name], {}
    monkeypatch.setattr("brinell.cli.config_flags.load_config", lambda content, overrides: seen.update(content))
    value = value_of(flag)
    config_of(None, {"model": ["fake:grey"], "data": "greys", "lens": [lens], name: value})
    assert seen["lens"] == {"name": lens, flag.path[1]: value}


def test_json_has_one_shape(finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The same keys for one and for several lenses."""
    first, second = list(LENSES)[:2]
    lenses = [{"name": first, "operators": ["fade_black"], "levels": 2}, {"name": second, "operators": ["brightness"]}]
    data = finished.parent / "data"
    config = {
        "models": "fake:grey:0.25",
        "data": str(data),
        "lenses": lenses,
        "execution": {"runtime": "torch", "batch": 4},
    }
    (tmp_path / "two.yaml").write_text(json.dumps(config))
    main(["run", str(tmp_path / "two.yaml"), "--out", str(tmp_path / "two")])
    capsys.readouterr()
    found = []
    for folder in (finished, tmp_path / "two"):
        main(["summary", str(folder), "--json"])
        found.append(json.loads(capsys.readouterr().out))
    assert [list(each) for each in found] == [["version", "run", "lenses", "queries", "sample"]] * 2
    assert [list(each["lenses"]) for each in found] == [[first], [first, second]]
    assert all("verdicts" in lens for each in found for lens in each["lenses"].values())


@pytest.mark.parametrize("command", ["summary", "report", "rows", "compare", "leaderboard"])
def test_a_run_of_another_format_is_refused(
    command: str, finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    manifest = json.loads((finished / "manifest.json").read_text())
    manifest["format"] = 99
    manifest["versions"]["brinell"] = "7.0"
    (tmp_path / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(SystemExit):
        main([command, str(tmp_path)])
    line = capsys.readouterr().err
    assert "has format 99" in line and "reads format 1; open it with brinell 7.0, or run it again" in line
