"""The tutorial, command by command, on photographs in class folders."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from PIL import Image
from story import ROOT, Story

import brinell

pytest.importorskip("onnxruntime", reason="needs onnxruntime: make test-all")
PHOTOGRAPHS = 20


@pytest.mark.slow
def test_every_command_of_the_tutorial(tmp_path: Path) -> None:
    pytest.importorskip("foolbox", reason="needs the photographs of the extra demo")
    write_photographs(tmp_path / "photos")
    page = (ROOT / "docs" / "tutorial.md").read_text()
    rules, plan = re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)
    (tmp_path / "rules.yaml").write_text(rules)
    (tmp_path / "plan.yaml").write_text(plan)
    lines = [line for block in re.findall(r"```sh\n(.*?)```", page, re.DOTALL) for line in block.strip().splitlines()]
    story = Story("the tutorial", tmp_path)
    printed = ""
    for line in lines:
        # `make release` installs; `view` serves until it is stopped: tests/test_viewer.py
        if not line.startswith(("pip install ", "brinell view")):
            command, _, comment = line.partition("#")
            printed += story.type(command.strip(), code=1 if "exit code 1" in comment else 0)
    assert (tmp_path / "runs" / "first" / "report.html").stat().st_size > 10_000
    assert (tmp_path / "failures" / "metadata.jsonl").is_file()
    assert (tmp_path / "evidence" / "record.html").is_file()
    shown = "\n".join(re.findall(r"```text\n(.*?)```", page, re.DOTALL))
    assert (
        "failed: accuracy under white_fog at level 10" in shown
        and "failed: accuracy under white_fog at level 10" in printed
    )
    rows = re.findall(r"^(average|global blur|white fog|random noise|JPEG) +(\d+)%", shown, re.MULTILINE)
    assert len(rows) == 5
    for name, mean in rows:  # processors round differently
        (found,) = re.findall(rf"^{name} +(\d+)% \[", printed.split("report:")[0], re.MULTILINE)
        assert abs(int(found) - int(mean)) <= 3, name


def write_photographs(folder: Path) -> None:
    """Write photographs of known classes as a user keeps them: a folder for each class."""
    photos, names = brinell.open_dataset("demo-photos"), brinell.open_model("efficientnet_lite0").classes
    assert names is not None
    for index in range(PHOTOGRAPHS):
        sample = photos[index]
        assert isinstance(sample.label, int)
        file = folder / names.short_name(sample.label) / f"{index:02d}.jpg"
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(sample.image.permute(1, 2, 0).numpy()).save(file, quality=92)
