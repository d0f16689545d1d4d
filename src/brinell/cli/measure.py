"""Commands that measure: run, plan and demo."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from brinell.cli.config_flags import config_of, run_flags
from brinell.cli.console import out, print_findings, say
from brinell.cli.flags import with_flags
from brinell.run_config import RunConfig, load_config
from brinell.runs.queries import describe_queries

File = Annotated[Path | None, typer.Argument(metavar="[CONFIG]", help="YAML file; flags override it.")]


def _run(given: Mapping[str, Any], config: File = None) -> None:
    """Test models on data; rerun to resume.

    Examples: [bold]brinell run --model timm:resnet50 --data photos/ --out runs/first[/]
    or [bold]brinell run test.yaml --set data.limit=100[/]
    """
    execute(config_of(config, given))


def _plan(given: Mapping[str, Any], config: File = None) -> None:
    """Estimate what a run would cost, without running it: queries, forward passes, time and storage.

    Example: [bold]brinell plan --model efficientnet_lite0 --data photos/[/]
    """
    from brinell.cli.costs import plan_lines
    from brinell.engine.plan import plan
    from brinell.engine.setup import assemble

    say(*plan_lines(plan(assemble(config_of(config, given)))))


run = with_flags(_run, run_flags())
plan = with_flags(_plan, run_flags())


def demo(
    folder: Annotated[str, typer.Option("--out", help="Folder of the run.")] = "runs/demo",
) -> None:
    """Run every lens on a few photographs and write a report. Needs the extra demo.

    Example: [bold]brinell demo[/]
    """
    from brinell.cli.demo import run_demo

    run_demo(folder)


def execute(config: RunConfig) -> None:
    """Run a config, print what it found and write the report."""
    from brinell.api import execute_setup
    from brinell.engine.progress import reporter
    from brinell.engine.setup import assemble
    from brinell.tracking.server import Server

    server = None if config.track is None else Server(config.track.to, config.track.experiment)  # fail early
    with reporter() as progress:
        finished = execute_setup(assemble(config), progress)
    print_findings(finished.shown())
    say(*describe_queries(finished.manifest), f"report: {finished.report()}")
    if server is not None:
        say(describe_tracked(finished.track(server)))


def describe_tracked(tracked: Any) -> str:
    """Return what was logged, in a line."""
    kept = f", {tracked.kept} already there" if tracked.kept else ""
    return f"{tracked.logged} nested runs logged{kept}: {tracked.link}"


__all__ = ["demo", "execute", "load_config", "out", "plan", "run"]
