"""`brinell curate`: a data set of failures."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Console

from brinell.api import curate as curate_runs
from brinell.config.execution import Execution

_WHICH, _HOW = "Which failures", "How they are written"


def curate(
    runs: Annotated[list[str], typer.Argument(metavar="RUN…", help="Folders of finished runs.")],
    out: Annotated[str, typer.Option("--out", "-o", help="The data set's folder, or an fsspec URL.")],
    lens: Annotated[str | None, typer.Option(help="Of this lens alone.", rich_help_panel=_WHICH)] = None,
    operator: Annotated[
        list[str] | None, typer.Option(help="Of these operators or properties; may be repeated.", rich_help_panel=_WHICH)
    ] = None,
    every: Annotated[
        bool,
        typer.Option("--all", help="All failing versions, not the least of each image.", rich_help_panel=_WHICH),
    ] = False,
    fail: Annotated[
        str, typer.Option(help="How many models fail on it: any, all, or at least so many.", rich_help_panel=_WHICH)
    ] = "any",
    distance: Annotated[
        str,
        typer.Option(help="What least means: mse, mae, l1, l2, linf, l0 or changed.", rich_help_panel=_WHICH),
    ] = "mse",
    min_distance: Annotated[
        float | None, typer.Option(help="No nearer to the clean image.", rich_help_panel=_WHICH)
    ] = None,
    max_distance: Annotated[
        float | None, typer.Option(help="No farther from the clean image.", rich_help_panel=_WHICH)
    ] = None,
    margin: Annotated[
        float | None,
        typer.Option(help="The wrong answer is surer than the right one by so much.", rich_help_panel=_WHICH),
    ] = None,
    per_class: Annotated[int | None, typer.Option(help="At most so many of a class.", rich_help_panel=_WHICH)] = None,
    near_duplicates: Annotated[
        int | None,
        typer.Option(
            metavar="BITS",
            help="Leave out what looks like one taken before: perceptual hashes within so many of 64 bits.",
            rich_help_panel=_WHICH,
        ),
    ] = None,
    limit: Annotated[int | None, typer.Option(help="At most so many in all.", rich_help_panel=_WHICH)] = None,
    layout: Annotated[
        str, typer.Option(help="imagefolder, coco or paper (operator/image/model).", rich_help_panel=_HOW)
    ] = "imagefolder",
    format: Annotated[str, typer.Option(help="png or webp, both without loss.", rich_help_panel=_HOW)] = "png",
    data: Annotated[
        str | None, typer.Option(help="Where the runs' images lie now, if they moved.", rich_help_panel=_HOW)
    ] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.", rich_help_panel=_HOW)] = "auto",
    trust: Annotated[bool, typer.Option("--trust", help="Let weights files run code.", rich_help_panel=_HOW)] = False,
) -> None:
    """Make a data set of the images that models fail on, as they saw them.

    Example: [bold]brinell curate runs/first runs/second -o failures --fail all --per-class 20[/]
    """
    options = {
        "lens": lens,
        "operators": operator or [],
        "every": every,
        "fail": fail,
        "distance": distance,
        "min_distance": min_distance,
        "max_distance": max_distance,
        "margin": margin,
        "per_class": per_class,
        "near_duplicates": near_duplicates,
        "limit": limit,
        "layout": layout,
        "format": format,
    }
    found = curate_runs(runs, out, options, data=data, execution=Execution(device=device, trust=trust))
    console = Console(markup=False, highlight=False)
    models = ", ".join(f"{model} fails on {count:,}" for model, count in found.models.items())
    console.print(
        f"{found.images:,} pictures of {found.originals:,} originals, {len(found.operators)} operators and "
        f"{len(found.classes)} classes: {models}",
        soft_wrap=True,
    )
    console.print(f"data set: {found.folder}", soft_wrap=True)
