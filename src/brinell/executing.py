"""Executes what `brinell run` and `brinell.run` have set up, and returns it as the public `Run`."""

from __future__ import annotations

from collections.abc import Callable

from brinell.engine.early_stop import StoppingRule
from brinell.engine.progress import Reporter
from brinell.engine.runner import execute
from brinell.engine.setup import RunSetup
from brinell.report.page import Shown
from brinell.results import Run
from brinell.runs.run import Run as OpenedRun
from brinell.runs.store import Store


def execute_setup(
    setup: RunSetup,
    progress: Reporter,
    show: Callable[[Shown], None] = lambda shown: None,
    early: StoppingRule | None = None,
    begin: Callable[[], None] = lambda: None,
) -> Run:
    """Execute a run, then compare saliency if its config asks for it. `show` gets each lens's findings as they come.

    `begin` is called once the clean images are answered: from then on, this process mostly waits for the model. With
    `early`, the run may stop before all images are measured.
    """

    def on_lens(run: OpenedRun, lens: str) -> None:
        assert isinstance(run, Run)
        show(run.shown_of(lens))

    def open_run(store: Store) -> Run:
        begin()
        return Run(store)

    finished = execute(setup, progress, on_lens, early, open_run)
    assert isinstance(finished, Run)
    if setup.config.saliency is not None and finished.finished:
        from brinell.saliency.rerun import run_comparison  # few runs compare saliency

        run_comparison(finished, setup, setup.config.saliency, progress)
        finished.refresh("saliency")
        show(finished.shown_of("saliency"))
    return finished
