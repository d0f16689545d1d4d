"""An MLflow server and one of its experiments. The `mlflow` package is imported here, and nowhere else.

A run of ours is one of theirs, found again by a tag: whatever is told twice is there once.
"""

from __future__ import annotations

import getpass
import io
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout, suppress
from pathlib import Path
from typing import Any

import urllib3

from brinell.errors import ConfigError, MissingExtra, RunError
from brinell.tracking.figures import Number

EXPERIMENT = "brinell"
KIND = {"mlflow.experimentKind": "custom_model_development"}  # or newer servers show the pages of language models
MOST_METRICS, MOST_WORDS = 800, 90  # of a request; the protocol allows 1000 and 100
LONGEST = 500  # characters of a parameter's value; older servers refuse more
_SECONDS = 10.0


class Server:
    """A place to log to: `to` is a URI as MLflow has them, or where MLFLOW_TRACKING_URI says."""

    def __init__(self, to: str | None = None, experiment: str | None = None) -> None:
        try:
            from mlflow import MlflowClient
            from mlflow.exceptions import MlflowException
        except ImportError:
            raise MissingExtra("mlflow-skinny", "mlflow") from None
        place = to or os.environ.get("MLFLOW_TRACKING_URI")
        if not place:
            raise ConfigError("say where to log to: --to http://HOST:5000, or set MLFLOW_TRACKING_URI")
        self.place = place.rstrip("/")
        self._refusal = MlflowException
        _reach(self.place)
        with self._told():
            self.client = MlflowClient(self.place)
            name = experiment or os.environ.get("MLFLOW_EXPERIMENT_NAME") or EXPERIMENT
            self.experiment = self._experiment(name)

    def _experiment(self, name: str) -> str:
        found = self.client.get_experiment_by_name(name)
        if found is not None and found.lifecycle_stage == "deleted":
            raise RunError(
                f"the experiment {name!r} was deleted on {self.place}; restore it (mlflow experiments restore -x "
                f"{found.experiment_id}), or name another with --experiment"
            )
        if found is not None:
            return str(found.experiment_id)
        return str(self.client.create_experiment(name, tags=KIND))

    @contextmanager
    def _told(self) -> Iterator[None]:
        """Say in a line what a server refuses."""
        try:
            yield
        except self._refusal as error:
            told = str(error).strip().partition("\n")[0]
            raise RunError(f"the MLflow server at {self.place} refuses: {told}; logging again goes on from here") from error

    def find(self, tag: str, value: str) -> list[Any]:
        """The runs with a tag, the oldest first."""
        found: list[Any] = []
        token = None
        with self._told():
            while True:
                page = self.client.search_runs(
                    [self.experiment], f"tags.`{tag}` = '{value}'", order_by=["attributes.start_time ASC"], page_token=token
                )
                found += page
                token = page.token
                if not token:
                    return found

    def begin(self, name: str, tags: Mapping[str, str], started: int) -> str:
        """A new run, and its id; times are in milliseconds."""
        with suppress(OSError, KeyError):  # nobody knows who this is
            tags = {"mlflow.user": getpass.getuser(), **tags}
        with self._told():
            run = self.client.create_run(self.experiment, started, dict(tags), name)
        return str(run.info.run_id)

    def log(self, run: str, numbers: Sequence[Number], params: Mapping[str, str], at: int) -> None:
        """Numbers and parameters of a run, in as few requests as there may be."""
        from mlflow.entities import Metric, Param

        metrics = [Metric(number.name, number.value, at, number.step) for number in numbers]
        words = [
            Param(key, value if len(value) <= LONGEST else f"{value[: LONGEST - 1]}…") for key, value in params.items()
        ]
        with self._told():
            for start in range(0, len(words), MOST_WORDS):
                self.client.log_batch(run, params=words[start : start + MOST_WORDS])
            for start in range(0, len(metrics), MOST_METRICS):
                self.client.log_batch(run, metrics=metrics[start : start + MOST_METRICS])

    def tag(self, run: str, tags: Mapping[str, str]) -> None:
        """Tags of a run, over those that it has."""
        from mlflow.entities import RunTag

        with self._told():
            self.client.log_batch(run, tags=[RunTag(key, value) for key, value in tags.items()])

    def uses(self, run: str, name: str, digest: str, source: str) -> None:
        """Say which data a run is about."""
        from mlflow.entities import Dataset, DatasetInput

        with self._told():
            self.client.log_inputs(run, [DatasetInput(Dataset(name, digest, "local", source))])

    def keep(self, run: str, folder: Path) -> None:
        """Store the files of a folder."""
        with self._told():
            self.client.log_artifacts(run, str(folder))

    def end(self, run: str, ended: int) -> None:
        """Say that all is there."""
        with self._told(), redirect_stdout(io.StringIO()):  # it prints links
            self.client.set_terminated(run, "FINISHED", ended)

    def drop(self, run: str) -> None:
        """Delete a run (a server keeps it in its bin)."""
        with self._told():
            self.client.delete_run(run)

    def link(self, run: str) -> str:
        """Where a run is shown."""
        return f"{self.place}/#/experiments/{self.experiment}/runs/{run}" if self.place.startswith("http") else self.place


def _reach(place: str) -> None:
    """Raise at once if nobody listens; the client would try for minutes."""
    if not place.startswith(("http://", "https://")):
        return
    try:
        urllib3.PoolManager(retries=False, timeout=_SECONDS).request("GET", f"{place}/health")
    except urllib3.exceptions.HTTPError as error:
        raise RunError(
            f"no MLflow server answers at {place} ({type(error).__name__}); start it (mlflow server), or mend --to"
        ) from None
