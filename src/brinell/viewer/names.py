"""Names in paths: the same in a browser, on the server and in file names. `static/js/api.js` has the same functions."""

from __future__ import annotations

import re
from collections.abc import Sequence


def escape(text: str) -> str:
    """Return a text as part of a path: letters, digits, dots, dashes and underscores; other bytes as ~XX."""
    return re.sub(r"[^A-Za-z0-9._-]", lambda found: "".join(f"~{byte:02X}" for byte in found[0].encode()), text)


def unescape(text: str) -> str:
    """Return what was escaped; raise a ValueError if it wasn't."""
    if re.search(r"~(?![0-9A-F]{2})", text):
        raise ValueError(text)
    data = re.sub(rb"~([0-9A-F]{2})", lambda found: bytes([int(found[1], 16)]), text.encode())
    return data.decode()


def format_parameters(parameters: Sequence[float], field: int = 0) -> str:
    """Return parameters of a change as part of a path: "7", "0.25_f3"."""
    words = [repr(float(value)).removesuffix(".0") for value in parameters]
    return "_".join([*words, *([f"f{field}"] if field else [])])


def parse_parameters(text: str) -> tuple[tuple[float, ...], int]:
    """Return the parameters and the random field; raise a ValueError if the text is something else."""
    *words, last = text.split("_")
    if last.startswith("f"):
        return tuple(map(float, words)), int(last[1:])
    return tuple(map(float, [*words, last])), 0
