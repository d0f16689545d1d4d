"""${NAME} in texts: values that come from the environment when they are needed, and are written nowhere."""

from __future__ import annotations

import os
import re
from typing import Any

from brinell.errors import ConfigError

_VARIABLE = re.compile(r"\$\{(\w+)\}")
HIDDEN = "***"


def expanded(text: str) -> str:
    """A text with the environment's values for ${NAME}."""
    return _VARIABLE.sub(lambda match: _variable(match[1]), text)


def secrets(value: Any) -> list[str]:
    """The values of all environment variables that a text, or all texts in a value, asks for."""
    if isinstance(value, str):
        return [_variable(name) for name in _VARIABLE.findall(value)]
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [secret for part in parts for secret in secrets(part)]


def _variable(name: str) -> str:
    value = os.environ.get(name, "")
    if not value:
        raise ConfigError(f"the environment variable {name} is asked for, but not set; export it first")
    if not (value.isascii() and value.isprintable()):
        raise ConfigError(f"the environment variable {name} holds line breaks or other signs that a request can't")
    return value


def hidden(text: str, *values: Any) -> str:
    """A text in which no secret of some values can be read."""
    for secret in sorted({secret for value in values for secret in secrets(value)}, key=len, reverse=True):
        text = text.replace(secret, HIDDEN)
    return text
