"""The command `brinell`: its commands by panel, each imported when it is called, and how errors are reported."""

from __future__ import annotations

import os
import sys
import threading
import traceback
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from brinell.cli.commands import Command, all_commands
from brinell.cli.interrupt import Interrupted
from brinell.errors import BrinellError, BudgetSpent, ConfigError
from brinell.interrupts import interrupted, stoppable
from brinell.registry import load_reference

HELP = "Hardness testing for vision models: how far can real-world change go before a model breaks?"
# exit codes besides 0 and those of commands
ERROR, BUDGET_SPENT, INTERRUPTED = 2, 3, 130


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


class PlainCommand(TyperCommand):
    """A command whose help leaves room for descriptions on a terminal of 80 columns."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Print what the command does, its arguments and its options."""
        from brinell.cli.help import print_command_help

        print_command_help(ctx.command_path, self.help or "", self.get_params(ctx))


def as_click(command: Command) -> Any:
    """Import a command's function and return it as a click command."""
    function = load_reference(command.function)
    if command.of_run:
        from brinell.cli.of_run import of_run

        function = of_run(function)
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode="rich")
    app.command(command.name, cls=PlainCommand)(function)
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
        debug: bool = typer.Option(False, "--debug", help="Print a traceback on errors."),
        version: bool = typer.Option(
            False, "--version", help="Print the version and exit.", callback=_version, is_eager=True
        ),
    ) -> None:
        """Set options of all commands."""

    return typer.main.get_command(app)


def main(arguments: list[str] | None = None) -> None:
    """Run the command; an error that a user can fix is one line and exit code 2.

    A query budget that is used up is no error: it has an exit code of its own.
    """
    given = list(sys.argv[1:] if arguments is None else arguments)
    with stoppable():
        try:
            _run(given)
        except SystemExit as end:
            if arguments is None and end.code == INTERRUPTED:
                _end_soon()
            raise


def _run(given: list[str]) -> None:
    debug = "--debug" in given  # before the command or after it
    given = [word for word in given if word != "--debug"]
    code: Any = None
    try:
        code = build()(given or ["--help"], prog_name="brinell", standalone_mode=False)
    except BudgetSpent as spent:
        _leave(f"Query budget used up: {spent}", BUDGET_SPENT)
    except BrinellError as error:
        _fail(str(error), debug)
    except Interrupted as end:
        _leave(str(end), INTERRUPTED)
    except (KeyboardInterrupt, typer.Abort):
        code = INTERRUPTED
    except Exception as error:
        if hasattr(error, "format_message"):  # a wrong option or argument
            _fail(_usage(error), debug)
        if interrupted():  # libraries raise errors of their own
            _leave("Interrupted.", INTERRUPTED)
        _fail(f"unexpected {type(error).__name__}: {error}; add --debug for the traceback", debug)
    if code == INTERRUPTED:  # click turns some interrupts into a code
        _leave("Interrupted.", INTERRUPTED)
    if code:
        sys.exit(code)


def _end_soon() -> None:
    """End the process even if a thread waits for a server: its request has been sent, and nothing more will be."""
    timer = threading.Timer(0.5, os._exit, [INTERRUPTED])
    timer.daemon = True
    timer.start()


def _leave(message: str, code: int) -> None:
    from brinell.documents import printable  # imports yaml

    typer.echo(printable(message), err=True)
    sys.exit(code)


def _usage(error: Any) -> str:
    context = getattr(error, "ctx", None)
    command = context.command_path if context is not None else "brinell"
    return str(ConfigError(f"{error.format_message()} (see {command} --help)"))


def _fail(message: str, debug: bool) -> None:
    if debug:
        traceback.print_exc()
    _leave(f"error: {message}", ERROR)
