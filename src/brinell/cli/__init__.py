"""The command line. A command parses, calls one function and prints."""

from __future__ import annotations


def main(arguments: list[str] | None = None) -> None:
    """Run the command `brinell`."""
    from brinell.cli.main import main as run_command  # importing the package costs nothing

    run_command(arguments)
