"""The files in examples/: well-formed, and with commands and configs that brinell reads."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from brinell.cli import measure
from brinell.cli.main import main
from brinell.config.part import PartOfRun, scheduled_part
from brinell.run_config import RunConfig, load_config

EXAMPLES = Path(__file__).parents[1] / "examples"
COUNT = 16


@pytest.fixture
def parsed(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A function that returns the config that a command would run."""
    configs: list[RunConfig] = []
    monkeypatch.setattr(measure, "execute", lambda config, confirm: configs.append(config))

    def parse(command: list[str], **variables: str) -> RunConfig:
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        assert command[:2] == ["brinell", "run"]
        main(command[1:])
        return configs.pop()

    return parse


def read_json(name: str) -> Any:
    return json.loads((EXAMPLES / name).read_text())


def kubernetes() -> tuple[dict[str, Any], dict[str, Any]]:
    config, job = yaml.safe_load_all((EXAMPLES / "kubernetes.yaml").read_text())
    return config, job


def test_slurm(parsed: Any) -> None:
    file = EXAMPLES / "slurm.sbatch"
    subprocess.run(["bash", "-n", file], check=True)
    text = file.read_text()
    options = dict(re.findall(r"^#SBATCH --([a-z-]+)(?:=(\S+))?$", text, re.MULTILINE))
    assert len(options) == text.count("#SBATCH") and "requeue" in options
    first, last = re.fullmatch(r"(\d+)-(\d+)%\d+", options["array"]).groups()  # type: ignore[union-attr]
    assert int(last) - int(first) + 1 == COUNT
    command = shlex.split(text.strip().splitlines()[-1].removeprefix("exec "))
    command[2] = str(EXAMPLES.parent / command[2])
    variables = {"SLURM_ARRAY_TASK_ID": last, "SLURM_ARRAY_TASK_COUNT": str(COUNT), "SLURM_ARRAY_TASK_MIN": first}
    config = parsed(command, **variables)
    assert config.execution.part == f"{COUNT}/{COUNT}" and config.folder() == "s3://bucket/runs/imagenet"


def test_kubernetes(parsed: Any, tmp_path: Path) -> None:
    config, job = kubernetes()
    assert (config["apiVersion"], config["kind"]) == ("v1", "ConfigMap")
    assert (job["apiVersion"], job["kind"]) == ("batch/v1", "Job")
    spec, pod = job["spec"], job["spec"]["template"]["spec"]
    assert spec["completionMode"] == "Indexed" and spec["parallelism"] <= spec["completions"] == COUNT
    assert pod["restartPolicy"] in ("Never", "OnFailure")
    assert spec["backoffLimitPerIndex"] >= 0 and pod["restartPolicy"] == "Never"  # the first needs the second
    [container] = pod["containers"]
    variables = {one["name"]: one["value"] for one in container["env"]}
    assert variables == {"JOB_COMPLETIONS": str(COUNT)}
    volumes = {one["name"] for one in pod["volumes"]}
    assert {one["name"] for one in container["volumeMounts"]} == volumes
    [source] = [one["configMap"]["name"] for one in pod["volumes"] if "configMap" in one]
    assert source == config["metadata"]["name"]
    [(name, text)] = config["data"].items()
    (tmp_path / name).write_text(text)
    command = list(container["command"])
    assert command[2] == f"/config/{name}"
    command[2] = str(tmp_path / name)
    assert parsed(command, JOB_COMPLETION_INDEX="0", **variables).execution.part == f"1/{COUNT}"


def test_aws_batch(parsed: Any) -> None:
    job = read_json("aws-batch.json")
    assert {"jobName", "jobQueue", "jobDefinition"} <= job.keys() and 2 <= job["arrayProperties"]["size"] <= 10_000
    assert job["arrayProperties"]["size"] == COUNT and 1 <= job["retryStrategy"]["attempts"] <= 10
    own = job["containerOverrides"]
    assert {one["type"] for one in own["resourceRequirements"]} <= {"GPU", "VCPU", "MEMORY"}
    assert all(isinstance(one["value"], str) for one in own["resourceRequirements"])
    assert not any(one["name"].startswith("AWS_BATCH") for one in own.get("environment", ()))  # a protected prefix
    variables = {"AWS_BATCH_JOB_ARRAY_INDEX": "2", "AWS_BATCH_JOB_ARRAY_SIZE": str(COUNT)}
    assert parsed(own["command"], **variables).execution.part == f"3/{COUNT}"


def test_google_batch(parsed: Any) -> None:
    [group] = read_json("google-batch.json")["taskGroups"]
    assert int(group["taskCount"]) == COUNT and int(group["parallelism"]) <= COUNT
    [runnable] = group["taskSpec"]["runnables"]
    assert re.fullmatch(r"\d+s", group["taskSpec"]["maxRunDuration"])
    variables = {"BATCH_TASK_INDEX": "2", "BATCH_TASK_COUNT": str(COUNT)}
    config = parsed(runnable["container"]["commands"], **variables)
    assert config.execution.part == f"3/{COUNT}" and config.folder().startswith("gs://")


def test_the_same_run_everywhere() -> None:
    given = load_config(yaml.safe_load((EXAMPLES / "run.yaml").read_text()))
    there = load_config(yaml.safe_load(kubernetes()[0]["data"]["run.yaml"]))
    assert there.identity() == given.identity()


def test_a_part_that_is_given_wins(parsed: Any) -> None:
    command = [*read_json("aws-batch.json")["containerOverrides"]["command"], "--part", "2/3"]
    variables = {"AWS_BATCH_JOB_ARRAY_INDEX": "9", "AWS_BATCH_JOB_ARRAY_SIZE": "16"}
    assert scheduled_part(variables) == (PartOfRun(10, 16), "AWS_BATCH_JOB_ARRAY_INDEX")
    assert parsed(command, **variables).execution.part == "2/3"


def test_every_example_is_listed() -> None:
    listed = set(re.findall(r"\]\((\S+?)\)", (EXAMPLES / "README.md").read_text()))
    assert {path.name for path in EXAMPLES.iterdir()} - {"README.md", "run.yaml"} == {
        name for name in listed if "/" not in name
    }
