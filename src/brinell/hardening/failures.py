"""Open the failures that a config names as datasets: datasets as they are, and the failures of runs."""

from __future__ import annotations

from dataclasses import dataclass

from brinell.config.execution import Execution
from brinell.curation.curate import curate
from brinell.curation.moved import export_moved
from brinell.curation.options import CurateOptions
from brinell.datasets.sources import open_dataset
from brinell.engine.progress import Reporter
from brinell.errors import ConfigError, RunError
from brinell.hardening.options import FailureOptions
from brinell.models.model import Model
from brinell.runs.run import Run
from brinell.runs.store import Store
from brinell.types import Dataset


@dataclass(frozen=True)
class FailureOpener:
    """Opens failures; those of runs are written once, into the `out` folder of the hardening."""

    out: Store
    model: Model
    execution: Execution
    reporter: Reporter

    def open(self, options: FailureOptions, number: int) -> Dataset:
        """Return the images of an entry of a config's failures."""
        source = Store(options.source)
        if not source.exists("manifest.json"):
            for key in ("curate", "moved", "score"):
                if getattr(options, key) is not None:
                    raise ConfigError(f"failures.{number}.{key} needs a run, but {options.source} is none; remove {key}")
            return open_dataset(options.data)
        folder = self.out.place("failures", str(number))
        written = Store(folder)
        if not written.exists("metadata.jsonl"):
            written.remove()
            if options.moved is not None:
                self._export_moved(source, options, written)
            else:
                chosen = (options.curate or CurateOptions()).model_copy(update={"layout": "imagefolder"})
                curate(
                    [Run(source)],
                    written,
                    chosen,
                    models=[self.model],
                    execution=self.execution,
                    reporter=self.reporter,
                )
        return open_dataset(options.data.model_copy(update={"source": folder, "label_column": None}))

    def _export_moved(self, source: Store, options: FailureOptions, written: Store) -> None:
        """Write a run's images as its motions left them."""
        assert options.moved is not None
        run = Run(source)
        if run.source["data"]["source"].startswith("object:"):
            raise RunError(
                f"the data of {source.url} was a Python object; export its images with Run.export_moved, and train on those"
            )
        export_moved(run, written.place(), options.moved, score=options.score)
