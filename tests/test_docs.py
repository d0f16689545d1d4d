"""The documentation is true as far as a test can tell: links lead somewhere, commands, YAML and Python are valid."""

from __future__ import annotations

import ast
import json
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import yaml

import brinell
from brinell.catalogue import FILE, build
from brinell.cli.commands import all_commands
from brinell.cli.config_flags import config_of
from brinell.cli.main import as_click
from brinell.comparison.rules import Gate
from brinell.config.detection import Decoding
from brinell.config.execution import Execution
from brinell.config.model import ModelOptions
from brinell.config.saliency import SaliencyOptions
from brinell.criteria.criterion import find_criterion
from brinell.evidence.plan import Plan
from brinell.hardening.options import AugmentOptions, HardenConfig, TrainingOptions, load_harden_config
from brinell.lenses.lens import LENSES
from brinell.lenses.profile.precision import PRECISION
from brinell.models.remote.mapping import CallOptions, RequestOptions, ResponseOptions, ServiceMapping
from brinell.models.remote.protocol import read_scores
from brinell.run_config import RunConfig, load_config
from brinell.runs.schema import CLEAN, ROWS, SAMPLES
from brinell.saliency.findings import COLUMNS as SALIENCY
from brinell.validation import validate
from conftest import PLAIN

ROOT = Path(__file__).parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
OURS = [lens for lens in LENSES.values() if lens.package.startswith("brinell.")]


def page_id(page: Path) -> str:
    return str(page.relative_to(ROOT))


def blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", (ROOT / page).read_text(), re.DOTALL)


def commands() -> Iterator[Any]:
    """Yield every `brinell` command in the shell blocks of the documentation."""
    for page in PAGES:
        for block in blocks(page_id(page), "sh"):
            for line in block.replace("\\\n", " ").splitlines():
                if line.startswith("brinell "):
                    yield pytest.param(line, id=f"{page_id(page)}: {line}")


def parse(line: str) -> tuple[str, Any]:
    """Parse a command line as the command would, without running it."""
    name, *arguments = shlex.split(line, comments=True)[1:]
    command = next(command for command in all_commands() if command.name == name)
    return name, as_click(command).make_context(name, arguments)


@pytest.mark.parametrize("page", PAGES, ids=page_id)
def test_links_lead_somewhere(page: Path) -> None:
    for target, anchor in re.findall(r"\]\(([^)#\s]*)(#[^)\s]*)?\)", page.read_text()):
        if target.startswith("http"):
            continue
        linked = page.parent / target if target else page
        assert linked.exists(), f"{page.name} points to {target}"
        if anchor and linked.suffix == ".md":
            heads = re.findall(r"^#+ (.*)$", linked.read_text(), re.MULTILINE)
            anchors = {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}
            assert anchor[1:] in anchors, f"{page.name} points to {target}{anchor}"


@pytest.mark.parametrize("line", list(commands()))
def test_commands_can_be_parsed(line: str) -> None:
    if line.split()[1].startswith("--"):
        return
    name, context = parse(line)
    if name in ("run", "plan") and context.params.get("config") is None:
        given = {key.replace("_", "-"): value for key, value in context.params.items() if value not in (None, [], ())}
        config_of(None, {key: value for key, value in given.items() if key not in ("config", "yes")})


@pytest.mark.parametrize("page", PAGES, ids=page_id)
def test_yaml_is_valid(page: Path) -> None:
    for text in blocks(page_id(page), "yaml"):
        content = yaml.safe_load(text)
        if "requirements" in content:
            validate(Plan, content)
        elif "rules" in content:
            validate(Gate, content)
        elif page.name == "ci.md":
            _check_job(content)
        elif page.name == "harden.md":
            load_harden_config(content)
        elif page.name in ("remote.md", "service.md"):
            validate(ServiceMapping, content)
        else:
            for lens in load_config(content).lenses:
                find_criterion(lens.criterion)


def _check_job(workflow: dict[Any, Any]) -> None:
    """Check that a job of GitHub or GitLab has commands, and that brinell's can be parsed."""
    (job,) = workflow["jobs"].values() if "jobs" in workflow else workflow.values()
    lines = (
        [step["run"] for step in job["steps"] if "run" in step] if "steps" in job else job["script"] + job["after_script"]
    )
    ours = [line for line in lines if line.startswith("brinell ")]
    assert [parse(line)[0] for line in ours] == ["run", "gate", "report"]


def test_flags_override_the_config() -> None:
    (text,) = blocks("docs/config.md", "yaml")
    config = load_config(yaml.safe_load(text), ["data.limit=100"])
    assert config.data.limit == 100
    assert [model.label for model in config.models] == ["efficientnet_lite0", "rival"]


