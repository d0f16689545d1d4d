"""Commands that inspect: summary, report, rows, show and ls."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from brinell.cli.console import out, print_findings, print_json, say
from brinell.report.rows import shown_by_lens, sql_errors
from brinell.results import Run
from brinell.runs.plain import to_plain
from brinell.runs.queries import describe_queries

Folder = Annotated[str, typer.Argument(metavar="RUN", help="Folder or URL of a run.")]


def report(
    folder: Folder,
    rules: Annotated[
        Path | None,
        typer.Option(help="YAML file of rules, whose result the report begins with (default: those of `brinell gate`)."),
    ] = None,
    figures: Annotated[bool, typer.Option("--figures", help="Also write all figures as SVG and PNG.")] = False,
) -> None:
    """Write a run's HTML report: one file that opens anywhere.

    Example: [bold]brinell report runs/first --figures[/]
    """
    run = Run(folder)
    say(f"report: {run.report(rules)}")
    if figures:
        say(f"{len(run.figures())} figures: {run.store.place('figures')}")


def summary(
    folder: Folder,
    as_json: Annotated[bool, typer.Option("--json", help="Print everything as JSON.")] = False,
    threshold: Annotated[
        list[float] | None, typer.Option(min=0, max=1, help="Accuracy to report failure points for; may be repeated.")
    ] = None,
    at_least: Annotated[
        list[int] | None, typer.Option(min=1, help="Failing variants that make an image fail (S ≥ k); may be repeated.")
    ] = None,
) -> None:
    """Print what a run found: a table and a verdict for each lens and model.

    Example: [bold]brinell summary runs/first --json[/]
    """
    given = {"thresholds": tuple(threshold or ()), "at_least": tuple(at_least or ())}
    options = {key: value for key, value in given.items() if value}
    run = Run(folder)
    if as_json:
        print_json(run.to_json(**options))
        return
    analyses = run.shown()
    found = run.findings(**options)
    print_findings([(show, name, found[name]) for show, name, _ in analyses] if options else analyses)
    say(*describe_queries(run.manifest))


def rows(
    folder: Folder,
    sql: Annotated[
        str | None, typer.Argument(help="SQL over the tables rows, samples and clean (DuckDB; default: the rows).")
    ] = None,
    columns: Annotated[
        str | None, typer.Option(help="Columns to print, as a,b,c (default: those with values that fit).")
    ] = None,
    csv: Annotated[Path | None, typer.Option(help="Write the whole result to a CSV file.")] = None,
    parquet: Annotated[Path | None, typer.Option(help="Write the whole result to a Parquet file.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the whole result as JSON.")] = False,
) -> None:
    """Query a run's rows in SQL.

    Prints the first rows with the names of images and classes; files and JSON hold everything, as it is stored.

    Example: [bold]brinell rows runs/first "select operator, avg(correct::int) from rows group by all order by 2"[/]
    """
    run = Run(folder)
    names = [name.strip() for name in (columns or "").split(",") if name.strip()]
    if sql is None and not (csv or parquet or as_json):
        out.print(*shown_by_lens(run.rows, run, names, out.width), sep="\n")
        return
    result = run.rows("select * from rows" if sql is None else sql)
    with sql_errors():
        if csv is not None:
            result.write_csv(str(csv))
        if parquet is not None:
            result.write_parquet(str(parquet))
        if as_json:
            print_json(to_plain(result.arrow().to_pylist()))
        elif csv is None and parquet is None:
            out.print(*result.shown(names, out.width), sep="\n")


def show(
    image: Annotated[Path, typer.Argument(help="Image file.")],
    operator: Annotated[
        list[str] | None, typer.Option(help="NAME or NAME:VARIANT (default: all); may be repeated.")
    ] = None,
    level: Annotated[list[int] | None, typer.Option(help="Level to draw; may be repeated.")] = None,
    spot: Annotated[
        list[str] | None,
        typer.Option(help="Spot of light as X,Y,SIGMA[,STRENGTH] in pixels of the image; may be repeated."),
    ] = None,
    size: Annotated[int, typer.Option(min=1, help="Side that the image is resized to.")] = 224,
    seed: Annotated[int, typer.Option(help="Seed of the random draws.")] = 0,
    model: Annotated[
        str | None, typer.Option(help="Torch model for operators that need gradients, or detector whose boxes are drawn.")
    ] = None,
    file: Annotated[Path, typer.Option("--out", help="PNG file to write.")] = Path("levels.png"),
) -> None:
    """Draw an image under operators, as a contact sheet.

    Example: [bold]brinell show cat.jpg --operator white_fog --operator jpeg --out cat.png[/]
    """
    from brinell.cli.sheet import contact_sheet, save

    save(contact_sheet(image, operator or [], level or [], spot or [], size=size, seed=seed, model=model), file)
    say(f"wrote {file}")


def ls(
    what: Annotated[str, typer.Argument(metavar="KIND", help="lenses, presets, operators, models, datasets or criteria.")],
) -> None:
    """List lenses, presets, operators, models, datasets or criteria.

    Example: [bold]brinell ls operators[/]
    """
    from brinell.cli.listing import listing

    out.print(listing(what))
