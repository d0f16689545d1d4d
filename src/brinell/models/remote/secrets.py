"""${NAME} in texts: values that are read from the environment when they are needed, and never stored."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from typing import Any

from brinell.errors import ConfigError

_SECRET_NAME = re.compile(r"key|token|secret|passw|signature|^sig$|auth|credential|cookie", re.IGNORECASE)
_VARIABLE = re.compile(r"\$\{(\w+)\}")
REDACTED = "***"


def expand(text: str) -> str:
    """Replace each ${NAME} in a text by the environment variable's value."""
    return _VARIABLE.sub(lambda match: _variable(match[1]), text)


def find_secrets(value: Any) -> list[str]:
    """Return the values of all environment variables that a text, or any text inside a value, refers to."""
    if isinstance(value, str):
        return [_variable(name) for name in _VARIABLE.findall(value)]
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [secret for part in parts for secret in find_secrets(part)]


def _variable(name: str) -> str:
    value = os.environ.get(name, "")
    if not value:
        raise ConfigError(f"the environment variable {name} is not set; export it first")
    if not (value.isascii() and value.isprintable()):
        raise ConfigError(f"the environment variable {name} contains line breaks or other characters that a request can't")
    return value


def is_secret(name: str) -> bool:
    """Whether a header or parameter of this name usually holds a secret."""
    return _SECRET_NAME.search(name) is not None


def literal_secrets(headers: Mapping[str, str]) -> list[str]:
    """Return the values of headers that hold a secret as it is, with and without their scheme, such as Bearer."""
    values = [value for name, value in headers.items() if is_secret(name) and "${" not in value]
    return [part for value in values for part in (value, value.rpartition(" ")[2]) if len(part) >= 4]


def redact(text: str, *values: Any, known: Iterable[str] = ()) -> str:
    """Replace all secrets of some values, and those that are known, in a text by ***."""
    found = {*known, *(secret for value in values for secret in find_secrets(value))}
    for secret in sorted(found, key=len, reverse=True):
        text = text.replace(secret, REDACTED)
    return text
