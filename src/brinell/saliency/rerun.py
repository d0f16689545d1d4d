"""The saliency comparison of a run: right after it, or later with its models and data opened again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from brinell.config.saliency import SaliencyOptions
from brinell.engine.progress import Reporter, reporter
from brinell.engine.reopening import reopen
from brinell.engine.setup import RunSetup
from brinell.engine.shards import worker_count
from brinell.engine.threads import torch_alone
from brinell.models.model import Model
from brinell.runs.run import Run
from brinell.saliency.compare import compare_saliency
from brinell.validation import validate


def run_comparison(run: Run, setup: RunSetup, options: SaliencyOptions, progress: Reporter) -> None:
    """Compare where the models of a finished run look."""
    with torch_alone(), ThreadPoolExecutor(worker_count(setup.config.execution.workers), "decode") as pool:
        compare_saliency(run, setup, options, pool, progress)


def add_saliency(
    run: Run,
    options: Mapping[str, Any] | SaliencyOptions | None = None,
    *,
    models: Sequence[Model] | None = None,
    data: Any = None,
    trust: bool = False,
    quiet: bool = False,
) -> None:
    """Open a finished run's models and data again and compare where the models look."""
    chosen = options if isinstance(options, SaliencyOptions) else validate(SaliencyOptions, dict(options or {}))
    setup = reopen(run, models=models, data=data, trust=trust, call="saliency")
    with reporter(quiet) as progress:
        run_comparison(run, setup, chosen, progress)
