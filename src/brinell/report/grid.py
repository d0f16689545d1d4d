"""Tables for terminals and notebooks. A table that is too wide for the terminal is stacked; no value is ever cut."""

from __future__ import annotations

import html
import io
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from rich import box
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

GAP = 2  # characters between columns


@dataclass(frozen=True)
class Grid:
    """A table: its heads, and rows of texts. The first column names the row; numbers are aligned to the right.

    Lines of a cell are separated by newlines. `styles` are those of the rows; `note` is printed below.
    """

    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    title: str = ""
    note: str = ""
    left: frozenset[int] = frozenset({0})  # columns that are aligned to the left
    styles: tuple[str, ...] = ()

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        if self.title:
            yield Text(f"\n{self.title}", style="bold")
        widths = self._widths(options.max_width)
        if widths is None:
            yield from self._stacked()
        else:
            yield self._table(widths)
        if self.note:
            yield Text(self.note, style="dim")

    def _widths(self, room: int) -> list[int] | None:
        """Return the width of each column, at least that of its longest word; None if they don't fit."""
        columns = list(zip(self.heads, *self.rows, strict=True))
        least = [max(_longest(cell.split()) for cell in column) for column in columns]
        most = [max(_longest(cell.split("\n")) for cell in column) for column in columns]
        spare = room - sum(least) - GAP * (len(columns) - 1)
        if spare < 0:
            return None
        widths = list(least)
        while spare > 0 and widths != most:
            for index in [index for index in range(len(widths)) if widths[index] < most[index]][:spare]:
                widths[index] += 1
                spare -= 1
        return widths

    def _table(self, widths: Sequence[int]) -> Table:
        table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, GAP - 1, 0, 0))
        for index, (head, width) in enumerate(zip(self.heads, widths, strict=True)):
            justify: Any = "left" if index in self.left else "right"
            table.add_column(Text(head), justify=justify, width=width)
        for number, row in enumerate(self.rows):
            table.add_row(*map(Text, row), style=self._style(number))
        return table

    def _stacked(self) -> Iterator[Any]:
        for number, (first, *cells) in enumerate(self.rows):
            yield Text(first, style=f"bold {self._style(number)}".strip())
            for head, cell in zip(self.heads[1:], cells, strict=True):
                if cell.strip():
                    text = f"{head}: {' '.join(cell.split())}" if head.strip() else cell
                    yield Padding(Text(text, style=self._style(number)), (0, 0, 0, 2), expand=False)

    def _style(self, row: int) -> str:
        return self.styles[row] if self.styles else ""

    def _repr_html_(self) -> str:
        """Return the table as HTML. Alignment is written out: notebooks and pages align cells by rules of their own."""
        sides = ["left" if index in self.left else "right" for index in range(len(self.heads))]
        title = f"<caption>{html.escape(self.title)}</caption>" if self.title else ""
        heads = "".join(_cell("th", head, side) for head, side in zip(self.heads, sides, strict=True))
        rows = "".join(
            f"<tr>{''.join(_cell('td' if index else 'th', row[index], side) for index, side in enumerate(sides))}</tr>"
            for row in self.rows
        )
        note = f"<p><small>{html.escape(self.note)}</small></p>" if self.note else ""
        return f"<table>{title}<thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table>{note}"


def _cell(tag: str, text: str, side: str) -> str:
    return f"<{tag} style='text-align: {side}'>{_html(text)}</{tag}>"


def _longest(words: Iterable[str]) -> int:
    return max((cell_len(word) for word in words), default=0)


def _html(cell: str) -> str:
    return "<br>".join(html.escape(line) for line in cell.split("\n"))


def to_text(shown: Iterable[Any]) -> str:
    """Return grids and texts as a terminal prints them, without colours."""
    console = Console(file=io.StringIO(), markup=False, highlight=False, color_system=None, force_jupyter=False)
    with console.capture() as captured:
        console.print(*shown, sep="\n")
    return "\n".join(line.rstrip() for line in captured.get().splitlines()).strip("\n")


def to_html(shown: Iterable[Any]) -> str:
    """Return grids and texts for a notebook."""
    return "".join(one._repr_html_() if hasattr(one, "_repr_html_") else f"<p>{html.escape(str(one))}</p>" for one in shown)
