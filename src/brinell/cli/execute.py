"""Executes a config for a command: run, print, report, track."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable
from contextlib import closing, suppress
from importlib import import_module
from threading import Thread
from typing import TYPE_CHECKING, Any

from brinell.cli.ask import ask_to_start
from brinell.cli.console import print_findings, say
from brinell.cli.interrupt import resuming
from brinell.config.budget import CELLS, Budget
from brinell.engine.checks import check_config
from brinell.engine.reading_ahead.processes import ImageProcesses, start_early
from brinell.lenses.lens import LENSES
from brinell.lenses.sample import describe_sample
from brinell.report.page import Shown
from brinell.run_config import RunConfig
from brinell.runs.queries import describe_invalid, describe_queries
from brinell.runs.store import Store

if TYPE_CHECKING:
    from brinell.comparison.gates import GateResult
    from brinell.comparison.rules import Gate
    from brinell.engine.progress import Reporter
    from brinell.engine.setup import RunSetup
    from brinell.results import Run


def execute(config: RunConfig, confirm: Callable[[RunSetup, Reporter], None] | None = None) -> None:
    """Run a config, print what it found and write the report. `confirm` is called before anything is measured."""
    check_config(config, config.models)
    with resuming(lambda: _holds_answers(Store(config.folder()))):
        processes = start_early(config)
        try:
            _execute(config, confirm, processes)
        finally:
            if processes is not None:
                processes.close()
            gc.enable()
            gc.unfreeze()  # or libraries complain at the end of the process that their objects are still there


def confirm_cost(setup: RunSetup, progress: Reporter, *, quick: Callable[[], RunConfig], yes: bool) -> None:
    """Print what a run costs. If it takes more than an hour, suggest a cheaper one, and ask on a terminal.

    `quick` returns the config under the preset quick.
    """
    from brinell.engine.estimates.text import describe_cost

    # without --shuffle, a few images of class folders may all be of one class
    limit = "--limit {}" if setup.config.data.shuffle else "--limit {} --shuffle"
    cost = describe_cost(setup, quick, {"preset": "--preset quick", "limit": limit})
    for line in cost.lines:
        progress.say(line)
    if cost.long:
        ask_to_start(progress, yes=yes)


def decide(
    config: RunConfig, gate: Gate, margin: float, confirm: Callable[[RunSetup, Reporter], None]
) -> tuple[Run, GateResult]:
    """Run a config until a gate's rules are decided, and return the run and the result."""
    check_config(config, config.models)
    with resuming(lambda: _holds_answers(Store(config.folder()))):
        from brinell.api import decide_setup
        from brinell.engine.messages import log_to
        from brinell.engine.progress import reporter
        from brinell.engine.setup import assemble

        with reporter() as progress, log_to(progress):
            setup = assemble(config.model_copy(update={"budget": Budget(share=CELLS)}))  # the most that it may take
            confirm(setup, progress)
            return decide_setup(setup, gate, margin, progress)


def _execute(
    config: RunConfig, confirm: Callable[[RunSetup, Reporter], None] | None, processes: ImageProcesses | None
) -> None:
    gc.disable()  # to look for garbage while modules are imported takes a fifth of the time
    from brinell.engine.messages import log_to
    from brinell.engine.progress import reporter
    from brinell.engine.setup import assemble
    from brinell.executing import execute_setup

    gc.freeze()  # to look for it in what was imported takes a sixth of a second each time, and the run stands still
    gc.enable()
    server = None
    if config.track is not None:
        from brinell.tracking.server import Server

        server = Server(config.track.to, config.track.experiment)  # fail early
    with reporter() as progress, log_to(progress):

        def show(shown: Shown) -> None:
            with progress.pause():
                print_findings([shown])

        with closing(assemble(config, read_ahead=True, processes=processes)) as setup:
            if confirm is not None:
                confirm(setup, progress)
            prepare = Thread(target=_prepare_report, args=([lens.name for lens in config.lenses],))
            finished = execute_setup(setup, progress, show, begin=prepare.start)
    if not finished.finished:  # a part, and others are not done
        return
    say(
        *filter(None, [describe_sample(finished)]),
        *describe_queries(finished.manifest),
        *describe_invalid(finished),
        f"report: {finished.report()}",
    )
    if server is not None:
        say(describe_tracked(finished.track(server)))


def _prepare_report(lenses: Iterable[str]) -> None:
    """Import what shows findings, and start what draws charts and pages, in the background of a run."""
    from brinell.report.figures import start_drawing
    from brinell.report.page import load_templates

    with suppress(Exception):  # if charts can't be drawn, the report says why
        start_drawing()
        load_templates()
        for lens in lenses:
            for module in LENSES[lens].show.late:
                import_module(module)


def _holds_answers(store: Store) -> bool:
    """Whether a folder holds rows, or answers of services to its queries are cached."""
    if not store.exists("manifest.json"):
        return False
    queries = store.manifest().get("queries", {})
    return store.measured() or any(counts["sent"] or counts["cached"] for counts in queries.values())


def describe_tracked(tracked: Any) -> str:
    """Return what was logged, in a line."""
    kept = f", {tracked.kept} already there" if tracked.kept else ""
    return f"{tracked.logged} nested runs logged{kept}: {tracked.link}"
