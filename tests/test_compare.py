"""Runs compared, gated and ranked: on known models, on what can't be paired, and on real networks."""

from __future__ import annotations

import importlib.util
import json
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
import torch
import yaml
from PIL import Image
from torch import nn

import brinell
from brinell.cli.main import main
from brinell.comparison.compare import Comparison
from brinell.comparison.measures import all_measures, image_values
from brinell.comparison.page import comparison_html, comparison_markdown, gate_junit, write_comparison
from brinell.comparison.rules import Gate, Rule
from brinell.errors import ConfigError, RunError
from brinell.lenses.lens import LENSES
from brinell.lenses.profile.robustness import ERROR_MEASURES
from brinell.runs.statistics import Estimate
from brinell.validation import validate

PROFILE = {"name": "profile", "operators": ["fade_black", "fade_white", "boxes"], "levels": 12}
KNOB = {"name": "knob", "operators": ["brightness"], "points": 60}
QUICK = brinell.Execution(runtime="torch", batch=40, shard=40)
SOFT, HARD = "fake:grey:0.35?name=grey", "fake:grey:0.2?name=grey"  # a lower threshold stands more darkness


def made(data: Any, out: Path, model: Any = HARD, **changed: Any) -> brinell.Run:
    given = {"lens": PROFILE, "execution": QUICK, "quiet": True, **changed}
    return brinell.run(model, data, out=out, **given)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Forty images of known mean grey."""
    folder = tmp_path_factory.mktemp("compare") / "greys" / "light"
    folder.mkdir(parents=True)
    noise = np.random.default_rng(0)
    for index in range(40):
        values = 100 + 3 * index + noise.integers(-20, 21, (20, 24, 3))
        Image.fromarray(np.clip(values, 0, 255).astype(np.uint8)).save(folder / f"{index:02d}.png")
    return folder.parent


@pytest.fixture(scope="module")
def runs(data: Path) -> dict[str, brinell.Run]:
    out = data.parent
    return {
        "soft": made(data, out / "soft", SOFT),
        "hard": made(data, out / "hard"),
        "two": made(data, out / "two", ["fake:grey:0.35?name=soft", "fake:grey:0.2?name=hard"]),
        "soft knob": made(data, out / "soft-knob", SOFT, lens=KNOB),
        "hard knob": made(data, out / "hard-knob", lens=KNOB),
    }


@pytest.fixture(scope="module")
def fallen(runs: dict[str, brinell.Run]) -> Comparison:
    """From the harder model to the softer one."""
    return brinell.compare(runs["hard"], runs["soft"])


def line(found: Comparison, measure: str, operator: str, pair: int = 0, level: int | None = None) -> Any:
    (one,) = (
        each
        for each in found.deltas
        if (each.pair, each.measure.name, each.operator.partition(":")[0], each.level) == (pair, measure, operator, level)
    )
    return one


# ---- figures ----


def test_areas_are_the_summary_s(fallen: Comparison, runs: dict[str, brinell.Run]) -> None:
    for name, side in (("hard", "old"), ("soft", "new")):
        for (_, operator), area in runs[name].summary().areas.items():
            assert getattr(line(fallen, "area", operator.partition(":")[0]), side) == pytest.approx(area.value)
    dark = line(fallen, "area", "fade_black")
    assert dark.verdict() == "worse" and dark.images == 40 and dark.better == 0
    assert dark.effect.value == pytest.approx(100 * (dark.new - dark.old)) and dark.effect.high < 0
    white = line(fallen, "area", "fade_white")
    assert white.verdict() == "no clear difference" and white.effect.value == 0


def test_the_average_is_within_images(fallen: Comparison) -> None:
    each = [line(fallen, "area", name).effect.value for name in ("fade_black", "fade_white", "boxes")]
    assert line(fallen, "area", "average").effect.value == pytest.approx(sum(each) / 3)


def test_levels_and_failure_points_are_the_profile_s(fallen: Comparison, runs: dict[str, brinell.Run]) -> None:
    table, overall = fallen.tables[0]
    assert (table.name, overall.name) == ("failure_points", "overall")
    assert len(table.records) == 3 * 3 and len(table.rows) == 3
    for name, side in (("hard", "old"), ("soft", "new")):
        found = runs[name].summary()
        for (model, operator), points in found.curves.items():
            plain = operator.partition(":")[0]
            ours = [getattr(line(fallen, "accuracy", plain, level=level), side) for level in range(13)]
            assert ours == pytest.approx([point.accuracy.value for point in points])
            for point in (record for record in table.records if record["operator"] == operator):
                assert point[side] == found.failure_point(model, operator, point["threshold"]).level


def test_the_clean_image_counts_as_one_test(fallen: Comparison) -> None:
    """Level 0 is the same image under all three operators, so there are 3 × 12 + 1 tests, for comparisons and gates."""
    deltas = fallen.select(0, "accuracy")
    (clean,) = {(delta.p, delta.adjusted) for delta in deltas if delta.level == 0}
    least = min(deltas, key=lambda delta: delta.p)
    assert len(deltas) == 3 * 13 and least.level
    assert least.adjusted == pytest.approx(37 * least.p) and clean[1] <= min(1.0, 37 * clean[0])
    checks = brinell.gate(fallen, {"rules": [{"measure": "accuracy", "drop": 0}]}).checks
    assert min(check.adjusted for check in checks) == pytest.approx(37 * least.p)


def test_knobs_keep_survivors_apart(runs: dict[str, brinell.Run]) -> None:
    """Distances are paired where both broke; who survives counts as broken or not, and as the whole range."""
    found = brinell.compare(runs["hard knob"], runs["soft knob"])
    distances, ranges = [], []
    for name in ("hard knob", "soft knob"):
        rows = runs[name].rows("select image, status, mse, abs(severity), smallest from rows").fetchall()
        distances.append({image: mse for image, status, mse, _, smallest in rows if smallest and status == "broken"})
        least: dict[str, float] = {}
        for image, status, _, severity, _ in rows:
            if status in ("broken", "survived"):
                least[image] = min(least.get(image, 1.0), severity if status == "broken" else 1.0)
        ranges.append(least)
    both = [(distances[0][image], distances[1][image]) for image in distances[0] if image in distances[1]]
    ours = line(found, "robustness", "brightness")
    assert ours.images == len(both) and ours.images + ours.unpaired[0] == len(distances[0])
    ratio = sum(new for _, new in both) / sum(old for old, _ in both)
    assert ours.effect.value == pytest.approx(100 * (ratio - 1)) and ours.verdict() == "worse"
    severity = line(found, "severity", "brightness")
    assert severity.old == pytest.approx(np.mean(list(ranges[0].values())))
    assert severity.new == pytest.approx(np.mean(list(ranges[1].values())))


def test_fragile_windows_are_compared(data: Path, tmp_path: Path) -> None:
    """Its shares are the summary's; windows whose grey lies at the threshold are fragile."""
    lens = {"name": "fragility", "sizes": [0.5]}
    few = {"source": str(data), "limit": 12}
    before, after = (made(few, tmp_path / name, f"fake:grey:{name}?name=grey", lens=lens) for name in ("0.2", "0.45"))
    found = brinell.compare(before, after)
    for kind in ("shift", "shrink"):
        ours = line(found, f"fragile_{kind}", "windows")
        for run, value in ((before, ours.old), (after, ours.new)):
            theirs = run.summary().share("grey", ours.operator, f"loose {kind}")
            assert value == pytest.approx(theirs.share.value) and theirs.images == ours.images == 12
        assert ours.new > ours.old == 0


