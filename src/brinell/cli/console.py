"""What commands print with."""

from __future__ import annotations

from typing import Any

from rich.console import Console

out = Console(markup=False, highlight=False)  # names of models and folders may hold brackets


def say(*lines: Any) -> None:
    """Print lines that may be longer than the terminal, such as paths, without breaking them."""
    for line in lines:
        out.print(line, soft_wrap=True)


def print_json(data: Any) -> None:
    """Print plain data as JSON."""
    out.print_json(data=data, allow_nan=False)


def print_findings(shown: list[Any]) -> None:
    """Print the tables of findings."""
    for show, _, findings in shown:
        out.print(*show.table(findings), sep="\n")
