"""The command `brinell`. A command parses, calls one function and prints."""

from __future__ import annotations

import sys
import traceback
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from brinell.api import Run, question
from brinell.cli import show as pictures
from brinell.cli.compare import compare, leaderboard
from brinell.cli.curate import curate
from brinell.cli.harden import harden
from brinell.cli.settings import with_settings
from brinell.cli.tables import comparison_table, listing, plan_lines, summary_table
from brinell.config.execution import Execution
from brinell.engine.manifest import told_queries
from brinell.engine.plan import plan as plan_of
from brinell.engine.progress import reporter
from brinell.engine.runner import assemble, execute
from brinell.errors import BrinellError, ConfigError
from brinell.lenses.profile.findings import THRESHOLDS
from brinell.models.sources import open_model
from brinell.run_config import RunConfig, load_config
from brinell.serve.server import Server, usage_lines
from brinell.tracking.server import Server as Tracker
from brinell.tracking.track import Tracked

app = typer.Typer(
    name="brinell",
    help="Hardness testing for vision models: how far can real-world change go before a model breaks?",
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)
out = Console(markup=False)  # names of models and folders may hold brackets
_debug = False
_STOPPED = 130  # what typer makes of Ctrl-C

DEMO = {
    "models": ["efficientnet_lite0", "efficientnet_lite1"],
    "data": {"source": "demo-photos"},
    "lens": {"name": "profile"},
    "out": "runs/demo",
}


@app.callback()
def options(
    debug: Annotated[bool, typer.Option("--debug", help="Show a traceback when something goes wrong.")] = False,
) -> None:
    """Hardness testing for vision models: how far can real-world change go before a model breaks?"""
    global _debug
    _debug = debug


def demo(
    folder: Annotated[str, typer.Option("--out", help="The run's folder.")] = "runs/demo",
) -> None:
    """Test two real networks on two dozen photographs that came with the package's extras, and write a report.

    Example: [bold]brinell demo[/]
    """
    _carry_out(load_config({**DEMO, "out": folder}))


def run(config: RunConfig) -> None:
    """Test models on data. The same command again goes on where it stopped.

    Examples: [bold]brinell run --model timm:resnet50 --data photos/ --out runs/first[/]
    or [bold]brinell run test.yaml --set data.limit=100[/]
    """
    _carry_out(config)


def plan(config: RunConfig) -> None:
    """Tell what a run would cost, and do nothing: trials, forward passes, time and storage.

    Example: [bold]brinell plan --model efficientnet_lite0 --data photos/[/]
    """
    for line in plan_lines(plan_of(assemble(config))):
        out.print(line, highlight=False)


def report(
    folder: Annotated[str, typer.Argument(metavar="RUN", help="A run's folder.")],
    figures: Annotated[bool, typer.Option("--figures", help="Write all figures as SVG and PNG, too.")] = False,
) -> None:
    """Write a run's HTML report: one file that opens anywhere.

    Example: [bold]brinell report runs/first --figures[/]
    """
    found = Run(folder)
    _say_report(found.report())
    if figures:
        out.print(f"{len(found.figures())} figures: {found.store.place('figures')}", soft_wrap=True, highlight=False)


def summary(
    folder: Annotated[str, typer.Argument(metavar="RUN", help="A run's folder.")],
    as_json: Annotated[bool, typer.Option("--json", help="Everything as JSON.")] = False,
    threshold: Annotated[
        list[float] | None, typer.Option(min=0, max=1, help="Accuracies to find failure points for.")
    ] = None,
    at_least: Annotated[
        list[int] | None, typer.Option(min=1, help="Of highlights: so many failing variants make an image fail (S ≥ k).")
    ] = None,
) -> None:
    """Print what a run found: areas, failure points and a verdict for each model.

    Example: [bold]brinell summary runs/first --json[/]
    """
    found = Run(folder).findings(tuple(threshold) if threshold else THRESHOLDS, tuple(at_least) if at_least else None)
    if as_json:
        told = {lens: one.to_dict() for lens, one in found.items()}
        data = next(iter(told.values())) if len(told) == 1 else told
        queries = Run(folder).manifest.get("queries")
        out.print_json(data={**data, "queries": queries} if queries else data, allow_nan=False)
    else:
        for one in found.values():
            out.print(*summary_table(one), sep="\n")
        _say_queries(Run(folder))


