"""Executes a config for a command: run, print, report, track."""

from __future__ import annotations

from typing import Any

from brinell.cli.console import print_findings, say
from brinell.report.page import Shown
from brinell.run_config import RunConfig
from brinell.runs.queries import describe_queries


def execute(config: RunConfig) -> None:
    """Run a config, print what it found and write the report."""
    from brinell.api import execute_setup
    from brinell.engine.progress import reporter
    from brinell.engine.setup import assemble
    from brinell.tracking.server import Server

    server = None if config.track is None else Server(config.track.to, config.track.experiment)  # fail early
    with reporter() as progress:

        def show(shown: Shown) -> None:
            with progress.pause():
                print_findings([shown])

        finished = execute_setup(assemble(config), progress, show)
    say(*describe_queries(finished.manifest), f"report: {finished.report()}")
    if server is not None:
        say(describe_tracked(finished.track(server)))


def describe_tracked(tracked: Any) -> str:
    """Return what was logged, in a line."""
    kept = f", {tracked.kept} already there" if tracked.kept else ""
    return f"{tracked.logged} nested runs logged{kept}: {tracked.link}"
