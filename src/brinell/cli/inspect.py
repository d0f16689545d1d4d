"""Commands that inspect: summary, report, rows, verify, show and ls."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from brinell.cli.console import out, print_findings, print_json, say
from brinell.errors import ConfigError
from brinell.lenses.sample import describe_sample
from brinell.report.rows import shown_by_lens, sql_errors
from brinell.results import Run, merge
from brinell.runs.plain import to_plain
from brinell.runs.queries import describe_invalid, describe_queries

NOT_VERIFIED = 1  # exit code
Folder = Annotated[str, typer.Argument(metavar="RUN", help="Folder or URL of a run.")]
Verified = Annotated[str, typer.Argument(metavar="RUN", help="Folder or URL of a run, or the folder of a test record.")]


def report(
    folders: Annotated[
        list[str], typer.Argument(metavar="RUN...", help="Folder or URL of a run; several are combined into one page.")
    ],
    rules: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="YAML file of rules, whose result is shown first (default: the rules last checked by `brinell gate`).",
        ),
    ] = None,
    figures: Annotated[bool, typer.Option("--figures", help="Also write all figures as SVG and PNG.")] = False,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="HTML file to write (default: report.html in the run's folder; for several runs, in the current folder).",
        ),
    ] = None,
) -> None:
    """Write a run's report: one self-contained HTML file.

    Several runs on the same images are combined into one page, with their models and lenses side by side.

    Example: [bold]brinell report runs/first runs/second --out both.html[/]
    """
    run = merge(*folders)
    if out is None and len(folders) > 1:
        out = Path("report.html")
    say(f"report: {run.report(rules, out=out)}")
    if figures:
        say(f"{len(run.figures())} figures: {run.store.place('figures')}")


def card(
    folder: Folder,
    model: Annotated[
        list[str] | None, typer.Option(help="Model to write a card for (default: all); may be repeated.")
    ] = None,
) -> None:
    """Write a card for each model to share: its verdict, its hardness and what breaks it.

    Writes SVG, PNG, and Markdown with a model-index block for Hugging Face to the folder cards of the run.

    Example: [bold]brinell card runs/first[/]
    """
    run = Run(folder)
    written = run.cards(models=model or ())
    say(*(f"card: {run.store.place('cards', name)}" for name in written))


def summary(
    folder: Folder,
    as_json: Annotated[bool, typer.Option("--json", help="Print everything as JSON.")] = False,
    threshold: Annotated[
        list[float] | None,
        typer.Option(min=0, max=1, metavar="X", help="Accuracy threshold of failure points, 0 to 1; may be repeated."),
    ] = None,
    at_least: Annotated[
        list[int] | None,
        typer.Option(
            min=1,
            metavar="K",
            help="Number of failing variants from which an image counts as failed (S ≥ k); may be repeated.",
        ),
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
    say(*filter(None, [describe_sample(run)]), *describe_queries(run.manifest), *describe_invalid(run))


def rows(
    folder: Folder,
    sql: Annotated[
        str | None,
        typer.Argument(help="DuckDB SQL over the tables rows, samples and clean (default: show the first rows)."),
    ] = None,
    columns: Annotated[
        str | None, typer.Option(help="Columns to print, as a,b,c (default: columns with values, as many as fit).")
    ] = None,
    csv: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the whole result to a CSV file.")] = None,
    parquet: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the whole result to a Parquet file.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the whole result as JSON.")] = False,
) -> None:
    """Query a run's rows in SQL.

    Prints the first rows, with the names of images and classes. Files and JSON contain all rows, as stored.

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


def verify(
    folder: Verified,
    sample: Annotated[
        int,
        typer.Option(
            min=0, metavar="N", help="Number of image-operator pairs to measure again; 0: none, and no model is opened."
        ),
    ] = 12,
    seed: Annotated[int, typer.Option(metavar="N", help="Seed for the choice of these pairs.")] = 0,
    trust: Annotated[bool, typer.Option("--trust", help="Allow model files to run code when they are loaded.")] = False,
    run: Annotated[str | None, typer.Option(help="Current location of the test record's run, if it has moved.")] = None,
    signers: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="File of allowed signers of a test record (in the format of ssh-keygen)."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print everything as JSON.")] = False,
) -> None:
    """Check that a run is complete, undamaged and repeatable; or check a test record and everything it refers to.

    Exit code 1 if a check fails.

    Examples: [bold]brinell verify runs/first --sample 50[/] or [bold]brinell verify evidence/[/]
    """
    from brinell.engine.verification import describe_checks
    from brinell.evidence.verification import is_evidence, verify_evidence

    if is_evidence(Path(folder)):
        checks = verify_evidence(Path(folder), run=run, sample=sample, trust=trust, signers=signers)
    else:
        checks = Run(folder).verify(sample, seed=seed, trust=trust, quiet=as_json)
    if as_json:
        print_json({"version": 1, "run": folder, "checks": [asdict(check) for check in checks]})
    else:
        say(*describe_checks(checks))
    if not all(check.passed for check in checks):
        raise typer.Exit(NOT_VERIFIED)


def show(
    image: Annotated[Path, typer.Argument(help="Image file.")],
    operator: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Operator, as NAME or NAME:VARIANT (default: all); may be repeated."),
    ] = None,
    level: Annotated[list[int] | None, typer.Option(metavar="N", help="Level to draw; may be repeated.")] = None,
    spot: Annotated[
        list[str] | None,
        typer.Option(
            metavar="X,Y,SIGMA", help="Spot of light as X,Y,SIGMA[,STRENGTH] in pixels of the image; may be repeated."
        ),
    ] = None,
    size: Annotated[int, typer.Option(min=1, metavar="N", help="Side in pixels that the image is resized to.")] = 224,
    seed: Annotated[int, typer.Option(metavar="N", help="Seed of the random draws.")] = 0,
    model: Annotated[
        str | None, typer.Option(help="Torch model for operators that need gradients, or detector whose boxes to draw.")
    ] = None,
    file: Annotated[Path, typer.Option("--out", help="PNG file to write.")] = Path("levels.png"),
) -> None:
    """Draw a contact sheet of an image under operators.

    Example: [bold]brinell show cat.jpg --operator white_fog --operator jpeg --out cat.png[/]
    """
    from brinell.cli.sheet import contact_sheet, save

    save(contact_sheet(image, operator or [], level or [], spot or [], size=size, seed=seed, model=model), file)
    say(f"wrote {file}")


def ls(
    what: Annotated[str, typer.Argument(metavar="KIND", help="lenses, presets, operators, models, datasets or criteria.")],
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="Kind of model whose options to list, such as onnx.")
    ] = None,
) -> None:
    """List lenses, presets, operators, models, datasets or criteria; or the options of a kind of model.

    Example: [bold]brinell ls models onnx[/]
    """
    from brinell.cli.listing import listing, model_options

    if name is not None and what != "models":
        raise ConfigError(f"only models have options to list; run brinell ls {what}")
    out.print(listing(what) if name is None else model_options(name))
