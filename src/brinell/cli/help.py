"""The help of `brinell` itself: commands by panel."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any

from rich.console import Console
from rich.panel import Panel
from rich.table import Table

from brinell.cli.commands import Command


def print_help(text: str, commands: Sequence[Command], parameters: Sequence[Any]) -> None:
    """Print what brinell is, how it is called, its commands and its options."""
    console = Console(highlight=False)
    console.print(f"\n [bold]Usage:[/] brinell COMMAND …\n\n {text}\n")
    width = max(len(command.name) for command in commands)
    for panel, mine in groupby(commands, key=lambda command: command.panel):
        table = _grid(width)
        for command in mine:
            table.add_row(command.name, command.summary)
        console.print(Panel(table, title=panel, title_align="left", border_style="dim"))
    options = _grid(width)
    for parameter in parameters:
        options.add_row(parameter.opts[0], parameter.help or "")
    console.print(Panel(options, title="Options", title_align="left", border_style="dim"))
    console.print(" Start with [bold]brinell demo[/], or [bold]brinell run --model timm:resnet50 --data photos/[/].\n")


def _grid(width: int) -> Table:
    table = Table.grid(padding=(0, 2))
    table.add_column(style="bold cyan", no_wrap=True, min_width=width)
    table.add_column()
    return table
