"""What a release consists of agrees with itself: versions, workflows, examples."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml

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
            for line in step.get("run", "").splitlines():
                if line.startswith("bash "):
                    assert (ROOT / line.split()[1]).is_file()
                if line.startswith("brinell "):
                    parse_command(line)


def test_the_pre_commit_example_runs_commands_that_exist() -> None:
    content = yaml.safe_load((ROOT / "examples" / "pre-commit-config.yaml").read_text())
    (hook,) = content["repos"][0]["hooks"]
    (script,) = re.findall(r"bash -c '(.*)'", hook["entry"])
    for line in script.split(" && "):
        parse_command(line)
    assert re.match(hook["files"], "model.onnx") and not re.match(hook["files"], "README.md")


def test_the_container_copies_what_there_is() -> None:
    for line in (ROOT / "Containerfile").read_text().splitlines():
        if line.startswith("COPY "):
            assert all((ROOT / name).exists() for name in line.split()[1:-1])
