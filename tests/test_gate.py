"""Rules about one run: what they limit, how intervals decide, and where the result is shown."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
import yaml
from PIL import Image

import brinell
from brinell.cli.main import main
from brinell.comparison.measures import all_figures
from brinell.comparison.rules import Gate, read_gate
from brinell.errors import ConfigError, RunError, UnknownName
from brinell.lenses.knob.limits import _first_reaching
from brinell.lenses.lens import LENSES
from brinell.lenses.profile.limits import accuracy_at
from brinell.lenses.profile.robustness import ERROR_MEASURES
from brinell.runs.statistics import proportion
from conftest import PLAIN

DOCS = Path(__file__).parents[1] / "docs"
LENS = [
    {"name": "profile", "operators": ["fade_black", "fade_white", "jpeg"], "levels": 12},
    {"name": "knob", "operators": ["brightness", "contrast"], "points": 60},
]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Forty images of known mean grey."""
    folder = tmp_path_factory.mktemp("gate") / "greys" / "light"
    folder.mkdir(parents=True)
    noise = np.random.default_rng(0)
    for index in range(40):
        values = 100 + 3 * index + noise.integers(-20, 21, (20, 24, 3))
        Image.fromarray(np.clip(values, 0, 255).astype(np.uint8)).save(folder / f"{index:02d}.png")
    return folder.parent


@pytest.fixture(scope="module")
def run(data: Path) -> brinell.Run:
    """Two models by two lenses; a lower threshold stands more darkness."""
    models = ["fake:grey:0.35?name=soft", "fake:grey:0.2?name=hard"]
    return brinell.run(models, data, lens=LENS, out=data.parent / "run", execution=PLAIN, quiet=True)


def check(run: brinell.Run, **rule: Any) -> list[Any]:
    gate = {key: rule.pop(key) for key in ("require",) if key in rule}
    return list(brinell.gate(run, {"rules": [rule], **gate}, store=False).checks)


# ---- figures ----


def test_figures_are_those_of_the_summary(run: brinell.Run) -> None:
    profile, knob = run.summary("profile"), run.summary("knob")
    for one in check(run, measure="area", min=0):
        assert vars(one.reading.value) == pytest.approx(vars(profile.areas[one.subject, one.reading.operator]))
    for one in check(run, measure="area", operators="average", min=0):
        assert vars(one.reading.value) == pytest.approx(vars(profile.average_areas[one.subject]))
    for one in check(run, measure="accuracy", levels=[3, 7], min=0):
        point = profile.curves[one.subject, one.reading.operator][one.reading.level]
        assert one.reading.value == point.accuracy and one.reading.images == 40
    for one in check(run, measure="accuracy", operators="average", levels=5, min=0):
        assert vars(one.reading.value) == pytest.approx(vars(profile.averages[one.subject][5]["accuracy"]))
    for measure, attribute in (("robustness", "robustness"), ("fooled", "fooled")):
        for one in check(run, measure=measure, max="99 %" if measure == "fooled" else 1e9):
            expected = getattr(knob.hardness[one.subject, one.reading.operator], attribute)
            assert vars(one.reading.value) == pytest.approx(vars(expected), nan_ok=True)
    (clean,) = check(run, measure="clean", models="hard", min=0)
    assert clean.reading.value == proportion(40, 40) and clean.subject == "hard"


def test_every_figure_can_be_limited(run: brinell.Run) -> None:
    """A registered figure is a tested one: its readings have intervals around their values."""
    for name, figure in all_figures().items():
        if figure.lens not in (None, "profile", "knob") or figure in ERROR_MEASURES or name == "iou":
            continue
        rule = {"measure": name, "max": 1e9, **({"levels": 2} if figure.by_level else {})}
        checks = check(run, **rule)
        assert {one.subject for one in checks} == {"soft", "hard"}, name
        for one in checks:
            value = one.reading.value
            assert math.isnan(value.value) or not (value.low > value.value + 1e-9 or value.high < value.value - 1e-9), name


def test_a_figure_that_no_row_has_is_refused_by_name(run: brinell.Run) -> None:
    with pytest.raises(UnknownName, match=r"a rule is about iou .*of segmenters.*which no row of .* has; drop the rule"):
        check(run, measure="iou", min=50)


