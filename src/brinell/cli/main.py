"""The command `brinell`: its commands by panel, each imported when it is called, and how errors are reported."""

from __future__ import annotations

import sys
import traceback
from dataclasses import dataclass
from typing import Any

import typer
from typer.core import TyperGroup

from brinell.errors import BrinellError, ConfigError
from brinell.registry import load_reference

HELP = "Hardness testing for vision models: how far can real-world change go before a model breaks?"
INTERRUPTED = 130  # the exit code of a command that Ctrl-C ended


@dataclass(frozen=True)
class Command:
    """A command, its panel in the help, its one-line summary and the function behind it."""

    name: str
    panel: str
    summary: str
    function: str
    of_run: bool = False  # the function gets an opened run and returns what to print


MEASURE, INSPECT, DECIDE, IMPROVE, INTEGRATE = "Measure", "Inspect", "Decide", "Improve", "Integrate"
COMMANDS = (
    Command("run", MEASURE, "Test models on data; rerun to resume.", "brinell.cli.measure:run"),
    Command("plan", MEASURE, "Estimate what a run would cost, without running it.", "brinell.cli.measure:plan"),
    Command("demo", MEASURE, "Run every lens on a few photographs and write a report.", "brinell.cli.measure:demo"),
    Command("summary", INSPECT, "Print what a run found.", "brinell.cli.inspect:summary"),
    Command("report", INSPECT, "Write a run's HTML report: one file that opens anywhere.", "brinell.cli.inspect:report"),
    Command("rows", INSPECT, "Query a run's rows in SQL.", "brinell.cli.inspect:rows"),
    Command("saliency", INSPECT, "Compare where a run's models look.", "brinell.cli.inspect:saliency"),
    Command("show", INSPECT, "Draw an image under operators, as a contact sheet.", "brinell.cli.inspect:show"),
    Command("ls", INSPECT, "List lenses, operators, models, datasets or criteria.", "brinell.cli.inspect:ls"),
    Command("compare", DECIDE, "Compare runs image by image, and gate a release.", "brinell.cli.decide:compare"),
    Command("leaderboard", DECIDE, "Rank the models of several runs.", "brinell.cli.decide:leaderboard"),
    Command("curate", IMPROVE, "Make a dataset of the images that models fail on.", "brinell.cli.improve:curate"),
    Command("harden", IMPROVE, "Fine-tune a model on failures, and measure the effect.", "brinell.cli.improve:harden"),
    Command("export-moved", IMPROVE, "Write moved images to train on.", "brinell.cli.improve:export_moved"),
    Command("track", INTEGRATE, "Log finished runs to an MLflow server.", "brinell.cli.integrate:track"),
    Command("serve", INTEGRATE, "Serve a model over HTTP.", "brinell.cli.integrate:serve"),
)


class LazyGroup(TyperGroup):
    """The group of all commands. A command's module is imported when the command runs, or its own help is printed."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names of the commands, in the order of the panels."""
        return [command.name for command in all_commands()]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return a command, ready to run."""
        found = next((command for command in all_commands() if command.name == cmd_name), None)
        return None if found is None else as_click(found)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Print the commands by panel without importing them."""
        from brinell.cli.help import print_help

        print_help(HELP, all_commands(), self.get_params(ctx))


def all_commands() -> list[Command]:
    """Return the built-in commands, and those that lenses contribute."""
    from brinell.lenses.lens import LENSES

    own = [
        Command(name, INSPECT, load_reference(function).__doc__.partition("\n")[0], function, of_run=True)
        for lens in LENSES.values()
        for name, function in lens.commands
    ]
    last = max(number for number, command in enumerate(COMMANDS) if command.panel == INSPECT) + 1
    return [*COMMANDS[:last], *own, *COMMANDS[last:]]


def as_click(command: Command) -> Any:
    """Import a command's function and return it as a click command."""
    function = load_reference(command.function)
    if command.of_run:
        from brinell.cli.of_run import of_run

        function = of_run(function)
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode="rich")
    app.command(command.name)(function)
    return typer.main.get_command(app)


def _version(value: bool) -> None:
    if value:
        from brinell import __version__

        typer.echo(f"brinell {__version__}")
        raise typer.Exit


def build() -> Any:
    """Return the command line."""
    app = typer.Typer(cls=LazyGroup, help=HELP, add_completion=True, pretty_exceptions_enable=False)

    @app.callback()
    def options(
        debug: bool = typer.Option(False, "--debug", help="Print a traceback when something goes wrong."),
        version: bool = typer.Option(
            False, "--version", help="Print the version and exit.", callback=_version, is_eager=True
        ),
    ) -> None:
        """Set options of all commands."""

    return typer.main.get_command(app)


def main(arguments: list[str] | None = None) -> None:
    """Run the command; an error that a user can fix is one line and exit code 2."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    debug = "--debug" in given  # before the command or after it
    given = [word for word in given if word != "--debug"]
    code: Any = None
    try:
        code = build()(given or ["--help"], prog_name="brinell", standalone_mode=False)
    except BrinellError as error:
        _fail(str(error), debug)
    except (KeyboardInterrupt, typer.Abort):
        code = INTERRUPTED
    except Exception as error:
        if hasattr(error, "format_message"):  # a wrong option or argument
            _fail(_usage(error), debug)
        _fail(f"unexpected {type(error).__name__}: {error}; add --debug for the traceback", debug)
    if code == INTERRUPTED:
        typer.echo("Interrupted; rerun to resume.", err=True)
    if code:
        sys.exit(code)


def _usage(error: Any) -> str:
    context = getattr(error, "ctx", None)
    command = context.command_path if context is not None else "brinell"
    return str(ConfigError(f"{error.format_message()} (see {command} --help)"))


def _fail(message: str, debug: bool) -> None:
    if debug:
        traceback.print_exc()
    typer.echo(f"error: {' '.join(message.split())}", err=True)
    sys.exit(2)
