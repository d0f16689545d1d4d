"""What a release consists of agrees with itself: versions, workflows, examples."""

from __future__ import annotations

import json
import re
import shlex
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from benchmarks.dependencies import PAGE, RESULT, render
from packaging.requirements import Requirement

import brinell
from brinell.cli.commands import all_commands
from brinell.cli.main import as_click

ROOT = Path(__file__).parents[1]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


def parse_command(line: str) -> None:
    """Parse a command of brinell as the command would, without running it."""
    name, *arguments = shlex.split(line)[1:]
    command = next(command for command in all_commands() if command.name == name)
    as_click(command).make_context(name, arguments)


def test_the_citation_names_the_version() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["version"] == brinell.__version__
    assert len(citation["references"]) == 5


@pytest.mark.parametrize("file", WORKFLOWS, ids=lambda file: file.name)
def test_workflows_have_few_rights_and_run_what_there_is(file: Path) -> None:
    workflow: dict[Any, Any] = yaml.safe_load(file.read_text())
    assert workflow["permissions"] == {"contents": "read"}
    for job in workflow["jobs"].values():
        assert "timeout-minutes" in job or file.name == "release.yml"
        for step in job["steps"]:
            assert re.fullmatch(r"[\w./-]+@[0-9a-f]{40}", step.get("uses", "a/b@" + 40 * "0")), "pinned by hash"
            for line in step.get("run", "").splitlines():
                if line.startswith("bash "):
                    assert (ROOT / line.split()[1]).is_file()
                if line.startswith("brinell "):
                    parse_command(line)


@pytest.mark.parametrize("name", ["github-gate.yml", "gitlab-gate.yml", "rules.yaml"])
def test_the_examples_of_gates_are_those_of_the_page(name: str) -> None:
    _, content = (ROOT / "examples" / name).read_text().split("\n", 1)
    assert content in (ROOT / "docs" / "howto" / "ci.md").read_text(), "without its first line, a comment"


def test_the_pre_commit_example_runs_commands_that_exist() -> None:
    content = yaml.safe_load((ROOT / "examples" / "pre-commit-config.yaml").read_text())
    (hook,) = content["repos"][0]["hooks"]
    (script,) = re.findall(r"bash -c '(.*)'", hook["entry"])
    for line in script.split(" && "):
        parse_command(line)
    assert re.match(hook["files"], "model.onnx") and not re.match(hook["files"], "README.md")


def test_the_lowest_versions_are_the_lower_bounds() -> None:
    """What `make lowest` tests with is what pyproject.toml promises; nothing has an upper bound."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    needed = [Requirement(text) for text in (*project["dependencies"], *extras["numba"], *extras["onnx"])]
    assert {one.operator for requirement in needed for one in requirement.specifier} == {">="}
    lines = (ROOT / "constraints-lowest.txt").read_text().splitlines()
    pinned = dict(line.split("==") for line in lines if not line.startswith("#"))
    assert list(pinned) == sorted(requirement.name for requirement in needed)
    for requirement in needed:
        (bound,) = requirement.specifier
        assert bound.contains(pinned[requirement.name]) and pinned[requirement.name].startswith(bound.version)


def test_the_page_of_dependencies_is_up_to_date() -> None:
    """If this fails, run `python -m benchmarks.dependencies page`, or with the interpreter of a plain install."""
    assert PAGE.read_text() == render()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    measured = {one["name"] for one in json.loads(RESULT.read_text())["dependencies"]}
    assert measured == {Requirement(text).name for text in project["dependencies"]}


def test_the_notice_names_every_part_of_others() -> None:
    notice = (ROOT / "NOTICE").read_text()
    licences = list(ROOT.glob("src/brinell/**/LICENSE-*.txt"))
    assert len(licences) == 5
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    shipped = {file for pattern in project["license-files"] for file in ROOT.glob(pattern)}
    for file in licences:
        assert file.name in notice and file in shipped
    for file in ROOT.glob("src/brinell/viewer/static/vendor/*.[jc]s*"):
        assert file.name in notice


def test_the_changelog_has_the_version() -> None:
    heads = re.findall(r"^## ([^\s,]+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert heads[0] == brinell.__version__, "a section for each version, the newest first"
    assert len(set(heads)) == len(heads)


def test_the_container_copies_what_there_is() -> None:
    for line in (ROOT / "Containerfile").read_text().splitlines():
        if line.startswith("COPY "):
            assert all((ROOT / name).exists() for name in line.split()[1:-1])
