"""The lens's own commands. What they need is imported when they run, so that `brinell --help` stays fast."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from brinell.runs.run import Run


def human(
    run: "Run",
    people: Annotated[Path, typer.Argument(metavar="PEOPLE", help="CSV or JSON file of boxes, or folder of PNG maps.")],
    operator: Annotated[str, typer.Option(help="Windows to compare, by operator.")] = "windows:0.4",
) -> list[Any]:
    """Compare people's minimal images with a model's.

    Prints how many there are in each image, and how far their positions and areas overlap.

    Example: [bold]brinell human runs/maps people.csv --operator windows:0.4[/]
    """
    from brinell.lenses.fragility.human import compare
    from brinell.lenses.fragility.tables import comparison_table

    return comparison_table(compare(run, people, operator))
