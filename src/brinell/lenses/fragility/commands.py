"""The lens's own commands."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from brinell.lenses.fragility.human import compare
from brinell.lenses.fragility.tables import comparison_table
from brinell.runs.run import Run


def human(
    run: Run,
    people: Annotated[Path, typer.Argument(help="CSV or JSON file of boxes, or folder of PNG maps.")],
    operator: Annotated[str, typer.Option(help="Windows to compare, by operator.")] = "windows:0.4",
) -> list[Any]:
    """Compare people's minimal images with a model's: how many there are, and whether they overlap.

    Example: [bold]brinell human runs/maps people.csv --operator windows:0.4[/]
    """
    return comparison_table(compare(run, people, operator))
