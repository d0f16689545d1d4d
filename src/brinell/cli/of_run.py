"""Commands that lenses contribute: functions of an opened run that return what to print."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Annotated, Any

import typer

from brinell.cli.console import out
from brinell.results import Run

_FOLDER = Annotated[str, typer.Argument(metavar="RUN", help="Folder or URL of a run.")]


def of_run(function: Callable[..., list[Any]]) -> Callable[..., None]:
    """Return a command that opens the run whose folder it is given, calls a function and prints what it returns."""
    _, *parameters = inspect.signature(function).parameters.values()

    def command(folder: str, **arguments: Any) -> None:
        out.print(*function(Run(folder), **arguments), sep="\n")

    first = inspect.Parameter("folder", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=_FOLDER)
    signature = inspect.Signature([first, *parameters])
    command.__signature__ = signature  # type: ignore[attr-defined]
    command.__annotations__ = {name: parameter.annotation for name, parameter in signature.parameters.items()}
    command.__doc__ = function.__doc__
    return command
