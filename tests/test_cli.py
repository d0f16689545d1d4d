"""The command line: every command does what it says, and every bad input is one line that helps."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from brinell.api import Run
from brinell.cli.main import all_commands, as_click, main
from brinell.criteria.criterion import CRITERIA
from brinell.datasets.sources import SOURCES as DATASETS
from brinell.lenses.lens import LENSES
from brinell.models.sources import SOURCES as MODELS
from brinell.perturb.operator import OPERATORS

COMMANDS = {command.name: command for command in all_commands()}
OPTIONS = {"--model": "fake:grey:0.25", "--data": "greys", "--operator": "fade_black", "--levels": "20"}
BUILT_IN = [operator for operator in OPERATORS.values() if operator.function.__module__.startswith("brinell.")]
# an operator with one variant is listed by its name alone
COUNTS = Counter(operator.name for operator in BUILT_IN)
VARIANTS = [operator.variant for operator in BUILT_IN if operator.variant != "published" and COUNTS[operator.name] > 1]
HOW = {"--runtime": "torch", "--batch": "4", "--shard": "8"}

Call = Callable[..., str]


def run(*changed: str) -> list[str]:
    """A quick run's command, with options changed or added."""
    given = {**OPTIONS, **HOW, **dict(zip(changed[::2], changed[1::2], strict=True))}
    return ["run", *(word for pair in given.items() for word in pair)]


@pytest.fixture
def brinell(capsys: pytest.CaptureFixture[str]) -> Call:
    """Run a command that must succeed, and return what it printed."""

    def call(*arguments: str) -> str:
        main(list(arguments))
        return capsys.readouterr().out

    return call


@pytest.fixture
def refused(capsys: pytest.CaptureFixture[str]) -> Call:
    """Run a command that must fail with one line, and return that line; it may have begun to load a model."""

    def call(*arguments: str) -> str:
        with pytest.raises(SystemExit) as left:
            main(list(arguments))
        *before, line = capsys.readouterr().err.splitlines()
        assert left.value.code == 2
        assert line.startswith("error: ") and all(each.startswith("Loading") for each in before), before
        return line

    return call