def test_accuracy_at_an_amount_is_that_of_the_level_which_reaches_it(run: brinell.Run) -> None:
    curves = run.summary("profile").curves
    for operator, falling in (("fade_black", False), ("jpeg", True)):
        points = next(points for (model, name), points in curves.items() if model == "soft" and name.startswith(operator))
        amount = points[5].amount + (0.25 if falling else -0.25)  # between two levels, or at one
        (one,) = check(run, measure="accuracy", operators=operator, models="soft", amount=amount, min=0)
        assert one.reading.value == points[5].accuracy
        (same,) = check(run, measure="accuracy", operators=operator, models="soft", amount=points[5].amount, min=0)
        assert same.reading.value == points[5].accuracy
        sql = accuracy_at(run, amount).replace("correct::int", "level")  # JPEG doesn't change the answers
        assert run.rows(f"select distinct value from ({sql}) where operator like '{operator}%'").fetchall() == [(5,)]
    with pytest.raises(ConfigError, match=r"has the amount 999, but the run has fade_black:\w+ from 1 to 12"):
        check(run, measure="accuracy", operators="fade_black", amount=999, min=0)


def test_the_failure_level_is_where_accuracy_drops(run: brinell.Run) -> None:
    findings = run.summary("profile")
    for threshold in (None, 90):
        rule = {} if threshold is None else {"threshold": threshold}
        for one in check(run, measure="failure_level", min=0, **rule):
            level = findings.failure_point(one.subject, one.reading.operator, (threshold or 50) / 100).level
            assert one.reading.value.value == (math.inf if level is None else level)
    (dark,) = check(run, measure="failure_level", operators="fade_black", models="soft", min=1)
    assert dark.reading.value.low <= dark.reading.value.value <= dark.reading.value.high
    (light,) = check(run, measure="failure_level", operators="fade_white", models="soft", min=12)
    assert light.state == "passed" and light.shown.startswith("never") and light.to_json()["value"] is None


def test_breaks_up_to_an_amount_are_counted_from_rows(run: brinell.Run) -> None:
    rows = run.rows(
        """select image, bool_or(status = 'broken' and amount >= 0.6 and amount <= 1) from rows where model = 'soft'
           and operator like 'brightness:%' and lens = 'knob' and status in ('broken', 'survived') group by all"""
    ).fetchall()
    (one,) = check(run, measure="broken", operators="brightness", models="soft", amount=0.6, max="99 %")
    assert one.reading.value == proportion(sum(broken for _, broken in rows), len(rows)) and 0 < one.reading.value.value < 1
    amounts = run.rows("select abs(amount) from rows where operator like 'contrast:%' and status = 'broken'").fetchall()
    for (amount,) in amounts[:2]:
        (some,) = check(run, measure="broken", operators="contrast", models="soft", amount=amount, max="99 %")
        assert some.reading.value.value > 0


def test_the_failure_amount_is_the_summary_s_median(run: brinell.Run) -> None:
    hardness = run.summary("knob").hardness
    found = check(run, measure="failure_amount", operators="brightness", models="soft", min=0)
    medians = hardness["soft", found[0].reading.operator].median
    assert {one.reading.detail for one in found} == set(medians) and len(medians) == 2
    for one in found:
        median = medians[one.reading.detail]
        expected = math.inf if median is None else abs(median - 1)
        assert one.reading.value.value == pytest.approx(expected)
        assert one.reading.unit == "from 1×"
    earlier = check(run, measure="failure_amount", operators="brightness", models="soft", threshold=10, min=0)
    assert all(few.reading.value.value <= half.reading.value.value for few, half in zip(earlier, found, strict=True))


def test_the_interval_of_a_failure_amount_covers_the_truth() -> None:
    """The median of 60 draws from a known distribution, one in three of which never breaks beyond 1."""
    noise, covered = np.random.default_rng(1), 0
    for _ in range(400):
        draws = np.sort(noise.uniform(0, 1.5, 60))
        value = _first_reaching([one for one in draws.tolist() if one <= 1], 60, 0.5)
        assert value.low <= value.value <= value.high
        covered += value.low <= 0.75 <= value.high
    assert 0.92 <= covered / 400 <= 0.99


# ---- decisions ----


