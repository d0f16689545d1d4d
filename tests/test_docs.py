"""The documentation is true as far as a test can tell: links lead somewhere, examples can be read, names are all there."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

import brinell
from brinell.criteria.criterion import find_criterion
from brinell.hardening.options import AugmentOptions, HardenConfig, TrainingOptions, load_harden_config
from brinell.models.remote.mapping import CallOptions, RequestOptions, ResponseOptions, ServiceMapping
from brinell.models.remote.protocol import read_scores
from brinell.run_config import load_config
from brinell.runs.schema import ATTENTION, CLEAN, PRECISION, ROWS, SAMPLES
from brinell.validation import validate
from conftest import PLAIN

ROOT = Path(__file__).parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")])


def blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", (ROOT / page).read_text(), re.DOTALL)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text()):
        if not target.startswith("http"):
            assert (page.parent / target).exists(), f"{page.name} points to {target}"


def test_the_readme_s_yaml_is_a_config() -> None:
    text, knob, light, _ = blocks("README.md", "yaml")
    lit = load_config(yaml.safe_load(light))
    assert lit.attention is not None and lit.lenses[0].operators == ("highlight", "highlight:least")
    searched = load_config(yaml.safe_load(knob)).lenses[0]
    assert find_criterion(searched.criterion).name == searched.criterion
    config = load_config(yaml.safe_load(text), ["data.limit=100"])
    assert config.data.limit == 100
    assert [model.label for model in config.models] == ["efficientnet_lite0", "rival"]


def test_the_config_of_a_hardening_can_be_read() -> None:
    (text,) = blocks("docs/harden.md", "yaml")
    config = load_harden_config(yaml.safe_load(text))
    assert [lens.name for lens in config.measure] == ["profile", "knob"] and config.training.floor == 1
    page = (ROOT / "docs" / "harden.md").read_text()
    keys = {*TrainingOptions.model_fields, *AugmentOptions.model_fields, *HardenConfig.model_fields}
    assert {key for key in keys if key not in page} == set()


def test_the_readme_s_mapping_reads_an_answer() -> None:
    *_, text = blocks("README.md", "yaml")
    mapping = validate(ServiceMapping, yaml.safe_load(text))
    assert mapping.response is not None and mapping.calls.price == 0.0015
    classes = mapping.class_names(None)
    answer = {"responses": [{"safeSearchAnnotation": {"adult": "VERY_UNLIKELY", "racy": "LIKELY"}}]}
    assert dict(zip(classes.names, read_scores(answer, mapping.response, classes).tolist(), strict=True)) == {
        "adult": 0.0,
        "racy": 0.75,
        "safe": 0.25,
    }


def test_every_key_of_a_mapping_is_explained() -> None:
    text = (ROOT / "docs" / "remote.md").read_text()
    parts = {"request": RequestOptions, "response": ResponseOptions, "calls": CallOptions}
    keys = {key for key in ServiceMapping.model_fields if key not in parts}
    keys |= {f"{part}.{key}" for part, options in parts.items() for key in options.model_fields}
    assert {key for key in keys if f"`{key}`" not in text} == set()


def test_the_readme_s_python_uses_what_there_is() -> None:
    (text,) = blocks("README.md", "python")
    assert len([line for line in text.splitlines() if line.strip()]) == 8
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            owner = {"brinell": brinell, "run": brinell.Run}.get(node.value.id)
            assert owner is None or hasattr(owner, node.attr), f"{node.value.id}.{node.attr}"


def test_the_readme_names_the_make_targets_that_exist() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for page in ("README.md", "CONTRIBUTING.md"):
        for text in blocks(page, "sh"):
            assert set(re.findall(r"^make ([a-z-]+)", text, re.MULTILINE)) <= targets


def test_every_column_is_explained() -> None:
    text = (ROOT / "docs" / "rows.md").read_text()
    for schema in (ROWS, SAMPLES, CLEAN, PRECISION, ATTENTION):
        assert [name for name in schema.names if f"`{name}`" not in text] == []


def test_every_module_is_in_the_architecture() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text()
    package = ROOT / "src" / "brinell"
    for path in package.glob("*"):
        if path.suffix == ".py" and not path.name.startswith("_"):
            assert path.name in text, path.name
        if (path / "__init__.py").exists():
            assert f"{path.name}/" in text, path.name


def test_the_questions_can_be_asked(greys: Path, tmp_path: Path) -> None:
    lenses: dict[str, dict[str, Any]] = {
        "profile": {"operators": ["fade_black"], "levels": 12},
        "knob": {"operators": ["brightness"], "points": 60},
        "fragility": {"sizes": [0.3], "stride": 4},
        "highlights": {"operators": ["highlight"], "sigmas": [5]},
    }
    runs = {
        name: brinell.run("fake:grey", greys, lens={"name": name, **own}, out=tmp_path / name, execution=PLAIN, quiet=True)
        for name, own in lenses.items()
    }
    (text,) = blocks("docs/rows.md", "sql")
    for question in text.strip().split("\n\n"):
        lens = next((name for name in lenses if f"'{name}'" in question), "profile")
        answer = runs[lens].rows(question).fetchall()
        assert answer or "left out" in question or lens == "highlights"  # light doesn't make light images dark