@pytest.fixture
def here(greys: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with the images `greys`, and a wide terminal."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "300")
    return tmp_path


@pytest.fixture
def ran(here: Path, brinell: Call) -> Path:
    """The same with a finished run in `first`."""
    brinell(*run("--out", "first"))
    return here


# ---- commands ----


def test_the_commands() -> None:
    known = (
        "card check compare corrupt curate decide demo evidence export-moved gate harden human leaderboard ls plan "
        "report rows run saliency serve show status"
    )
    assert sorted(COMMANDS) == [*known.split(), "summary", "track", "verify", "view"]


@pytest.mark.parametrize("command", COMMANDS)
def test_help_shows_an_example(command: str, brinell: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    assert re.search(rf"Examples?: brinell {command}", brinell(command, "--help"))
    for parameter in as_click(COMMANDS[command]).params:
        assert parameter.help, f"{parameter.name} should say what it is for"


@pytest.mark.parametrize("command", COMMANDS)
def test_help_fits_80_columns(command: str, brinell: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    lines = brinell(command, "--help").splitlines()
    assert max(map(len, lines)) <= 80
    words = {word.strip(",") for line in lines for word in line.split()}
    for parameter in as_click(COMMANDS[command]).params:
        names = {opt.replace("--", "--[no-]") for opt in parameter.opts} if parameter.secondary_opts else parameter.opts
        assert not parameter.opts[0].startswith("-") or set(names) <= words, "names are not cut off"


def test_no_arguments_print_the_help(brinell: Call) -> None:
    assert brinell() == brinell("--help")


def test_run_from_options(here: Path, brinell: Call) -> None:
    shown = brinell(*run("--limit", "5", "--seed", "3", "--select", "correct", "--out", "first"))
    assert "fade to black" in shown and "grey:0.25 is right on 100% [53–100%] of the clean images" in shown
    assert f"report: {here / 'first' / 'report.html'}" in shown
    manifest = Run("first").manifest
    config = manifest["identity"]["config"]
    assert (config["data"]["limit"], config["seed"], config["select"]) == (5, 3, "correct")
    assert manifest["execution"] == {"batch": {"grey:0.25": 4}, "shard": 8}


def test_run_from_yaml_with_options_and_settings_over_it(here: Path, brinell: Call) -> None:
    (here / "test.yaml").write_text(
        """
        models: ["fake:grey:0.25?name=one", {source: "fake:grey:0.4", name: two}]
        data: {source: greys, limit: 9}
        lens: {name: profile, operators: [jpeg, noise], levels: 5}
        execution: {runtime: torch, batch: 4, shard: 8}
        out: first
        """
    )
    brinell("run", "test.yaml")
    assert Run("first").rows("select count(*), count(distinct model) from rows").fetchall() == [(2 * 2 * 9 * 6, 2)]
    settings = ["--set", "data.limit=3", "--set", "lens.operators=[boxes]", "--set", "models.1.size=16"]
    brinell("run", "test.yaml", "--levels", "2", "--limit", "4", "--out", "second", *settings)
    second = Run("second")
    assert second.rows("select count(*), count(distinct operator) from rows").fetchall() == [(2 * 3 * 3, 1)]
    assert second.manifest["models"]["two"]["input"] == [3, 16, 16]
    brinell(
        "run", "test.yaml", "--model", "fake:grey:0.5", "--data", "greys/light", "--labels", "prediction", "--out", "third"
    )
    assert Run("third").manifest["identity"]["config"]["models"][0]["source"] == "fake:grey:0.5"


def test_a_folder_is_named_by_what_is_measured(here: Path, brinell: Call) -> None:
    for _ in range(2):
        brinell(*run())
    brinell(*run("--batch", "2"))
    assert len(list((here / "runs").iterdir())) == 1, "execution options make no other run"
    brinell(*run("--seed", "1"))
    assert len(list((here / "runs").iterdir())) == 2


def test_plan_prints_the_cost_and_runs_nothing(here: Path, brinell: Call) -> None:
    before = sorted(here.rglob("*"))
    shown = brinell("plan", *run("--limit", "10")[1:])
    assert re.search(r"profile +grey:0\.\d+ +10 × 1 +220 +[\d,]+ +about 1 s", shown)
    assert "220 forward passes. Nothing was run." in shown and "210 rows" in shown
    assert sorted(here.rglob("*")) == before


def test_report_with_figures(ran: Path, brinell: Call) -> None:
    (ran / "first" / "report.html").unlink()
    shown = brinell("report", "first", "--figures")
    assert f"report: {ran / 'first' / 'report.html'}" in shown
    figures = list((ran / "first" / "figures").iterdir())
    assert f"{len(figures)} figures: {ran / 'first' / 'figures'}" in shown
    assert {"average-accuracy.svg", "areas.png", "grey:0.25-rank.png"} <= {file.name for file in figures}


def test_summary(ran: Path, brinell: Call) -> None:
    shown = brinell("summary", "first")
    assert all(head in shown for head in ("fade to black", "< 90%", "< 50%", "< 10%", "drops below 50% at"))
    assert "over all levels of fade to black: accuracy drops below 50% at about mean grey" in shown
    assert "< 75%" in brinell("summary", "first", "--threshold", "0.75", "--threshold", "0.2")


@pytest.mark.parametrize("images", [1, 12])
def test_summary_as_json(here: Path, brinell: Call, images: int) -> None:
    """One image has no interval, and an unknown interval is null."""
    brinell(*run("--limit", str(images), "--out", "first"))

    def no_json(name: str) -> None:
        raise AssertionError(f"{name} is no JSON")

    found: dict[str, Any] = json.loads(brinell("summary", "first", "--json"), parse_constant=no_json)
    assert list(found) == ["version", "run", "lenses", "queries", "sample"] and found["version"] == 1
    found = found["lenses"]["profile"]
    assert {"verdicts", "models", "areas", "failure_points", "profiles"} <= set(found)  # all keys: tests/test_schema.py
    assert (found["models"]["grey:0.25"]["low"] is None) == (images == 1)
    assert len(found["profiles"]) == 2 * 21 * 4


def test_rows(ran: Path, brinell: Call) -> None:
    assert "252" in brinell("rows", "first", "select count(*) from rows")
    assert "fade_black:published" in brinell("rows", "first")
    brinell("rows", "first", "select level, count(*) as n from rows group by 1 order by 1", "--csv", "levels.csv")
    assert (ran / "levels.csv").read_text().splitlines()[:3] == ["level,n", "0,12", "1,12"]


@pytest.mark.parametrize(
    ("kind", "names"),
    [
        ("lenses", list(LENSES)),
        ("operators", [operator.name for operator in OPERATORS.values()]),
        ("operators", VARIANTS),
        ("models", [source.form for source in MODELS.values()]),
        ("datasets", [source.form for source in DATASETS.values()]),
        ("criteria", list(CRITERIA)),
    ],
)
def test_ls_lists_everything(kind: str, names: list[str], brinell: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "300")
    shown = brinell("ls", kind)
    assert [name for name in names if name not in shown] == []


def test_show_draws_a_sheet(here: Path, brinell: Call) -> None:
    levels = ["--level", "0", "--level", "5", "--level", "30"]
    brinell("show", "greys/light/00.png", "--operator", "jpeg", "--operator", "boxes:published", *levels, "--size", "64")
    with Image.open("levels.png") as sheet:
        assert (sheet.format, sheet.size) == ("PNG", (6 + 3 * (64 + 6), 6 + 2 * (20 + 18 + 64 + 6)))
    model = ["--operator", "gradient_descent", "--model", "fake:grey:0.25", "--level", "3", "--out", "attack.png"]
    brinell("show", "greys/light/00.png", *model)
    with Image.open("attack.png") as sheet:
        assert sheet.size == (6 + 32 + 6, 6 + 20 + 18 + 32 + 6), "at the model's own size"


def test_brackets_in_names_are_no_markup(here: Path, brinell: Call) -> None:
    shown = brinell(*run("--model", "fake:grey:0.25?name=net[v1][/b]", "--out", "runs/[x][/y]"))
    assert "net[v1][/b] is right on" in shown and "runs/[x][/y]/report.html" in shown
    assert "runs/[x][/y]" in brinell("plan", *run("--out", "runs/[x][/y]")[1:])


# ---- bad input ----

BAD = {
    "operator": (run("--operator", "jpegg"), "there is no operator 'jpegg'; did you mean jpeg?"),
    "variant": (run("--variant", "publish"), "no operator has the variant 'publish'; did you mean published?"),
    "operator's variant": (run("--operator", "jpeg:l2"), "operator 'jpeg' has no variant 'l2'; it has published"),
    "model": (run("--model", "tim:resnet50"), "there is no model source 'tim'; did you mean timm?"),
    "fake model": (run("--model", "fake:blue"), "expected fake:grey or fake:grey:THRESHOLD, got fake:blue"),
    "model's key": (run("--model", "fake:grey?sise=3"), "models.0.sise is not an option; did you mean size"),
    "model's option": (run("--model", "fake:grey?size=0"), "models.0.size.0: input should be greater than 0, got '0'"),
    "model's text": (run("--model", "fake:grey?size"), "models.0: value error, bad query field: 'size'"),
    "model file": (run("--model", "onnx:no.onnx"), "there is no ONNX file 'no.onnx'; check the path"),
    "two models": ([*run(), "--model", "fake:grey:0.25"], "two models have the same name (grey:0.25, grey:0.25)"),
    "lens": (run("--lens", "profil"), "there is no lens 'profil'; did you mean profile?"),
    "criterion": (run("--criterion", "misclass"), "there is no criterion 'misclass'; did you mean misclassification"),
    "dataset": (run("--data", "gryes"), "there is no dataset at 'gryes'; did you mean greys?"),
    "select": (run("--select", "correct:other"), "select should be all, correct or correct:MODEL with one of grey:0.25"),
    "select by name alone": (run("--select", "grey:0.25"), "select should be all, correct or correct:MODEL with one of"),
    "device": (run("--device", "gpu"), "there is no device 'gpu'; use auto, cpu, cuda or cuda:N"),
    "precision": (run("--precision", "fp8"), "'fp8' is not one of 'fp32', 'tf32', 'bf16', 'fp16'"),
    "levels": (run("--levels", "31"), "lenses.0.levels: input should be less than or equal to 30, got 31"),
    "whole number": (run("--batch", "many"), "Invalid value for '--batch'"),
    "batch": (run("--batch", "0"), "execution.batch: input should be greater than or equal to 1, got 0"),
    "protocol": (run("--out", "nowhere://x"), "can't open nowhere://x: Protocol not known"),
    "setting": (run("--set", "limit"), "expected --set key=value (as in --set data.limit=100), got 'limit'"),
    "setting's value": (run("--set", "seed=[1"), "--set seed: the value '[1' is not valid YAML"),
    "setting's key": (run("--set", "data.limmit=3"), "data.limmit is not an option; did you mean limit?"),
    "setting's index": (run("--set", "models.4.size=3"), "'4' is not an index into a list of 1"),
    "setting too deep": (run("--seed", "1", "--set", "seed.x=3"), "seed: input should be a valid integer, got {'x': 3}"),
    "nothing to test": (["run"], "nothing to test; give --model SOURCE and --data PATH, or a YAML file"),
    "no data": (["run", "--model", "fake:grey"], "no images to test on; give --data PATH (see `brinell ls datasets`)"),
    "option": (["run", "--modell", "x"], "No such option: --modell"),
    "command": (["runn"], "No such command 'runn'"),
    "argument": (["report"], "Missing argument 'RUN...'. (see brinell report --help)"),
    "kind": (["ls", "operator"], "unknown kind 'operator'; did you mean operators?"),
    "image": (["show", "no.png"], "no.png: No such file or directory"),
    "sheet": (["show", "greys/light/00.png", "--operator", "jpeg", "--out", "no/x.png"], "can't write no/x.png"),
    "size": (["show", "greys/light/00.png", "--size", "0"], "Invalid value for '--size'"),
    "level": (["show", "greys/light/00.png", "--level", "31"], "expected levels from 0 to 30, got 31"),
    "gradient": (["show", "greys/light/00.png", "--operator", "gradient_descent"], "give a torch model with --model"),
    "shown model": (["show", "greys/light/00.png", "--model", "fake:grey?sise=3"], "sise is not an option"),
}  # fmt: skip


@pytest.mark.parametrize("what", BAD)
def test_bad_input_is_one_line(what: str, here: Path, refused: Call) -> None:
    arguments, message = BAD[what]
    assert message in refused(*arguments)
    assert [path.name for path in here.iterdir()] == ["greys"], "and nothing is left behind"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("models: [a", "is not valid YAML: while parsing a flow sequence"),
        ("- a\n", "should contain a mapping with models and data, but contains list"),
        ("model: fake:grey\ndta: greys\n", "no images to test on; give --data PATH"),
        ("model: fake:grey\ndata: greys\nlenss: profile\n", "lenss is not an option; did you mean lens"),
        (
            "model: fake:grey\ndata: greys\nlens: {name: profile, level: 3}\n",
            "lenses.0.level is not an option; did you",
        ),
        ("model: fake:grey\ndata: greys\nlens: {levels: 3}\n", "a lens needs a name: "),
        ("model: fake:grey\ndata: greys\nlens: {name: [profile]}\n", "a lens needs a name: "),
        ("model: fake:grey\ndata: 3\n", "data: input should be a valid dictionary or instance of dataoptions, got 3"),
        ("model: fake:grey\ndata: greys\nseed: x\n", "seed: input should be a valid integer"),
        ("model: fake:grey\ndata: greys\nout: 2024-01-01\n", "out: input should be a valid string, got datetime.date"),
        ("model: fake:grey\ndata: greys\n1: 2\n", "1: keys should be strings, got 1"),
        ("model: {name: x}\ndata: greys\n", "models.0.source is missing"),
        (
            "model: fake:grey\ndata: greys\nlens: profile\nexecution: fast\n",
            "execution: input should be a valid dictionary",
        ),
        (
            "model: fake:grey\ndata: greys\nlens: {name: knob, levels: 3}\n",
            "levels is an option of the profile lens; knob has preset, operators, variant, criterion, search, points",
        ),
        ("model: fake:grey\ndata: {source: greys, limit: some}\n", "data.limit: input should be a valid integer"),
    ],
)
def test_bad_configs_are_one_line(text: str, message: str, here: Path, refused: Call) -> None:
    (here / "test.yaml").write_text(text)
    assert message in refused("run", "test.yaml")


def test_files_that_are_no_configs(here: Path, refused: Call) -> None:
    (here / "bytes.yaml").write_bytes(b"\xff\xfe\x00")
    assert "bytes.yaml is not valid YAML" in refused("run", "bytes.yaml")
    assert "the config no.yaml can't be read: No such file or directory" in refused("run", "no.yaml")
    assert "the config greys can't be read: Is a directory" in refused("plan", "greys")
    (here / "two.yaml").write_text("model: fake:grey\ndata: greys\nlenses: [profile, profile]\n")
    assert "a lens is listed twice (profile, profile); make two runs of it" in refused("run", "two.yaml", "--levels", "3")


@pytest.mark.parametrize("command", ["report", "summary", "rows"])
def test_a_folder_that_holds_no_run(command: str, here: Path, refused: Call) -> None:
    assert "nowhere is not the folder of a brinell run: it has no manifest.json" in refused(command, "nowhere")
    assert "greys is not the folder of a brinell run" in refused(command, "greys")
    for text in ("{}", "[]", "no json"):
        (here / "greys" / "manifest.json").write_text(text)
        assert "the manifest.json in greys is not that of a brinell run" in refused(command, "greys")


def test_queries_that_fail(ran: Path, refused: Call) -> None:
    for query, message in {
        "selec 1": "the query failed: Parser Error: syntax error",
        "select * from row": "the query failed: Catalog Error: Table with name row does not exist",
        "select image::int from rows": "the query failed: Conversion Error: Could not convert",
        "": "the query returns nothing; start it with select",
    }.items():
        line = refused("rows", "first", query)
        assert message in line
    assert 'Cannot open file "no/x.csv"' in refused("rows", "first", "select 1", "--csv", "no/x.csv")
    assert "Invalid value for '--threshold'" in refused("summary", "first", "--threshold", "50")


def test_a_run_without_rows_says_so(ran: Path, refused: Call) -> None:
    for file in (ran / "first" / "rows").rglob("*.parquet"):
        file.unlink()
    for command in ("report", "summary"):
        assert "has no rows yet; rerun its command to finish it" in refused(command, "first")


def test_a_folder_that_can_t_be_written_to(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "file").write_text("")
    with pytest.raises(SystemExit) as left:
        main(run("--out", "file/run"))
    assert left.value.code == 2
    assert capsys.readouterr().err.splitlines() == [
        f"error: can't write to file/run: {here}/file is not a folder; choose another one with --out"
    ]


def test_a_lens_is_listed_once(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("twice.yaml").write_text("model: fake:grey\ndata: greys\nlenses: [profile, {name: profile, levels: 3}]\n")
    with pytest.raises(SystemExit):
        main(["run", "twice.yaml"])
    assert "error: a lens is listed twice (profile, profile); make two runs of it" in capsys.readouterr().err


@pytest.mark.parametrize("words", [["--debug", "ls", "nothing"], ["ls", "nothing", "--debug"]])
def test_debug_prints_a_traceback(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(words)
    printed = capsys.readouterr().err
    assert printed.startswith("Traceback")
    assert printed.splitlines()[-1].startswith("error: unknown kind 'nothing'")


def test_as_a_process() -> None:
    line = [sys.executable, "-m", "brinell", "ls", "nothing"]
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: unknown kind 'nothing'; known: lenses") and done.stderr.count("\n") == 1
