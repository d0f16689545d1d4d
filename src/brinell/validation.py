"""Options checked once, at the border: where, what was expected, what came."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ValidationError

from brinell.errors import ConfigError
from brinell.registry import nearest

M = TypeVar("M", bound=BaseModel)
Place = tuple[int | str, ...]


def validated(kind: type[M], value: Any, known_keys: Callable[[Place], list[str]] | None = None) -> M:
    """A value as options of a kind, or an error in one line. `known_keys` tells the keys of nested parts."""
    try:
        return kind.model_validate(value)
    except ValidationError as error:
        raise ConfigError(_explained(error, known_keys or (lambda _: list(kind.model_fields)))) from None


def read_yaml(path: Path, what: str, holding: str) -> dict[str, Any]:
    """A YAML file as a mapping; `what` it is and what it should be `holding` are for the errors."""
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"the {what} {path} can't be read: {error.strerror}") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not valid YAML: {' '.join(str(error).split())}") from None
    if not isinstance(content, dict):
        raise ConfigError(f"{path} should hold a mapping with {holding}, but holds {type(content).__name__}")
    return content


def _explained(error: ValidationError, known_keys: Callable[[Place], list[str]]) -> str:
    findings = error.errors(include_url=False)
    parts = []
    for finding in findings:
        place = finding["loc"]
        where = ".".join(str(step) for step in place) or "config"
        if any(len(other["loc"]) > len(place) and other["loc"][: len(place)] == place for other in findings):
            continue  # what is wrong inside a part says more than that the part is wrong
        if finding["type"] == "extra_forbidden":
            parts.append(f"{where} is no key of a config; {nearest(str(place[-1]), known_keys(place))}")
        elif finding["type"] == "missing":
            parts.append(f"{where} is missing")
        else:
            parts.append(f"{where}: {finding['msg'].lower()}, got {finding['input']!r}")
    return "; ".join(parts)