def test_an_interval_or_the_estimate_decides(run: brinell.Run) -> None:
    (one,) = check(run, measure="area", operators="fade_black", models="soft", min=0)
    value = one.reading.value
    between = 100 * (value.low + value.value) / 2

    def state(**rule: Any) -> str:
        (only,) = check(run, measure="area", operators="fade_black", models="soft", **rule)
        return only.state

    assert state(min=between) == "failed" and state(min=between, require="interval") == "failed"
    assert state(min=100 * value.low - 0.01) == "passed"
    result = brinell.gate(
        run,
        {
            "require": "estimate",
            "rules": [{"measure": "area", "operators": "fade_black", "models": "soft", "min": between}],
        },
        store=False,
    )
    assert result.passed, "the default of all rules"
    above = 100 * (value.value + value.high) / 2
    assert state(max=above) == "failed" and state(max=100 * value.high + 0.01) == "passed"
    assert state(min=1.5, max=100 * value.high + 0.01) == "passed"
    (told,) = check(run, measure="area", operators="fade_black", models="soft", min=between)
    assert "(the estimate meets it, the interval doesn't), expected at least" in told.summary
    assert (
        not result.hint and "measure more images" in brinell.gate(run, {"rules": [told.rule.to_json()]}, store=False).hint
    )
    (fails,) = check(run, measure="area", operators="fade_black", models="soft", min=99)
    assert fails.summary.endswith("expected at least 99 %")


def test_a_limit_at_the_figure_is_met(data: Path, run: brinell.Run) -> None:
    gate = {"require": "estimate", "rules": [{"measure": "clean", "min": 100}]}
    assert brinell.gate(run, gate, store=False).passed, "all of 40 images"


def test_too_few_images(data: Path, tmp_path: Path) -> None:
    one = brinell.run(
        "fake:grey:0.2",
        {"source": str(data), "limit": 1},
        lens=[{"name": "profile", "operators": ["fade_black"], "levels": 3}, {**LENS[1], "operators": ["contrast"]}],
        out=tmp_path / "run",
        execution=PLAIN,
        quiet=True,
    )
    (area,) = check(one, measure="severity", min=1.5)
    assert area.state in ("failed", "passed")
    (never,) = check(one, measure="robustness", min=0)  # the image survives, so there is no breaking distance
    assert never.state == ("untested" if math.isnan(never.reading.value.value) else "failed")
    if never.state == "failed":
        assert "too few images for an interval" in never.summary


# ---- refusals, before rows are read ----

REFUSED = {
    "{measure: aera, min: 50}": "there is no measure 'aera'; did you mean area",
    "{measure: area}": "a rule about area needs a limit: min or max for one run, or drop between two runs",
    "{measure: area, min: 50, drop: 2}": "needs a limit: min or max for one run, or drop",
    "{measure: area, min: 0.5}": "min is a percentage; write 50 or '50 %' instead of 0.5",
    "{measure: area, min: fifty}": "rules.0.min: input should be a valid number",
    "{measure: area, min: 100}": "no interval is entirely at least 100 %.*add require: estimate",
    "{measure: area, min: 80, max: 60}": "has min 80 above max 60",
    "{measure: area, min: 50, levels: 3}": "area is one figure over all levels; leave levels out",
    "{measure: area, min: 50, amount: 3}": "area is not measured by amounts",
    "{measure: area, min: 50, alpha: 0.1}": "alpha belongs to a drop between two runs; a limit has require",
    "{measure: area, drop: 1, require: estimate}": "require belongs to a limit",
    "{measure: area, drop: 1}": "a rule about area has a drop, which needs two runs: brinell compare OLD NEW --gate FILE",
    "{measure: area, min: 50, threshold: 20}": "area has no threshold; only failure points have one",
    "{measure: accuracy, min: 50}": "a limit on accuracy needs levels .* or an amount",
    "{measure: accuracy, min: 50, levels: 3, amount: 2}": "has levels and an amount; give one",
    "{measure: accuracy, min: 50, levels: 13}": "has level 13, but .* has levels 0 to 12",
    "{measure: area, min: 50, operator: all}": "rules.0.operator is not an option; did you mean operators",
    "{measure: area, min: 50, operators: fade_blak}": "names the operator 'fade_blak'; did you mean fade_black",
    "{measure: area, min: 50, operators: contrast}": "names 'contrast', which has none in this run",
    "{measure: area, min: 50, models: sofd}": "names the model 'sofd'; did you mean soft",
    "{measure: glare, min: 50}": "is about glare, which the highlights lens measures, but .* has the lens profile, knob; "
    "run it with --lens highlights, or drop the rule",
    "{measure: failure_level, drop: 1}": "failure_level is not measured image by image and can't be compared",
}