def attention(
    folder: Annotated[str, typer.Argument(metavar="RUN", help="A run's folder.")],
    method: Annotated[str, typer.Option(help="gradcam++ or gradcam.")] = "gradcam++",
    target: Annotated[str, typer.Option(help="Maps for the class that is named (prediction) or the right one (label).")] = (
        "prediction"
    ),
    layer: Annotated[
        str | None, typer.Option(help="The layer to look at; without it, the last convolution is found.")
    ] = None,
    cells: Annotated[int, typer.Option(help="Cells a side that attention is told by.")] = 5,
    pairs: Annotated[int, typer.Option(help="Changed images to look at, of each kind and operator.")] = 200,
) -> None:
    """Compare where a run's models look, on clean images and on changed ones that fail or don't.

    Example: [bold]brinell attention runs/first --pairs 500[/]
    """
    run = Run(folder)
    how = {"method": method, "target": target, "layer": layer, "cells": cells, "pairs": pairs}
    out.print(*summary_table(run.attention(how)), sep="\n")
    _say_report(run.report())


def rows(
    folder: Annotated[str, typer.Argument(metavar="RUN", help="A run's folder.")],
    sql: Annotated[
        str, typer.Argument(help="A question over the tables rows, samples and clean.")
    ] = "select * from rows limit 20",
    csv: Annotated[Path | None, typer.Option(help="Write the answer to a CSV file.")] = None,
) -> None:
    """Ask a run's rows a question in SQL (DuckDB).

    Example: [bold]brinell rows runs/first "select operator, avg(correct::int) from rows group by all order by 2"[/]
    """
    answer = Run(folder).rows(sql)
    with question():
        if csv is not None:
            answer.write_csv(str(csv))
        else:
            print(answer)


def human(
    folder: Annotated[str, typer.Argument(metavar="RUN", help="The folder of a run of the fragility lens.")],
    people: Annotated[Path, typer.Argument(help="A CSV or JSON file of boxes, or a folder of PNG maps.")],
    operator: Annotated[str, typer.Option(help="Which windows are compared.")] = "windows:0.4",
) -> None:
    """Compare people's minimal images with a model's: how many, and whether they are in the same places.

    Example: [bold]brinell human runs/maps people.csv --operator windows:0.4[/]
    """
    out.print(*comparison_table(Run(folder).beside_people(people, operator)), sep="\n")


def moved(
    folder: Annotated[str, typer.Argument(metavar="RUN", help="The folder of a run with the geometry lens.")],
    file: Annotated[Path, typer.Argument(help="An .npz file to write, or a folder.")],
    operator: Annotated[str, typer.Option(help="GROUP:METHOD, as in affine:manifool or affine:random.")],
    score: Annotated[
        float | None, typer.Option(min=0, help="Of random motions; without it, the median of the smallest motions.")
    ] = None,
) -> None:
    """Write a run's images as its motions left them, with their true labels: data to train on.

    Example: [bold]brinell moved runs/first train.npz --operator affine:manifool[/]
    """
    written = Run(folder).write_moved(file, operator, score=score)
    of_score = "" if written.score is None else f" by random motions of score {written.score:.3g}"
    out.print(f"{written.images} images moved{of_score}, {written.left_out} left out: {file}", highlight=False)


def track(
    runs: Annotated[list[str], typer.Argument(metavar="RUN…", help="Folders of finished runs.")],
    to: Annotated[
        str | None, typer.Option(metavar="URI", help="The MLflow server; without it, what MLFLOW_TRACKING_URI says.")
    ] = None,
    experiment: Annotated[
        str | None, typer.Option(help="The experiment; without it, what MLFLOW_EXPERIMENT_NAME says, or brinell.")
    ] = None,
) -> None:
    """Log finished runs to an MLflow server: figures by lens, operator and level, and the report. Needs the extra mlflow.

    Example: [bold]brinell track runs/first --to http://localhost:5000[/]
    """
    server = Tracker(to, experiment)
    for folder in runs:
        _say_tracked(Run(folder).track(server))


def ls(
    what: Annotated[str, typer.Argument(help="lenses, operators, models, datasets or criteria")],
) -> None:
    """List what there is: lenses, operators, models, datasets or criteria.

    Example: [bold]brinell ls operators[/]
    """
    out.print(listing(what))


