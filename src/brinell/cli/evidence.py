"""The command that writes test records: evidence."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from brinell.cli.console import say
from brinell.evidence.files import SIGNATURE, write_evidence
from brinell.results import Run

FAILED = 1  # exit code


def evidence(
    folder: Annotated[str, typer.Argument(metavar="RUN", help="Folder of a run that was measured with --plan.")],
    plan: Annotated[Path, typer.Option(metavar="FILE", help="Test plan that the run was started with.")],
    out: Annotated[Path, typer.Option("--out", "-o", metavar="FOLDER", help="New folder for the record.")] = Path(
        "evidence"
    ),
    sign: Annotated[Path | None, typer.Option(metavar="FILE", help="SSH key to sign the record with.")] = None,
) -> None:
    """Write a dated test record of a run as JSON, Markdown, HTML and PDF. Exit code 1 if a requirement is not met.

    Example: [bold]brinell evidence runs/first --plan plan.yaml -o evidence[/]
    """
    record = write_evidence(Run(folder), plan, out, key=sign)
    say(f"{'passed' if record['passed'] else 'not passed'}: {record['verdict']}", f"record: {out}")
    if not (out / "record.pdf").is_file():
        say("No PDF was written because Chromium or Chrome was not found; print record.html instead.")
    if sign is not None:
        say(f"signature: {out / SIGNATURE}")
    if not record["passed"]:
        raise typer.Exit(FAILED)