@pytest.mark.parametrize("rule", REFUSED)
def test_rules_that_can_t_be_checked(
    rule: str, run: brinell.Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "rules.yaml").write_text(f"rules: [{rule}]")
    with pytest.raises(SystemExit) as stopped:
        main(["gate", run.folder, "--rules", str(tmp_path / "rules.yaml")])
    told = capsys.readouterr().err
    assert stopped.value.code == 2 and told.startswith("error: ") and told.count("\n") == 1
    assert re.search(REFUSED[rule], told), told


def test_names_are_checked_before_rows_are_read(run: brinell.Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def fail(self: object, *arguments: object) -> None:
        raise AssertionError("rows are read")

    monkeypatch.setattr(brinell.Run, "query", fail)
    for rule in ({"operators": "fade_blak"}, {"models": "sofd"}, {"measure": "glare"}, {"measure": "aera"}):
        with pytest.raises(ConfigError):
            brinell.gate(
                brinell.Run(run.folder), {"rules": [{"measure": "area", "min": 2}, {"measure": "area", "min": 2, **rule}]}
            )
    with pytest.raises(ConfigError, match=r"the rules file .* can't be read"):
        brinell.gate(run, tmp_path / "none.yaml")


def test_an_unfinished_run_is_refused(run: brinell.Run) -> None:
    run.store.write_manifest({**run.manifest, "finished": False})
    try:
        with pytest.raises(RunError, match="is not finished; rerun its command to finish it"):
            brinell.gate(run.folder, {"rules": [{"measure": "area", "min": 2}]})
    finally:
        run.store.write_manifest(run.manifest)


# ---- where the result is shown ----

RULES = """
rules:
  - {measure: clean, min: 90}
  - {measure: area, operators: fade_black, min: 99, name: darkness}
"""


@pytest.fixture
def rules(tmp_path: Path) -> Path:
    (tmp_path / "rules.yaml").write_text(RULES)
    return tmp_path / "rules.yaml"


def test_the_command(run: brinell.Run, rules: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = ["--junit", str(rules.with_suffix(".xml")), "--markdown", str(rules.with_suffix(".md"))]
    with pytest.raises(SystemExit) as stopped:
        main(["gate", run.folder, "--rules", str(rules), *files])
    told = capsys.readouterr().out
    assert stopped.value.code == 1
    assert "passed: share of clean images that are right: at least 90 %" in told and "failed: darkness" in told
    assert "soft, fade to black: " in told and told.count("gate: 1 of 2 rules failed") == 1
    root = ElementTree.parse(rules.with_suffix(".xml")).getroot()
    assert [(suite.get("name"), suite.get("tests"), suite.get("failures")) for suite in root] == [
        ("soft", "2", "1"),
        ("hard", "2", "1"),
    ]
    failure = next(root.iter("failure"))
    assert failure.get("type") == "limit" and "expected at least 99 %" in str(failure.get("message"))
    assert rules.with_suffix(".md").read_text().startswith("# Gate: failed")

    rules.write_text("rules: [{measure: clean, min: 90}]")
    main(["gate", run.folder, "--rules", str(rules)])  # no exit code but 0
    assert "gate: the rule passed" in capsys.readouterr().out


def test_json(run: brinell.Run, rules: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["gate", run.folder, "--rules", str(rules), "--json"])
    told = json.loads(capsys.readouterr().out)
    assert (told["version"], told["passed"], len(told["checks"])) == (1, False, 4)
    first = told["checks"][0]
    assert (first["measure"], first["min"], first["require"], first["unit"]) == ("clean", 90, "interval", "share")
    assert first["low"] < first["value"] == 1 and first["state"] == "passed"


def test_a_result_shows_itself(run: brinell.Run, rules: Path) -> None:
    result = brinell.gate(run, rules, store=False)
    shown = result._repr_html_()
    assert shown.count("<tr>") == 1 + 2 and ">failed</td>" in shown and ">passed</td>" in shown
    assert "<p>Gate: 1 of 2 rules failed.</p>" in shown and "Gate: 1 of 2 rules failed." in str(result)


def test_the_report_begins_with_the_gate(run: brinell.Run, rules: Path) -> None:
    def page(given: Any = None) -> str:
        return Path(run.report(given)).read_text(encoding="utf-8").partition('<div class="cards">')[0]

    run.store.remove("gate.json")
    assert "Gate failed" not in page()
    first = page(rules)
    assert "Gate failed: 1 of 2 rules failed" in first and "✗ failed" in first and "✓ passed" in first
    assert "Gate failed" not in page(), "rules of a report are not stored"
    brinell.gate(run, rules, store=False)
    assert "Gate failed" not in page()
    brinell.gate(run, rules)
    assert "darkness" in page() and "Gate failed" in page()
    brinell.gate(run, {"rules": [{"measure": "clean", "min": "0.5 %"}]})
    assert "Gate passed: the rule passed" in page(), "stored rules can be read again"
    run.store.remove("gate.json")


def test_stored_rules_are_the_given_ones() -> None:
    content = {
        "require": "estimate",
        "rules": [
            {"measure": "accuracy", "operators": ["jpeg"], "levels": [3], "min": "0.5 %"},
            {"measure": "failure_amount", "threshold": 20, "min": 0.5, "models": "a", "name": "half"},
            {"measure": "area", "drop": 0.5, "significant": False, "alpha": 0.1},
        ],
    }
    gate = read_gate(content)
    assert read_gate(json.loads(json.dumps(gate.to_json()))) == gate


def test_limits_and_drops_in_one_file(run: brinell.Run, data: Path, tmp_path: Path) -> None:
    """In a comparison limits are checked on the new model."""
    old, new = (
        brinell.run(f"fake:grey:{one}?name=grey", data, lens=LENS[0], out=tmp_path / one, execution=PLAIN, quiet=True)
        for one in ("0.2", "0.35")
    )
    both = {"rules": [{"measure": "area", "drop": 1}, {"measure": "area", "operators": "fade_black", "min": 99}]}
    result = brinell.gate(brinell.compare(old, new), both)
    assert {check.subject for check in result.checks if check.rule.drop is None} == {"grey"}
    (limit,) = (check for check in result.checks if check.rule.drop is None)
    (alone,) = brinell.gate(new, {"rules": [both["rules"][1]]}, store=False).checks
    assert vars(limit.reading.value) == pytest.approx(vars(alone.reading.value)) and limit.state == "failed"
    assert [one.state for one in result.by_rule] == ["failed", "failed"]
    levels = {"rules": [{"measure": "accuracy", "levels": [0, 12], "drop": 1, "models": "grey"}]}
    assert {check.delta.level for check in brinell.gate(brinell.compare(old, new), levels).checks} == {0, 12}


def test_the_guide_is_true(run: brinell.Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its rules run as they are written, and its options and figures are all named."""
    text = (DOCS / "gate.md").read_text()
    (rules,) = re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)
    (tmp_path / "rules.yaml").write_text(rules)
    lenses = [
        {"name": "profile", "operators": ["white_fog", "jpeg", "noise"], "levels": 24},
        {"name": "knob", "operators": ["rotation", "fog"], "points": 20},
    ]
    few = {"source": str(Path(run.source["data"]["source"])), "limit": 12}
    brinell.run("fake:grey:0.2", few, lens=lenses, out=tmp_path / "first", execution=PLAIN, quiet=True)
    with pytest.raises(SystemExit) as stopped:
        main(["gate", str(tmp_path / "first"), "--rules", str(tmp_path / "rules.yaml")])
    told = capsys.readouterr().out
    assert stopped.value.code == 1, told
    gate = read_gate(yaml.safe_load(rules))
    assert told.count("passed: ") + told.count("failed: ") + told.count("untested: ") == len(gate.rules)
    ours = [
        name for name, one in all_figures().items() if one.lens is None or LENSES[one.lens].package.startswith("brinell.")
    ]
    assert [name for name in ours if f"`{name}`" not in text] == []
    for options in (Gate, *{type(rule) for rule in gate.rules}):
        assert [key for key in options.model_fields if f"`{key}`" not in text] == []