OTHERS: dict[str, tuple[dict[str, Any], str, str]] = {
    "glare": (
        {"name": "highlights", "operators": ["highlight"], "sigmas": [4.0, 8.0]},
        "avg(correct::int)",
        "lens = 'highlights' and level > 0",
    ),
    "random_motion": (
        {"name": "geometry", "operators": ["translation"], "methods": ["random"], "draws": 2, "radii": [1.0, 3.0]},
        "avg((status = 'broken')::int)",
        "lens = 'geometry' and draw is not null and status in ('broken', 'survived')",
    ),
}


@pytest.mark.parametrize("name", OTHERS)
def test_measures_of_other_lenses_are_means_over_their_rows(name: str, data: Path, tmp_path: Path) -> None:
    lens, figure, where = OTHERS[name]
    few = {"source": str(data), "limit": 12}
    models = ["fake:grey:0.2?name=low", "fake:grey:0.45?name=high"]
    run = made(few, tmp_path / "run", models, lens=lens)
    ours = line(brinell.compare(run), name, lens["operators"][0])
    each = f"select model, image, {figure} as own from rows where {where} group by all"
    theirs = dict(run.rows(f"select model, avg(own) from ({each}) group by all").fetchall())
    assert (ours.old, ours.new) == pytest.approx((theirs["low"], theirs["high"])) and ours.images > 0


