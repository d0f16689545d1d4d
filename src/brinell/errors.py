"""The errors a user can meet. Each message says what was expected, what came and what to do.

BrinellError
├── ConfigError         a config, option or command line that can't be run
│   └── UnknownName     a name that no registry holds; the nearest names are suggested
├── DataError           a dataset that can't be used
│   ├── UnreadableImage one image that can't be decoded (a run skips it and goes on)
│   └── LabelError      labels that don't fit the model's classes
├── ModelError          a model that can't be loaded or whose answer can't be used
│   └── ServiceError    a model behind HTTP that can't be reached or doesn't answer as it should
├── BudgetSpent         as many queries were asked as --max-queries allows
├── RunError            a run folder that can't be read, written or continued
└── MissingExtra        an optional dependency that isn't installed
"""

from __future__ import annotations


class BrinellError(Exception):
    """Base of all errors that are told to the user in one line."""


class ConfigError(BrinellError):
    """A config, option or command line that can't be run."""


class UnknownName(ConfigError):
    """A name that no registry holds."""


class DataError(BrinellError):
    """A dataset that can't be used."""


class UnreadableImage(DataError):
    """One image that can't be decoded."""

    def __init__(self, name: str, problem: str) -> None:
        super().__init__(f"{name}: {problem}")
        self.name, self.problem = name, problem


class LabelError(DataError):
    """Labels that don't fit the model's classes."""


class ModelError(BrinellError):
    """A model that can't be loaded or whose answer can't be used."""


class ServiceError(ModelError):
    """A model behind HTTP that can't be reached or doesn't answer as it should."""


class BudgetSpent(BrinellError):
    """As many queries were asked as --max-queries allows."""


class RunError(BrinellError):
    """A run folder that can't be read, written or continued."""


class MissingExtra(BrinellError):
    """An optional dependency that isn't installed."""

    def __init__(self, package: str, extra: str) -> None:
        super().__init__(f"this needs {package}, which is not installed: pip install 'brinell[{extra}]'")
