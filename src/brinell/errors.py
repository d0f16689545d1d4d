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
├── PluginError         an installed package whose entry point can't be loaded
└── MissingExtra        an optional dependency that isn't installed
"""

from __future__ import annotations


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
        super().__init__(f"{name}: {problem}")
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


class PluginError(BrinellError):
    """An installed package whose entry point can't be loaded."""


class MissingExtra(BrinellError):
    """An optional dependency that isn't installed."""

    def __init__(self, package: str, extra: str) -> None:
        super().__init__(f"this needs {package}, which is not installed: pip install 'brinell[{extra}]'")
