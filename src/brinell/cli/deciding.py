"""The command that measures until rules are decided."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from brinell.cli.config_flags import config_of, run_flags
from brinell.cli.console import print_json, say
from brinell.cli.decide import GATE_FAILED, JSON_VERSION, AsJson, print_gate
from brinell.cli.execute import confirm_cost
from brinell.cli.execute import decide as decide_config
from brinell.cli.flags import with_flags
from brinell.cli.measure import File
from brinell.run_config import RunConfig


def _decide(
    given: Mapping[str, Any],
    rules: Annotated[Path, typer.Option(metavar="FILE", help="YAML file of rules.")],
    config: File = None,
    margin: Annotated[
        float,
        typer.Option(
            min=0.1, metavar="X", help="Percentage points by which a drop may exceed the allowed one and still pass."
        ),
    ] = 2.0,
    junit: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the checks as JUnit XML.")] = None,
    markdown: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the result as Markdown.")] = None,
    as_json: AsJson = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Start long runs without asking.")] = False,
) -> None:
    """Measure models, the old one first, until rules are decided. Exit code 0 if all rules pass, 1 if one fails.

    Adds images in random order, with a tenth of the levels of each, and stops as soon as all rules are decided.

    Example: [bold]brinell decide --model onnx:old.onnx --model onnx:new.onnx --data photos/ --rules gate.yaml[/]
    """
    from brinell.comparison.page import gate_junit, gate_markdown, write_text
    from brinell.comparison.rules import read_gate

    gate = read_gate(rules)

    def quick() -> RunConfig:
        return config_of(config, {**given, "preset": "quick"})

    run, result = decide_config(config_of(config, given), gate, margin, partial(confirm_cost, quick=quick, yes=yes))
    if junit is not None:
        write_text(gate_junit(result), junit)
    if markdown is not None:
        write_text(gate_markdown(result), markdown)
    if as_json:
        print_json({"version": JSON_VERSION, "run": run.folder, **result.to_json()})
    else:
        print_gate(result)
        budget = run.manifest["budget"]
        images = f"{budget['images']:,} of {budget['of']:,} images"
        say(f"Decided with {images} and {budget['share']:.1%} of the queries of full runs.")
        say(*(f"wrote {file}" for file in (junit, markdown) if file is not None))
    if not result.passed:
        raise typer.Exit(GATE_FAILED)


decide = with_flags(_decide, run_flags())
