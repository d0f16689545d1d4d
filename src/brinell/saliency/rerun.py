"""The saliency comparison of a run: right after it, or later with its models and data opened again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from brinell.config.saliency import SaliencyOptions
from brinell.engine.manifest import refuse_other_settings
from brinell.engine.progress import Reporter, reporter
from brinell.engine.setup import RunSetup, assemble
from brinell.engine.shards import worker_count
from brinell.engine.threads import torch_alone
from brinell.errors import ConfigError
from brinell.models.model import Model
from brinell.models.sources import open_stored_model
from brinell.run_config import load_config, overridden
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
    """Open a finished run's models and data again and compare where the models look.

    Whether models may run code is for whoever opens them to say, not for the run's folder.
    """
    config = load_config(overridden(run.source, [f"execution.trust={str(trust).lower()}"]))
    objects = [one.source for one in config.models if one.source.startswith("object:")]
    if models is None and objects:
        raise ConfigError(f"the run was given a model as an object ({objects[0]}); pass it again: saliency(models=[…])")
    if data is None and config.data.source.startswith("object:"):
        raise ConfigError("the run was given its data as an object; pass it again: saliency(data=…)")
    chosen = options if isinstance(options, SaliencyOptions) else validate(SaliencyOptions, dict(options or {}))
    file = run.store.place("manifest.json")
    opened = models or [open_stored_model(one, config.execution, file=file) for one in config.models]
    setup = assemble(config, opened, data)
    refuse_other_settings(run.store, config, setup.models)
    with reporter(quiet) as progress:
        run_comparison(run, setup, chosen, progress)
