"""The help of `brinell` itself, with its commands by panel, and of each command, with its options by panel."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from itertools import groupby
from typing import Any

from rich.console import Console
from rich.padding import Padding
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from brinell.cli.commands import Command
from brinell.cli.flags import OPTION_WIDTH

_ARGUMENTS, _OPTIONS = "Arguments", "Options"


def print_help(text: str, commands: Sequence[Command], parameters: Sequence[Any]) -> None:
    """Print what brinell is, how it is called, its commands and its options."""
    console = Console(highlight=False)
    console.print("\n [bold]Usage:[/] brinell COMMAND …\n")
    console.print(Padding(text, (0, 1, 1, 1)))
    width = max(len(command.name) for command in commands)
    for panel, mine in groupby(commands, key=lambda command: command.panel):
        _print_panel(console, panel, [(command.name, command.summary) for command in mine], width)
    _print_panel(console, _OPTIONS, [(parameter.opts[0], parameter.help or "") for parameter in parameters], width)
    console.print(" Start with [bold]brinell demo[/], or [bold]brinell run --model timm:resnet50 --data photos/[/].\n")


def print_command_help(usage: str, text: str, parameters: Sequence[Any]) -> None:
    """Print what a command does, with an example, and its arguments and options.

    Typer gives names, negations, types and descriptions a column each, which leaves descriptions of long lists of options
    a few characters per line.
    """
    console = Console(highlight=False)
    arguments = " ".join(_placeholder(parameter) for parameter in parameters if not _is_option(parameter))
    console.print(f"\n [bold]Usage:[/] {usage} \\[OPTIONS]", end=" ")
    console.print(arguments, markup=False)
    for paragraph in inspect.cleandoc(text).split("\n\n"):
        shown = paragraph if paragraph.startswith("Example") else paragraph.replace("\n", " ")
        console.print(Padding(shown, (1, 1, 0, 1)))
    console.print()
    for panel in dict.fromkeys(map(_panel, sorted(parameters, key=_is_last))):
        mine = [parameter for parameter in parameters if _panel(parameter) == panel]
        _print_panel(console, panel, [(_heading(parameter), _description(parameter)) for parameter in mine])


def _print_panel(console: Console, title: str, rows: Sequence[tuple[str, str]], width: int | None = None) -> None:
    table = Table.grid(padding=(0, 2))
    if width is None:
        table.add_column(style="bold cyan", width=min(OPTION_WIDTH, max(len(name) for name, _ in rows)), overflow="fold")
    else:
        table.add_column(style="bold cyan", no_wrap=True, min_width=width)
    table.add_column()
    for name, text in rows:
        table.add_row(Text(name), Text(text))
    console.print(Panel(table, title=title, title_align="left", border_style="dim"))


def _is_option(parameter: Any) -> bool:
    return bool(parameter.opts[0].startswith("-"))


def _panel(parameter: Any) -> str:
    return getattr(parameter, "rich_help_panel", None) or (_OPTIONS if _is_option(parameter) else _ARGUMENTS)


def _is_last(parameter: Any) -> bool:
    """Whether a parameter's panel follows those that say what a command does: options such as --yes and --help."""
    return _panel(parameter) == _OPTIONS


def _heading(parameter: Any) -> str:
    """Return an option with the placeholder of its value, and --[no-]NAME if it can be negated."""
    if not _is_option(parameter):
        return _placeholder(parameter)
    long, *short = parameter.opts
    if parameter.secondary_opts:
        long = f"--[no-]{long.removeprefix('--')}"
    value = "" if parameter.is_flag else _value(parameter)
    return " ".join(filter(None, [", ".join([*short, long]), value]))


def _placeholder(parameter: Any) -> str:
    """Return an argument as the usage names it."""
    return _value(parameter) if parameter.required else f"[{_value(parameter)}]"


def _value(parameter: Any) -> str:
    return str(parameter.metavar or parameter.name.strip("_").upper().replace("_", "-"))


def _description(parameter: Any) -> str:
    """Return a parameter's help, with its default unless the help gives it."""
    text = parameter.help or ""
    if parameter.required and _is_option(parameter):
        return f"{text.removesuffix('.')} (required)."
    default = parameter.default
    if not parameter.show_default or default is None or default is False or default == "" or "default" in text:
        return text
    return f"{text.removesuffix('.')} (default: {'yes' if default is True else default})."