def test_every_option_is_explained() -> None:
    parts: dict[str, list[Any]] = {
        "docs/config.md": [RunConfig, Execution],
        "docs/models.md": [ModelOptions],
        "docs/detectors.md": [Decoding],
        "docs/saliency.md": [SaliencyOptions],
        "docs/harden.md": [TrainingOptions, AugmentOptions, HardenConfig],
    }
    for lens in OURS:
        parts[f"docs/lenses/{lens.name}.md"] = [lens.options]
    for page, options in parts.items():
        text = (ROOT / page).read_text().replace("-", "_")
        own = set(Decoding.model_fields) if page == "docs/models.md" else set()
        own |= {"source", "name", "operators", "variant", "methods", "sizes", "layers"}
        missing = {key for option in options for key in option.model_fields if key not in text} - own
        assert missing == set(), f"{page} doesn't explain {missing}"


def test_every_lens_has_a_page() -> None:
    readme = (ROOT / "README.md").read_text()
    for lens in OURS:
        assert f"docs/lenses/{lens.name}.md" in readme and lens.question in readme
        head, first, *_ = (ROOT / "docs" / "lenses" / f"{lens.name}.md").read_text().split("\n\n")
        assert head.startswith("# ") and first.startswith(f"```sh\nbrinell run --lens {lens.name} ")


def test_the_mapping_reads_an_answer() -> None:
    text = next(text for text in blocks("docs/remote.md", "yaml") if "safeSearchAnnotation" in text)
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


@pytest.mark.parametrize("page", PAGES, ids=page_id)
def test_python_uses_what_there_is(page: Path) -> None:
    for text in blocks(page_id(page), "python"):
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                owner = {"brinell": brinell, "run": brinell.Run}.get(node.value.id)
                assert owner is None or hasattr(owner, node.attr), f"{node.value.id}.{node.attr}"


def test_the_readme_is_short() -> None:
    (python,), shell = blocks("README.md", "python"), blocks("README.md", "sh")
    assert len([line for line in python.splitlines() if line.strip()]) == 10
    assert len(shell[-1].strip().splitlines()) == 3


def test_the_examples_of_the_architecture_work() -> None:
    """In a process of its own, since the examples register operators and other parts."""
    check = """
import torch
from brinell.classes import Classes
from brinell.criteria.criterion import find_criterion
from brinell.config.execution import Execution
from brinell.config.model import ModelOptions
from brinell.perturb.operator import OPERATORS
from brinell.perturb.property import find_property
images, ids = torch.full((2, 3, 16, 16), 200, dtype=torch.uint8), torch.arange(2)
dark = OPERATORS["scan_lines:published"].at(images, 5, seed=0, ids=ids)
assert dark[0, 0, 0, 0] == 180 and dark[0, 0, 1, 0] == 200
half = find_property("dimming").apply(images, torch.full((2, 1), 0.5, dtype=torch.float64), seed=0, ids=ids)
assert bool((half == 100).all())
assert find_criterion("confident_error(0.8)").name == "confident_error(0.8)"
assert open_bars("10", None)[3].label == 1
assert open_tiny("", ModelOptions(source="tiny:"), Execution(runtime="torch", device="cpu")).outputs == 2
"""
    examples = blocks("ARCHITECTURE.md", "python")
    code = "\n".join(["import brinell.perturb", *examples, check])
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_documentation_names_the_make_targets_that_exist() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for page in ("README.md", "CONTRIBUTING.md"):
        for text in blocks(page, "sh"):
            assert set(re.findall(r"^make ([a-z-]+)", text, re.MULTILINE)) <= targets


def test_every_column_is_explained() -> None:
    text = (ROOT / "docs" / "rows.md").read_text()
    schemas = [ROWS, SAMPLES, CLEAN, PRECISION, SALIENCY, *(lens.reader.columns for lens in OURS)]
    for schema in schemas:
        assert [name for name in schema if f"`{name}`" not in text] == []


def test_every_module_is_in_the_architecture() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text()
    package = ROOT / "src" / "brinell"
    for path in package.glob("*"):
        if path.suffix == ".py" and not path.name.startswith("_"):
            assert path.name in text, path.name
        if (path / "__init__.py").exists():
            assert f"{path.name}/" in text, path.name


def test_the_example_queries_run(greys: Path, tmp_path: Path) -> None:
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


def test_the_catalogue_is_up_to_date() -> None:
    """`brinell ls` reads it instead of importing torch; `python -m brinell.catalogue` writes it."""
    stored = json.loads((ROOT / "src" / "brinell" / FILE).read_text(encoding="utf-8"))
    built = {kind: [asdict(entry) for entry in entries] for kind, entries in build().items()}
    assert stored == json.loads(json.dumps(built)), "run python -m brinell.catalogue"


def test_every_command_is_listed() -> None:
    text = (ROOT / "docs" / "cli.md").read_text()
    assert [command.name for command in all_commands() if f"`brinell {command.name}" not in text] == []
