"""The command `status`: how far a run is, and which of its parts need attention."""

from __future__ import annotations

from typing import Annotated

import typer

from brinell.cli.console import out, print_json, say
from brinell.report.grid import Grid
from brinell.runs.status import FINISHED, INCOMPLETE, MEASURING, MISSING, STUCK_PART, PartStatus, Status, read_status
from brinell.units import format_clock, format_rate

SHOWN = 24  # parts that are listed; of more, only those that are not done
_ORDER = (STUCK_PART, INCOMPLETE, MISSING, MEASURING, FINISHED)


def status(
    folder: Annotated[str, typer.Argument(metavar="RUN", help="Folder or URL of a run.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print everything as JSON.")] = False,
) -> None:
    """Show a run's progress: units of work, rate, time left, and parts that are missing or stuck.

    Example: [bold]brinell status runs/first[/]
    """
    found = read_status(folder)
    if as_json:
        print_json(found.to_json())
        return
    say(*_lines(found))
    out.print(Grid(("lens", "model", "units", "of", ""), tuple(_jobs(found)), left=frozenset({0, 1})))
    if found.parts:
        out.print(_parts(found.parts))


def _lines(found: Status) -> list[str]:
    """Return the whole run in a few words."""
    if found.finished:
        return [f"{found.url}: finished, {found.done:,} units"]
    total = "" if found.total is None else f" of {found.total:,} units ({found.done / max(1, found.total):.0%})"
    rate = "" if found.rate is None else f", {format_rate(found.rate, 'units')}"
    left = "" if found.seconds_left is None else f", {format_clock(found.seconds_left)} left"
    idle = "" if found.idle is None else f"; last update {format_clock(found.idle)} ago"
    return [f"{found.url}: {found.done:,}{total or ' units'}{rate}{left}{idle}"]


def _jobs(found: Status) -> list[tuple[str, ...]]:
    return [
        (
            job.lens,
            job.model,
            f"{job.done:,}",
            "?" if job.total is None else f"{job.total:,}",
            "" if not job.total else f"{job.done / job.total:.0%}",
        )
        for job in found.jobs
    ]


def _parts(parts: tuple[PartStatus, ...]) -> Grid:
    """Return a table of the parts, those that need attention first."""
    shown = [part for part in parts if part.state != FINISHED or len(parts) <= SHOWN]
    ordered = sorted(shown, key=lambda part: (_ORDER.index(part.state), part.number))
    rows = [
        (
            f"{part.number}/{len(parts)}",
            part.state,
            f"{part.done:,} of {part.total:,}",
            "" if part.ago is None else f"{format_clock(part.ago)} ago",
            part.stage if part.state in (MEASURING, STUCK_PART) else "",
            part.host,
        )
        for part in ordered[:SHOWN]
    ]
    counts = {state: sum(part.state == state for part in parts) for state in _ORDER}
    note = ", ".join(f"{count:,} {state}" for state, count in counts.items() if count)
    return Grid(
        ("part", "state", "units", "last seen", "stage", "host"), tuple(rows), note=note, left=frozenset({0, 1, 4, 5})
    )
