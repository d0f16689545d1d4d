"""Presets: options with a name, laid under what is given."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import pytest

import brinell
from brinell.cli.main import main
from brinell.config.lens import LensOptions
from brinell.errors import ConfigError, UnknownName
from brinell.lenses.lens import LENSES
from brinell.run_config import RunConfig, load_config
from conftest import PLAIN
from reference import is_built_in

OURS = [lens for lens in LENSES.values() if lens.package.startswith("brinell.")]
EVERY = [(lens.name, preset) for lens in OURS for preset in lens.options.known_presets()]
PAPERS = {
    "profile": "swingler2022",
    "knob": "dsn2020",
    "geometry": "manifool2018",
    "fragility": "fragile2019",
    "highlights": "highlights2023",
}


def config(**content: Any) -> RunConfig:
    return load_config({"model": "fake:grey", "data": "photos", **content})


def options(lens: str, preset: str, **given: Any) -> Any:
    return config(lens={"name": lens, "preset": preset, **given}).lenses[0]


@pytest.mark.parametrize(("lens", "preset"), EVERY)
def test_presets_are_valid_options_with_a_description(lens: str, preset: str) -> None:
    found, known = options(lens, preset), LENSES[lens].options.known_presets()[preset]
    assert found.preset == preset and known.description.endswith(".")
    for key, value in known.options.items():
        assert getattr(found, key) == value, key
    assert LENSES[lens].method.changes(found)


def test_every_lens_has_quick_standard_and_full_and_the_paper_s() -> None:
    for lens in OURS:
        names = list(lens.options.known_presets())
        assert names[:3] == ["quick", "standard", "full"]
        assert PAPERS.get(lens.name, names[-1]) in names
        assert options(lens.name, "standard") == config(lens=lens.name).lenses[0]


@pytest.mark.parametrize("lens", ["profile", "knob"])
def test_a_paper_s_preset_has_the_paper_s_variants(lens: str) -> None:
    theirs = {"profile": ("published", "sign"), "knob": ("dsn2020",)}[lens]
    found: Any = LENSES[lens].method.changes(options(lens, PAPERS[lens]))
    changes = [change for change in found if is_built_in(change)]
    assert {change.variant for change in changes} == set(theirs)
    assert len(changes) == 15


def test_quick_costs_less_than_standard() -> None:
    for lens in OURS:
        count, image = LENSES[lens.name].method.trials, (375, 500)

        def trials(preset: str, lens: Any = lens, count: Any = count, image: Any = image) -> int:
            found = options(lens.name, preset)
            return sum(count(found, change, image, (224, 224)) for change in lens.method.changes(found))

        if lens.name != "photographs":
            assert trials("quick") <= min(450, trials("standard") / 3) and trials("standard") <= trials("full")


def test_given_options_win() -> None:
    found = options("fragility", "quick", stride=64)
    assert (found.stride, found.sizes) == (64, (0.4,))
    assert options("geometry", "quick", methods=["grid"]).methods == ("grid",)


def test_a_preset_for_the_run_goes_to_every_lens_that_has_it() -> None:
    lenses: list[Any] = ["profile", {"name": "knob", "preset": "full"}, {"name": "highlights", "cells": 4}]
    found = config(lenses=lenses, preset="quick").lenses
    assert [lens.preset for lens in found] == ["quick", "full", "quick"]
    assert found[2].model_dump()["cells"] == 4
    named = config(lenses=["profile", "knob"], preset="dsn2020").lenses
    assert [lens.preset for lens in named] == ["standard", "dsn2020"]
    assert config(preset="quick").lenses[0].preset == "quick", "of the default lens"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"preset": "quik"}, "there is no preset 'quik'; did you mean quick?"),
        ({"lens": {"name": "knob", "preset": "dsn2021"}}, "the knob lens has no preset 'dsn2021'; did you mean dsn2020?"),
        (
            {"preset": "dsn2020"},
            "dsn2020 is a preset of the knob lens, and the run has profile; add --lens knob",
        ),
        ({"preset": 3}, "expected the name of a preset (see `brinell ls presets`), got 3"),
    ],
)
def test_a_preset_that_no_lens_has_is_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        config(**given)
    assert str(refused.value) == message


def test_a_preset_is_its_options() -> None:
    """The same options under another name are the same run."""
    named = config(lens={"name": "fragility", "preset": "quick"})
    given = config(lens={"name": "fragility", "sizes": [0.4], "stride": 0.25})
    assert named.identity() == given.identity() and named.folder() == given.folder()


def test_a_lens_without_presets_has_the_default_one() -> None:
    class Own(LensOptions):
        name: Literal["own"] = "own"

    assert list(Own.known_presets()) == ["standard"] and Own().preset == "standard"
    with pytest.raises(UnknownName, match="the own lens has no preset 'quick'; known: standard"):
        Own(preset="quick")


@pytest.mark.parametrize(
    "name", ["cifar-profile", "cifar-knob-exact", "cifar-fragility", "cifar-geometry", "cifar-highlights"]
)
def test_stored_runs_replay_the_variants_of_their_rows(name: str) -> None:
    """They were made when a name alone meant another variant, and before presets."""
    run = brinell.Run(Path(__file__).parent / "golden" / "runs" / name)
    for lens, stored in run.lenses.items():
        given = LENSES[lens].options.model_validate(stored)
        for (operator,) in run.query("select distinct operator from rows where lens = $lens", {"lens": lens}):
            if not operator.startswith("minimal:"):
                assert LENSES[lens].method.replay(given, operator, (32, 32)).id == operator


# ---- from the command line and from Python ----

RUN = ["run", "--model", "fake:grey:0.25", "--data", "greys", "--runtime", "torch", "--out", "first"]


def test_runs_store_the_name_and_the_options(greys: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(greys.parent)
    (greys.parent / "run.yaml").write_text("lens: {name: profile, preset: full, operators: [fade_black]}")
    main(["run", "run.yaml", *RUN[1:], "--preset", "swingler2022", "--levels", "2"])
    run = brinell.Run("first")
    (lens,) = run.source["lenses"]
    assert (lens["preset"], lens["levels"], lens["operators"]) == ("swingler2022", 2, ["fade_black"])
    assert "preset" not in run.config["lenses"][0] and run.config["lenses"][0]["variant"] == "published"


def test_presets_from_python(greys: Path, tmp_path: Path) -> None:
    quick = {"operators": ["fade_black"], "levels": 2}
    run = brinell.run(
        "fake:grey",
        greys,
        lens={"name": "profile", **quick},
        preset="quick",
        out=tmp_path / "run",
        execution=PLAIN,
        quiet=True,
    )
    assert run.source["lenses"][0]["preset"] == "quick" and run.source["lenses"][0]["operators"] == ["fade_black"]


def test_the_command_line_lists_presets(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    main(["ls", "presets"])
    listed = capsys.readouterr().out
    assert all(preset in listed for _, preset in EVERY)
    main(["run", "--help"])
    assert "--preset" in capsys.readouterr().out


def test_an_unknown_preset_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main([*RUN, "--preset", "quik"])
    assert capsys.readouterr().err == "error: there is no preset 'quik'; did you mean quick?\n"
