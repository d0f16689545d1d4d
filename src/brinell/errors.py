"""The errors a user can meet. Each message says what was expected, what was found and how to fix it.

BrinellError
├── ConfigError         an invalid config, option or command line
│   └── UnknownName     a name that is not registered; the message suggests the nearest names
├── DataError           a dataset that can't be used
│   ├── UnreadableImage an image that can't be decoded (a run skips it and continues)
│   └── LabelError      labels that don't match the model's classes
├── ModelError          a model that can't be loaded or whose output can't be used
│   └── ServiceError    a model behind HTTP that can't be reached or returns an invalid response
├── BudgetSpent         the run has used up its --max-queries
├── RunError            a run folder that can't be read, written or resumed
│   └── DamagedFile     a file of a run that is torn or was changed
├── PluginError         an installed package whose entry point can't be loaded
└── MissingExtra        an optional dependency that isn't installed
"""

from __future__ import annotations

import json
import shlex
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit


class BrinellError(Exception):
    """Base class of all errors that are shown to the user as one line."""


class ConfigError(BrinellError):
    """An invalid config, option or command line."""


class UnknownName(ConfigError):
    """A name that is not registered."""


class DataError(BrinellError):
    """A dataset that can't be used."""


class UnreadableImage(DataError):
    """An image that can't be decoded."""

    def __init__(self, name: str, problem: str) -> None:
        super().__init__(" ".join(f"{name}: {problem}".splitlines()))  # a name may have several lines
        self.name, self.problem = name, problem


class LabelError(DataError):
    """Labels that don't match the model's classes."""


class ModelError(BrinellError):
    """A model that can't be loaded or whose output can't be used."""


class ServiceError(ModelError):
    """A model behind HTTP that can't be reached or returns an invalid response."""


class BudgetSpent(BrinellError):
    """The run has used up its --max-queries."""


class RunError(BrinellError):
    """A run folder that can't be read, written or resumed."""


class DamagedFile(RunError):
    """A file of a run that is torn or was changed."""

    def __init__(self, place: str) -> None:
        super().__init__(f"{place} is damaged; rerun the run's command to write it again")
        self.place = place


class PluginError(BrinellError):
    """An installed package whose entry point can't be loaded."""


class MissingExtra(BrinellError):
    """An optional dependency that isn't installed."""

    def __init__(self, package: str, extra: str) -> None:
        super().__init__(f"this needs {package}, which is not installed: {install_command(extra)}")


def install_command(extra: str) -> str:
    """Return the command that installs an extra from where this package came from: a clone, a repository or an index."""
    origin = _origin()
    url = origin.get("url", "")
    if "dir_info" in origin:
        folder = Path(unquote(urlsplit(url).path))
        editable = "--editable " if origin["dir_info"].get("editable") else ""
        place = "." if folder == Path.cwd() else str(folder)
        return f"pip install {editable}{shlex.quote(f'{place}[{extra}]')}"
    if "vcs_info" in origin:
        url = f"{origin['vcs_info']['vcs']}+{url}"
    wanted = f"brinell[{extra}] @ {url}" if url else f"brinell[{extra}]"
    return f"pip install {shlex.quote(wanted)}"


def _origin() -> dict[str, Any]:
    """Return where pip installed this package from (PEP 610); nothing if it was an index."""
    try:
        text = distribution("brinell").read_text("direct_url.json")
    except PackageNotFoundError:  # run from its source, without being installed
        return {"url": Path(__file__).resolve().parents[2].as_uri(), "dir_info": {"editable": True}}
    return json.loads(text) if text else {}