def test_one_run_s_models_and_named_pairs(runs: dict[str, brinell.Run]) -> None:
    inside = brinell.compare(runs["two"])
    assert [(pair.old.model, pair.new.model) for pair in inside.pairs] == [("soft", "hard")]
    assert line(inside, "area", "fade_black").verdict() == "better"
    turned = brinell.compare(runs["two"], pairs=["hard=soft"])
    assert line(turned, "area", "fade_black").effect.value == -line(inside, "area", "fade_black").effect.value
    across = brinell.compare(runs["two"], runs["hard"], pairs=["hard=grey"])
    assert all(one.effect.value == 0 for one in across.deltas), "the same model in two runs"


def test_every_measure_gives_one_number_an_image(runs: dict[str, brinell.Run]) -> None:
    """A registered measure is a tested one: it can be asked of any run, and is empty where its lens was not run."""
    for run in (runs["hard"], runs["hard knob"]):
        images = list(run.image_names)
        for measure in all_measures().values():
            if measure in ERROR_MEASURES or measure.name == "iou":
                continue  # of ImageNet-C (test_corruption_errors.py) and of segmenters (test_compare_segmenters.py)
            found = image_values(run, measure, "grey", images)
            assert bool(found) == (measure.lens in (None, *run.measured)), measure.name
            assert all(values.shape == (40,) for values in found.values())


# ---- refusals ----