def serve(
    model: Annotated[str, typer.Argument(help="A model, as SOURCE[?key=value&…] (see `brinell ls models`).")],
    port: Annotated[int, typer.Option(min=0, max=65535, help="Where to listen; 0 takes a free one.")] = 8000,
    host: Annotated[str, typer.Option(help="Whom to listen to: 127.0.0.1 is this machine alone.")] = "127.0.0.1",
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.")] = "auto",
    trust: Annotated[bool, typer.Option("--trust", help="Let weights files run code.")] = False,
) -> None:
    """Put a model behind HTTP: the Open Inference Protocol v2, and /predict for image files.

    Example: [bold]brinell serve timm:resnet50 --port 8000[/]
    """
    with Server(open_model(model, Execution(device=device, trust=trust)), host, port) as server:
        out.print(*usage_lines(server), sep="\n", soft_wrap=True, highlight=False)
        server.serve_until_stopped()
    out.print("stopped")


def show(
    image: Annotated[Path, typer.Argument(help="An image file.")],
    operator: Annotated[
        list[str] | None, typer.Option(help="NAME or NAME:VARIANT; may be repeated. Without it: all.")
    ] = None,
    level: Annotated[list[int] | None, typer.Option(help="Levels to show; may be repeated.")] = None,
    spot: Annotated[
        list[str] | None,
        typer.Option(help="X,Y,SIGMA[,STRENGTH]: a spot of light, in pixels of the image; may be repeated."),
    ] = None,
    size: Annotated[int, typer.Option(min=1, help="The side that the image is resized to.")] = 224,
    seed: Annotated[int, typer.Option(help="Names the random draws.")] = 0,
    model: Annotated[str | None, typer.Option(help="A torch model, for operators that need gradients.")] = None,
    file: Annotated[Path, typer.Option("--out", help="The PNG file to write.")] = Path("levels.png"),
) -> None:
    """Draw an image at several levels of operators, as a contact sheet.

    Example: [bold]brinell show cat.jpg --operator white_fog --operator jpeg --out cat.png[/]
    """
    sheet = pictures.contact_sheet(image, operator or [], level or [], spot or [], size=size, seed=seed, model=model)
    try:
        sheet.save(file, "png")
    except OSError as error:
        raise ConfigError(f"can't write {file}: {error.strerror or error}") from None
    out.print(f"wrote {file}", highlight=False)


for _command in (
    demo,
    report,
    summary,
    compare,
    leaderboard,
    attention,
    rows,
    human,
    moved,
    curate,
    harden,
    track,
    ls,
    serve,
    show,
):
    app.command()(_command)
app.command("run")(with_settings(run))
app.command("plan")(with_settings(plan))


def _carry_out(config: RunConfig) -> None:
    tracker = None if config.track is None else Tracker(config.track.to, config.track.experiment)  # is it there?
    with reporter() as telling:
        store = execute(assemble(config), telling)
    found = Run(store.url)
    for one in found.findings().values():
        out.print(*summary_table(one), sep="\n")
    _say_queries(found)
    _say_report(found.report())
    if tracker is not None:
        _say_tracked(found.track(tracker))


def _say_tracked(tracked: Tracked) -> None:
    logged = f"{tracked.logged} nested runs logged" + (f", {tracked.kept} were there" if tracked.kept else "")
    out.print(f"{logged}: {tracked.link}", soft_wrap=True, highlight=False)


def _say_queries(run: Run) -> None:
    for line in told_queries(run.manifest):
        out.print(line, soft_wrap=True, highlight=False)


def _say_report(place: str) -> None:
    out.print(f"report: {place}", soft_wrap=True, highlight=False)


def main(arguments: list[str] | None = None) -> None:
    """Run the command; errors that a user can mend are one line and exit code 2."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    if "--debug" in given:  # before the command or after it
        given = ["--debug", *(word for word in given if word != "--debug")]
    code = None
    try:
        code = app(given or ["--help"], prog_name="brinell", standalone_mode=False)
    except BrinellError as error:
        _fail(error)
    except (KeyboardInterrupt, typer.Abort):
        code = _STOPPED
    except Exception as error:
        if _is_usage(error):
            _fail(ConfigError(_usage(error)))
        _fail(error, f"unexpected {type(error).__name__}: {error}; add --debug to see where")
    if code == _STOPPED:
        print("stopped; the same command goes on from here", file=sys.stderr)
    if code:
        sys.exit(code)


def _is_usage(error: Exception) -> bool:
    return hasattr(error, "format_message")  # click's errors for wrong options and arguments


def _usage(error: Any) -> str:
    command = error.ctx.command_path if getattr(error, "ctx", None) else "brinell"
    return f"{error.format_message()} (see {command} --help)"


def _fail(error: Exception, told: str | None = None) -> None:
    if _debug:
        traceback.print_exc()
    print(f"error: {' '.join((told or str(error)).split())}", file=sys.stderr)
    sys.exit(2)
