"""Commands that lenses contribute: functions of an opened run that return what is printed."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import Annotated, Any

import typer

from brinell.cli.console import out
from brinell.results import Run

Folder = Annotated[str, typer.Argument(metavar="RUN", help="Folder or URL of a run.")]


def with_folder(function: Callable[..., Iterable[Any]]) -> Callable[..., None]:
    """Return a command that gets the folder of a run where the function gets the opened run, and prints the result."""
    _, *own = inspect.signature(function).parameters.values()

    def command(folder: str, **given: Any) -> None:
        out.print(*function(Run(folder), **given), sep="\n")

    folder = inspect.Parameter("folder", inspect.Parameter.KEYWORD_ONLY, annotation=Folder)
    parameters = [folder, *(parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in own)]
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    command.__doc__ = function.__doc__
    return command