def relabelled(data: Path, folder: Path) -> Path:
    (folder / "other" / "dark").mkdir(parents=True)
    (folder / "other" / "light").mkdir()
    for index, file in enumerate(sorted(data.rglob("*.png"))):
        target = folder / "other" / ("dark" if index == 0 else "light") / file.name
        target.write_bytes(file.read_bytes())
    return folder / "other"


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "images": (
        {"data": {"limit": 30}},
        "10 images are only in .*, such as .*; run both on the same images; or compare the images that both have",
    ),
    "labels": ({"labels": True}, "00.png is labelled 'light' in .* and 'dark' in .*; run both with the same labels"),
    "truth": (
        {"data": {"labels": "prediction"}},
        "their labels differ, auto in .* and prediction in .*; rerun one with the other's",
    ),
    "draws": ({"seed": 1}, r"random draws differ \(seed 0 and 1\); run both with one --seed, or .* --other-draws"),
    "levels": ({"lens": {**PROFILE, "levels": 6}}, "the profile lens has levels 12 in one and 6 in the other; run both"),
    "criterion": (
        {"lens": {**PROFILE, "criterion": "top_k_misclassification(1)"}},
        "the profile lens has criterion default",
    ),
    "lens": ({"lens": KNOB}, "one has the lens profile, the other knob; run both with one --lens"),
    "select": ({"select": "correct"}, "images were selected by all and by correct; run both with one --select"),
    "operators": ({"lens": {**PROFILE, "operators": ["jpeg"]}}, "no operator in common"),
    "models": ({"model": ["fake:grey:0.3?name=a", "fake:grey:0.4?name=b"]}, "no model of the same name; .* --pair OLD=NEW"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_can_t_be_paired_is_refused(
    what: str, data: Path, runs: dict[str, brinell.Run], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    changed, reason = REFUSED[what]
    changed = dict(changed)
    source = relabelled(data, tmp_path) if changed.pop("labels", False) else data
    given = {"source": str(source), **changed.pop("data", {})}
    other = made(given, tmp_path / "run", **changed)
    with pytest.raises((RunError, ConfigError), match=reason):
        brinell.compare(runs["hard"], other)
    with pytest.raises(SystemExit) as stopped:
        main(["compare", runs["hard"].folder, other.folder])
    told = capsys.readouterr().err
    assert stopped.value.code == 2 and told.startswith("error: ") and told.count("\n") == 1


def test_what_is_common_can_be_compared(data: Path, runs: dict[str, brinell.Run], tmp_path: Path) -> None:
    fewer = made({"source": str(data), "limit": 30}, tmp_path / "fewer", lens={**PROFILE, "operators": ["fade_black"]})
    found = brinell.compare(runs["hard"], fewer, common_images=True)
    assert line(found, "area", "fade_black").images == 30 and line(found, "area", "fade_black").effect.value == 0
    assert found.pairs[0].notes == ("10 images are in one run only and left out",)
    assert any("boxes" in note for note in found.left_out)


def test_classes_in_another_order_are_the_same_labels(data: Path, runs: dict[str, brinell.Run], tmp_path: Path) -> None:
    """The dataset's numbers shift when a class comes first that no image is of."""
    other = relabelled(data, tmp_path)
    (other / "dark" / "00.png").rename(other / "light" / "00.png")
    (other / "dark" / "not-an-image.txt").touch()
    assert brinell.compare(runs["hard"], made(other, tmp_path / "run")).pairs[0].notes == ()


def test_small_mistakes_are_one_line(runs: dict[str, brinell.Run], tmp_path: Path) -> None:
    hard = runs["hard"]
    for call, told in (
        (lambda: brinell.compare(), "nothing to compare; give two runs"),
        (lambda: brinell.compare(hard), "has only one model, grey; give a second run"),
        (lambda: brinell.compare(tmp_path), "is not the folder of a brinell run"),
        (lambda: brinell.compare(hard, runs["two"], pairs=["grey=sof"]), "has no model 'sof'; did you mean soft"),
        (lambda: brinell.compare(hard, runs["two"], pairs=["grey"]), "expected a pair as OLD=NEW"),
        (lambda: brinell.leaderboard(hard), "needs two models or more"),
    ):
        with pytest.raises((ConfigError, RunError), match=told):
            call()
    manifest = hard.manifest
    hard.store.write_manifest({**manifest, "finished": False})
    try:
        with pytest.raises(RunError, match="is not finished; rerun its command to finish it"):
            brinell.compare(hard.folder, runs["soft"])
    finally:
        hard.store.write_manifest(manifest)


# ---- the gate ----

GATE = """
rules:
  - {measure: area, drop: 2}
  - {measure: clean, drop: 1}
"""


def test_a_gate_is_an_exit_code(runs: dict[str, brinell.Run], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "gate.yaml").write_text(GATE)
    files = ["--gate", str(tmp_path / "gate.yaml"), "--junit", str(tmp_path / "gate.xml")]
    files += ["--markdown", str(tmp_path / "gate.md"), "-o", str(tmp_path / "gate.html")]
    with pytest.raises(SystemExit) as stopped:
        main(["compare", runs["hard"].folder, runs["soft"].folder, *files])
    assert stopped.value.code == 1
    assert "gate: 1 of 2 rules failed" in capsys.readouterr().out
    suite = ElementTree.parse(tmp_path / "gate.xml").getroot()[0]
    assert (suite.get("tests"), suite.get("failures"), suite.get("skipped")) == ("4", "2", "0")
    failure, _ = suite.iter("failure")
    assert "points" in str(failure.get("message")) and "may not get significantly worse by more than 2 points" in str(
        failure.text
    )
    told = (tmp_path / "gate.md").read_text()
    assert told.startswith("# Gate: failed") and "4 checks of 2 rules: 2 failed, 2 passed" in told
    assert "Gate failed: 1 of 2 rules failed" in (tmp_path / "gate.html").read_text()

    main(["compare", runs["soft"].folder, runs["hard"].folder, *files])  # the other way: no exit code but 0
    assert "gate: all 2 rules passed" in capsys.readouterr().out
    assert not list(ElementTree.parse(tmp_path / "gate.xml").iter("failure"))
    assert (tmp_path / "gate.md").read_text().startswith("# Gate: passed")


def test_a_gate_s_rules(fallen: Comparison) -> None:
    drop = -line(fallen, "area", "fade_black").effect.value

    def fails(**rule: Any) -> bool:
        return bool(brinell.gate(fallen, {"rules": [{"measure": "area", "drop": 0, **rule}]}).failed)

    assert fails() and fails(operators=["fade_black"]) and fails(operators="average")
    assert not fails(operators=["fade_white"])
    assert fails(drop=drop - 0.1) and not fails(drop=drop + 0.1)
    assert not fails(alpha=1e-6), "no change is that sure"
    assert fails(alpha=1e-6, significant=False)


def test_worse_is_less_or_more_as_the_measure_says(runs: dict[str, brinell.Run]) -> None:
    there, back = (runs["hard knob"], runs["soft knob"]), (runs["soft knob"], runs["hard knob"])
    rules = {"rules": [{"measure": "robustness", "drop": 20}]}
    assert brinell.gate(brinell.compare(*there), rules).failed and not brinell.gate(brinell.compare(*back), rules).failed
    found = brinell.compare(*there)
    for effect, states in ((5.0, ["failed"]), (-5.0, ["passed"])):  # more broken images are worse
        changed = replace(line(found, "broken", "brightness"), effect=Estimate(effect, effect - 2, effect + 2), p=0.001)
        result = brinell.gate(replace(found, deltas=(changed,)), {"rules": [{"measure": "broken", "drop": 2}]})
        assert [check.state for check in result.checks] == states


def test_few_images_are_untested(data: Path, tmp_path: Path) -> None:
    few = {"source": str(data), "limit": 6}
    found = brinell.compare(made(few, tmp_path / "a"), made(few, tmp_path / "b", SOFT))
    result = brinell.gate(found, {"rules": [{"measure": "area", "drop": 0}]})
    assert {check.state for check in result.checks} == {"untested"}
    assert 'skipped="3"' in gate_junit(result)
    json.dumps(found.to_json() | result.to_json(), allow_nan=False)


BAD_GATES = {
    "rules: []": "rules: tuple should have at least 1 item",
    "rules: [{measure: aera, drop: 1}]": "there is no measure 'aera'; did you mean area",
    "rules: [{measure: area}]": "a rule about area needs a limit: min or max for one run, or drop between two runs",
    "rules: [{measure: area, drop: -1}]": "rules.0.drop: input should be greater than or equal to 0",
    "rules: [{measure: area, drop: 1, operator: all}]": "rules.0.operator is not an option; did you mean operators",
    "rules: [{measure: area, drop: 1, operators: [fade_blak]}]": "names 'fade_blak'; did you mean fade_black",
    "rules: [{measure: robustness, drop: 20}]": "a rule about robustness, but .* was compared by clean, area, accuracy",
    "[": "is not valid YAML",
}


@pytest.mark.parametrize("text", BAD_GATES)
def test_a_gate_that_can_t_be_judged(
    text: str, runs: dict[str, brinell.Run], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "gate.yaml").write_text(text)
    with pytest.raises(SystemExit) as stopped:
        main(["compare", runs["hard"].folder, runs["soft"].folder, "--gate", str(tmp_path / "gate.yaml")])
    told = capsys.readouterr().err
    assert stopped.value.code == 2 and told.count("\n") == 1
    assert re.search(BAD_GATES[text], told)


# ---- told ----


def test_json_page_and_markdown(runs: dict[str, brinell.Run], capsys: pytest.CaptureFixture[str]) -> None:
    main(["compare", runs["hard"].folder, runs["soft"].folder, "--json"])
    told = json.loads(capsys.readouterr().out)
    assert told["version"] == 1 and told["gate"] is None and set(told["tables"]) == {"failure_points", "overall"}
    assert told["measures"]["area"] == {"what": "mean accuracy over all levels", "better": "higher", "unit": "points"}
    assert {one["operator"].partition(":")[0] for one in told["deltas"] if one["verdict"] == "worse"} >= {"fade_black"}
    found = brinell.compare(runs["hard"], runs["soft"])
    page = comparison_html(found)
    assert 'id="figure-changes-0-area"' in page and 'id="figure-changes-0-accuracy"' in page and "Failure points" in page
    plain = re.sub(r"<script>.*?</script>", "", page, flags=re.DOTALL)
    assert not re.search(r"<(?:script|img|link)[^>]+(?:src|href)=", plain), "it needs nothing else"
    assert "| fade to black |" in comparison_markdown(found).lower()
    shown = found._repr_html_()
    assert "fade to black" in shown.lower() and "change [95 %]</th>" in shown
    (drawn,) = found.figure("area")._repr_mimebundle_().items()
    assert drawn[0] == "image/svg+xml" and "fade to black" in drawn[1].lower(), "a notebook loads nothing from the network"
    with pytest.raises(ConfigError, match="there is no figure of 'aria'; did you mean area"):
        found.figure("aria")


def test_files_by_their_names(fallen: Comparison, tmp_path: Path) -> None:
    result = brinell.gate(fallen, {"rules": [{"measure": "area", "drop": 2}]})
    for name, begin in (("a/b.html", "<!doctype html>"), ("b.md", "# Gate: failed"), ("b.xml", "<?xml")):
        write_comparison(fallen, str(tmp_path / name), result)
        assert (tmp_path / name).read_text().startswith(begin)
    for name, told in (
        ("b.pdf", "expected a file that ends in .html, .md or .xml"),
        ("b.xml", "give a gate with --gate"),
        ("b.md/c.md", "can't write"),
    ):
        with pytest.raises(ConfigError, match=told):
            write_comparison(fallen, tmp_path / name)


def _is_ours(lens: str) -> bool:
    return LENSES[lens].package.startswith("brinell.")


def test_the_guide_is_true() -> None:
    """Its gate can be read, and it names every measure and option."""
    text = (Path(__file__).parents[1] / "docs" / "compare.md").read_text()
    (gate,) = re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)
    assert len(validate(Gate, yaml.safe_load(gate)).rules) == 5
    ours = [name for name, measure in all_measures().items() if measure.lens is None or _is_ours(measure.lens)]
    assert [name for name in ours if f"`{name}`" not in text] == []
    limits = {"min", "max", "models", "levels", "amount", "slices", "threshold", "require"}  # explained in gate.md
    assert [key for key in Rule.model_fields if f"{key}:" not in gate and key not in limits] == []


def test_names_can_t_break_the_page(data: Path, tmp_path: Path) -> None:
    trick = "<img src=x onerror=alert(1)>|</script>"
    models = ["fake:grey:0.3?name=plain", {"source": "fake:grey:0.4", "name": trick}]
    found = brinell.compare(made(data, tmp_path / "run", models))
    assert trick not in comparison_html(found) and trick not in comparison_markdown(found)
    root = ElementTree.fromstring(gate_junit(brinell.gate(found, {"rules": [{"measure": "clean", "drop": 0}]})))
    assert trick in str(root[0].get("name"))


def test_the_leaderboard(runs: dict[str, brinell.Run], capsys: pytest.CaptureFixture[str]) -> None:
    """A model's runs of several lenses are one line; equal models share their place."""
    main(["leaderboard", runs["two"].folder, "--json"])
    told = json.loads(capsys.readouterr().out)
    assert [one["model"] for one in told["models"]] == ["hard", "soft"]
    # both are right on all clean images and under fade_white; fade_black and boxes tell them apart
    assert told["models"][0]["ranks"] == {"clean": 1.5, "area": pytest.approx((1 + 1 + 1.5) / 3)}
    assert told["models"][0]["rank"]["value"] == pytest.approx((1.5 + 3.5 / 3) / 2)
    areas = runs["two"].summary().areas
    for one in told["models"]:
        mine = [area.value for (model, _), area in areas.items() if model == one["model"]]
        assert one["figures"]["area"]["value"] == pytest.approx(sum(mine) / len(mine))
        assert one["rank"]["low"] <= one["rank"]["value"] <= one["rank"]["high"]
    board = brinell.leaderboard(*(runs[name] for name in ("soft", "hard", "soft knob", "hard knob")))
    assert len(board.rows) == 2 and {measure.lens for measure in board.measures} == {None, "profile", "knob"}
    assert board.rows[0].model == "grey (hard, hard-knob)", "two of one name are told apart by the names of their runs"
    main(["leaderboard", runs["two"].folder])
    assert "area: mean accuracy over all levels, mean over 3 operators; higher is better" in capsys.readouterr().out


def test_models_that_can_t_be_told_apart_share_a_place(runs: dict[str, brinell.Run], data: Path, tmp_path: Path) -> None:
    clear = brinell.leaderboard(runs["two"])
    assert [row.position for row in clear.rows] == [1, 2] and clear.verdict() == "hard is clearly ahead of the others."
    twins = made(data, tmp_path / "twins", ["fake:grey:0.35?name=one", "fake:grey:0.35?name=other"])
    tied = brinell.leaderboard(twins)
    assert [(row.model, row.position) for row in tied.rows] == [("one", 1), ("other", 1)]
    assert tied.verdict() == "No model is clearly ahead: one and other are tied."


def test_runs_that_can_t_be_ranked_are_skipped_by_name(
    runs: dict[str, brinell.Run], data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(runs["soft"].folder, tmp_path / "unfinished")
    manifest = json.loads((tmp_path / "unfinished" / "manifest.json").read_text())
    (tmp_path / "unfinished" / "manifest.json").write_text(json.dumps(manifest | {"finished": False}))
    (tmp_path / "notes").mkdir()
    other = made(data, tmp_path / "other", lens={**PROFILE, "levels": 3})
    folders = [
        str(tmp_path / "notes"),
        str(tmp_path / "unfinished"),
        other.folder,
        runs["soft"].folder,
        runs["hard"].folder,
    ]
    main(["leaderboard", *folders])
    shown = capsys.readouterr().out
    assert "grey (hard)" in shown and "grey (soft)" in shown
    assert f"skipped {folders[0]}: not the folder of a brinell run" in shown
    assert f"skipped {folders[1]}: not finished; rerun its command to finish it" in shown
    assert f"skipped {folders[2]}: the profile lens has levels" in shown, "the odd one, though it comes first"
    assert list(brinell.leaderboard(*folders).to_json()["skipped"]) == folders[:3]
    with pytest.raises(brinell.ConfigError, match=r"needs two models or more; .*; skipped .*unfinished: not finished"):
        brinell.leaderboard(folders[1], runs["hard"])


def test_comparing_and_ranking_need_no_torch(runs: dict[str, brinell.Run], tmp_path: Path) -> None:
    """With the gate and the page, too."""
    (tmp_path / "gate.yaml").write_text(GATE)
    first, second, page = runs["soft"].folder, runs["hard"].folder, str(tmp_path / "page.html")
    commands = [
        ["compare", first, second, "--gate", str(tmp_path / "gate.yaml"), "-o", page],
        ["leaderboard", first, second],
    ]
    code = (
        f"import sys; from brinell.cli.main import main; [main(one) for one in {commands}]; print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split()[-1] == "False"


# ---- real networks ----


def rounded(module: nn.Module, bits: int) -> nn.Module:
    """A network whose convolutions have weights of so few bits, a scale each: quantised badly."""
    most = 2 ** (bits - 1) - 1
    with torch.no_grad():
        for part in module.modules():
            if isinstance(part, (nn.Conv2d, nn.Linear)):
                scale = part.weight.abs().max() / most
                part.weight.copy_((part.weight / scale).round().clamp(-most - 1, most) * scale)
    return module


def network(assets: Path, bits: int | None = None) -> Any:
    spec = importlib.util.spec_from_file_location("nets", assets / "models" / "nets.py")
    assert spec is not None and spec.loader is not None
    nets = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(nets)
    net, _, _ = nets.load("cifar10_resnet20")
    classes = (assets / "models" / "cifar10.txt").read_text().split()
    net = rounded(net, bits) if bits else net
    return brinell.wrap(net, size=32, classes=classes, name="resnet20", execution=QUICK)


@pytest.mark.slow
def test_a_gate_on_real_networks(assets: Path, tmp_path: Path) -> None:
    """No alarm between two seeds of one model, nor for 8 bits; alarm for 3 bits."""
    lens = {"name": "profile", "operators": ["noise", "boxes"], "levels": 2}
    data = {"source": f"{assets}/images/cifar10_test_2000.npz", "limit": 100}
    execution = brinell.Execution(runtime="torch", batch=50, shard=100)
    rules = {"rules": [{"measure": "area", "drop": 2}, {"measure": "clean", "drop": 1}]}

    def real(name: str, bits: int | None = None, seed: int = 0) -> brinell.Run:
        out = tmp_path / name
        return brinell.run(network(assets, bits), data, lens=lens, seed=seed, out=out, execution=execution, quiet=True)

    first = real("first")
    second = real("second", seed=1)
    with pytest.raises(RunError, match="--other-draws"):
        brinell.compare(first, second)
    same = brinell.compare(first, second, other_draws=True)
    assert not brinell.gate(same, rules).failed
    assert "paired by image only" in same.pairs[0].notes[0]
    assert any(one.effect.value != 0 for one in same.deltas), "other draws are other trials"
    assert not brinell.gate(brinell.compare(first, real("eight", bits=8)), rules).failed
    bad = brinell.gate(brinell.compare(first, real("three", bits=3)), rules)
    assert {check.rule.measure for check in bad.failed} == {"area", "clean"}


@pytest.mark.slow
def test_swapping_a_real_network_is_an_alarm(assets: Path, tmp_path: Path) -> None:
    """MobileNet V2 against SqueezeNet 1.1, on 40 photographs: one of 86 % and one of 64 %."""
    lens = {"name": "profile", "operators": ["jpeg", "white_fog"], "levels": 1}
    data = {"source": f"{assets}/images/imagenet_dev_300", "limit": 40}
    execution = brinell.Execution(batch=10, shard=30)
    models = {name: f"onnx:{assets}/models/{name}.onnx?classes=imagenet" for name in ("mobilenet_v2", "squeezenet1_1")}
    before, after = (
        brinell.run(model, data, lens=lens, out=tmp_path / name, execution=execution, quiet=True)
        for name, model in models.items()
    )
    assert [one.new.model for one in brinell.compare(before, after).pairs] == ["squeezenet1_1"]
    rules = {"rules": [{"measure": "area", "drop": 2}, {"measure": "clean", "drop": 1}]}
    assert {one.rule.measure for one in brinell.gate(brinell.compare(before, after), rules).failed} == {"area", "clean"}
    assert not brinell.gate(brinell.compare(after, before), rules).failed
