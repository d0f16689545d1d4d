"""What was named as failures, as datasets: data sets as they are, runs by their failures."""

from __future__ import annotations

from brinell.config.execution import Execution
from brinell.curation.curate import curate
from brinell.curation.moved import export_moved
from brinell.curation.options import CurateOptions
from brinell.datasets.sources import open_dataset
from brinell.engine.progress import Reporter
from brinell.engine.setup import assemble
from brinell.errors import ConfigError, RunError
from brinell.hardening.options import FailureOptions
from brinell.models.model import Model
from brinell.run_config import load_config
from brinell.runs.run import Run
from brinell.runs.store import Store
from brinell.types import Dataset


def opened(
    options: FailureOptions, number: int, out: Store, model: Model, execution: Execution, reporter: Reporter
) -> Dataset:
    """The pictures that one entry of a config's failures names; those of a run are made once, in the hardening's folder."""
    source = Store(options.source)
    if not source.exists("manifest.json"):
        for key in ("curate", "moved", "score"):
            if getattr(options, key) is not None:
                raise ConfigError(f"failures.{number}.{key} is about a run, and {options.source} is none; leave {key} out")
        return open_dataset(options.data)
    place = out.place("failures", str(number))
    made = Store(place)
    if not made.exists("metadata.jsonl"):
        made.remove()
        if options.moved is not None:
            _move(source, options, made, model)
        else:
            chosen = (options.curate or CurateOptions()).model_copy(update={"layout": "imagefolder"})
            curate([Run(source)], made, chosen, models=[model], execution=execution, reporter=reporter)
    return open_dataset(options.data.model_copy(update={"source": place, "label_column": None}))


def _move(source: Store, options: FailureOptions, made: Store, model: Model) -> None:
    """Write a geometry run's images as its motions left them."""
    assert options.moved is not None
    run = Run(source)
    config = load_config(run.source)
    if config.data.source.startswith("object:"):
        raise RunError(
            f"the data of {source.url} was a Python object; export its images with Run.export_moved, and give those instead"
        )
    same = [one for one in config.models if one.label == model.name]
    models = [model] if same and len(config.models) == 1 else None
    export_moved(run, assemble(config, models), made.place(), options.moved, options.score)
