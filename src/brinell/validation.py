"""Validation of options: errors say where the problem is, what was expected and what was found."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from brinell.documents import load_yaml, printable
from brinell.errors import ConfigError
from brinell.registry import nearest

M = TypeVar("M", bound=BaseModel)
Location = tuple[int | str, ...]


def validate(kind: type[M], value: Any, known_keys: Callable[[Location], list[str]] | None = None) -> M:
    """Return a value as options of a kind, and raise an error of one line if it is invalid.

    `known_keys` returns the keys at a location, which are suggested for an unknown one.
    """
    try:
        return kind.model_validate(value)
    except ValidationError as error:
        raise ConfigError(_explain(error, known_keys or (lambda _: list(kind.model_fields)))) from None


def read_yaml(path: Path, what: str, content: str) -> dict[str, Any]:
    """Read a YAML file that holds a mapping; `what` it is and its `content` are for error messages."""
    try:
        found = load_yaml(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"the {what} {path} can't be read: {error.strerror}") from None
    except ValueError as error:  # what is not UTF-8 is one, too
        raise ConfigError(f"{path} is not valid YAML: {error}") from None
    if not isinstance(found, dict):
        raise ConfigError(f"{path} should contain a mapping with {content}, but contains {type(found).__name__}")
    return found


def read_config(path: Path, content: str) -> dict[str, Any]:
    """Read a config from a YAML file, which may come from a stranger: consent to run code is not taken from it."""
    found = read_yaml(path, "config", content)
    execution = found.get("execution")
    if isinstance(execution, dict) and execution.get("trust"):
        raise ConfigError(
            f"{path} allows code to be run (execution.trust), which a file can't do; remove it, and give --trust, or "
            "--set execution.trust=true, on the command line if you trust the model"
        )
    return found


def _explain(error: ValidationError, known_keys: Callable[[Location], list[str]]) -> str:
    problems = error.errors(include_url=False)
    parts = []
    for problem in problems:
        location = problem["loc"]
        where = ".".join(str(step) for step in location) or "config"
        if any(len(other["loc"]) > len(location) and other["loc"][: len(location)] == location for other in problems):
            continue  # a problem inside a part says more than that the part is invalid
        if problem["type"] == "extra_forbidden":
            parts.append(f"{where} is not an option; {nearest(str(location[-1]), known_keys(location))}")
        elif problem["type"] == "missing":
            parts.append(f"{where} is missing")
        else:
            parts.append(f"{where}: {problem['msg'].lower()}, got {problem['input']!r}")
    return printable("; ".join(parts))  # keys may hold line breaks
