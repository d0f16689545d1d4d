"""An MLflow server and one of its experiments. No other module imports the `mlflow` package."""

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
KIND = {"mlflow.experimentKind": "custom_model_development"}  # otherwise newer servers show the pages for language models
MAX_METRICS, MAX_PARAMS = 800, 90  # per request; the protocol allows 1000 and 100
MAX_PARAM_LENGTH = 500  # characters; older servers refuse more
_TIMEOUT = 10.0  # seconds


class Server:
    """Where to log: `to` is an MLflow tracking URI (default: MLFLOW_TRACKING_URI)."""

    def __init__(self, to: str | None = None, experiment: str | None = None) -> None:
        try:
            from mlflow import MlflowClient
            from mlflow.exceptions import MlflowException
        except ImportError:
            raise MissingExtra("mlflow-skinny", "mlflow") from None
        uri = to or os.environ.get("MLFLOW_TRACKING_URI")
        if not uri:
            raise ConfigError("no tracking server given; use --to http://HOST:5000, or set MLFLOW_TRACKING_URI")
        self.uri = uri.rstrip("/")
        self._mlflow_error = MlflowException
        _check_reachable(self.uri)
        with self._errors():
            self.client = MlflowClient(self.uri)
            name = experiment or os.environ.get("MLFLOW_EXPERIMENT_NAME") or EXPERIMENT
            self.experiment = self._find_experiment(name)

    def _find_experiment(self, name: str) -> str:
        """Return the id of an experiment, which is created if it doesn't exist."""
        found = self.client.get_experiment_by_name(name)
        if found is not None and found.lifecycle_stage == "deleted":
            raise RunError(
                f"the experiment {name!r} was deleted on {self.uri}; restore it (mlflow experiments restore -x "
                f"{found.experiment_id}), or use another --experiment"
            )
        if found is not None:
            return str(found.experiment_id)
        return str(self.client.create_experiment(name, tags=KIND))

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Turn a server's errors into an error of one line."""
        try:
            yield
        except self._mlflow_error as error:
            message = str(error).strip().partition("\n")[0]
            raise RunError(f"the MLflow server at {self.uri} refused: {message}; log again to resume") from error

    def find(self, tag: str, value: str) -> list[Any]:
        """Return the runs with a tag, the oldest first."""
        found: list[Any] = []
        token = None
        with self._errors():
            while True:
                page = self.client.search_runs(
                    [self.experiment], f"tags.`{tag}` = '{value}'", order_by=["attributes.start_time ASC"], page_token=token
                )
                found += page
                token = page.token
                if not token:
                    return found

    def begin(self, name: str, tags: Mapping[str, str], started: int) -> str:
        """Create a run and return its id; times are in milliseconds."""
        with suppress(OSError, KeyError):  # the user has no name
            tags = {"mlflow.user": getpass.getuser(), **tags}
        with self._errors():
            run = self.client.create_run(self.experiment, started, dict(tags), name)
        return str(run.info.run_id)

    def log(self, run: str, numbers: Sequence[Number], params: Mapping[str, str], at: int) -> None:
        """Log numbers and parameters, in as few requests as possible."""
        from mlflow.entities import Metric, Param

        metrics = [Metric(number.name, number.value, at, number.step) for number in numbers]
        texts = [
            Param(key, value if len(value) <= MAX_PARAM_LENGTH else f"{value[: MAX_PARAM_LENGTH - 1]}…")
            for key, value in params.items()
        ]
        with self._errors():
            for start in range(0, len(texts), MAX_PARAMS):
                self.client.log_batch(run, params=texts[start : start + MAX_PARAMS])
            for start in range(0, len(metrics), MAX_METRICS):
                self.client.log_batch(run, metrics=metrics[start : start + MAX_METRICS])

    def tag(self, run: str, tags: Mapping[str, str]) -> None:
        """Set tags of a run."""
        from mlflow.entities import RunTag

        with self._errors():
            self.client.log_batch(run, tags=[RunTag(key, value) for key, value in tags.items()])

    def log_dataset(self, run: str, name: str, digest: str, source: str) -> None:
        """Log which dataset a run used."""
        from mlflow.entities import Dataset, DatasetInput

        with self._errors():
            self.client.log_inputs(run, [DatasetInput(Dataset(name, digest, "local", source))])

    def upload(self, run: str, folder: Path) -> None:
        """Store the files of a folder as artifacts."""
        with self._errors():
            self.client.log_artifacts(run, str(folder))

    def end(self, run: str, ended: int) -> None:
        """Mark a run as finished."""
        with self._errors(), redirect_stdout(io.StringIO()):  # it prints links
            self.client.set_terminated(run, "FINISHED", ended)

    def drop(self, run: str) -> None:
        """Delete a run (a server keeps it in its bin)."""
        with self._errors():
            self.client.delete_run(run)

    def link(self, run: str) -> str:
        """Return where a run is shown."""
        return f"{self.uri}/#/experiments/{self.experiment}/runs/{run}" if self.uri.startswith("http") else self.uri


def _check_reachable(uri: str) -> None:
    """Raise at once if there is no server; the client would retry for minutes."""
    if not uri.startswith(("http://", "https://")):
        return
    try:
        urllib3.PoolManager(retries=False, timeout=_TIMEOUT).request("GET", f"{uri}/health")
    except urllib3.exceptions.HTTPError as error:
        raise RunError(
            f"no MLflow server answers at {uri} ({type(error).__name__}); start it (mlflow server), or correct --to"
        ) from None
