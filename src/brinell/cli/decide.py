"""The commands that set runs beside each other: compare, with its gate, and leaderboard."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich import box
from rich.console import Console
from rich.table import Table

from brinell.api import compare as compared
from brinell.api import gate as judged
from brinell.api import leaderboard as ranked
from brinell.comparison.contrasts import Contrasts, operator_title, tell
from brinell.comparison.gates import Judgement
from brinell.comparison.leaderboard import Leaderboard, figure, operators_told
from brinell.comparison.measures import Measure
from brinell.comparison.page import comparison_markdown, comparison_page, junit, value, write_text

out = Console(markup=False)
_BROKEN = 1  # the exit code of a gate that is broken
_MARKS = {"better": "green", "worse": "red"}

Runs = Annotated[list[str], typer.Argument(metavar="RUNS", help="Runs' folders or URLs.")]
AsJson = Annotated[bool, typer.Option("--json", help="Everything as JSON.")]
OtherDraws = Annotated[
    bool, typer.Option("--other-draws", help="Pair runs of other seeds too, by image: their random draws differ.")
]


def compare(
    runs: Runs,
    pair: Annotated[
        list[str] | None,
        typer.Option(help="OLD=NEW: models to compare where names don't tell; may be repeated."),
    ] = None,
    other_draws: OtherDraws = False,
    common_images: Annotated[
        bool, typer.Option("--common-images", help="Where the images differ, compare those that both have.")
    ] = False,
    alpha: Annotated[
        float, typer.Option(min=0, max=1, help="What is less likely by chance is called a difference.")
    ] = 0.05,
    gate: Annotated[Path | None, typer.Option(help="A YAML file of rules; exit code 1 if one is broken.")] = None,
    html: Annotated[Path | None, typer.Option("--out", "-o", help="Write an HTML page.")] = None,
    markdown: Annotated[Path | None, typer.Option(help="Write a summary as Markdown.")] = None,
    junit_file: Annotated[Path | None, typer.Option("--junit", help="Write the gate's checks as JUnit XML.")] = None,
    as_json: AsJson = False,
) -> None:
    """Compare runs with the first of them, image by image; or one run's models with its first.

    Examples: [bold]brinell compare runs/old runs/new -o changes.html[/]
    or [bold]brinell compare runs/old runs/new --gate gate.yaml --junit gate.xml[/]
    """
    if junit_file is not None and gate is None:
        raise typer.BadParameter("a JUnit file tells what a gate says; give one with --gate FILE")
    found = compared(*runs, pairs=pair or (), other_draws=other_draws, common_images=common_images, alpha=alpha)
    judgement = judged(found, gate) if gate is not None else None
    if html is not None:
        write_text(comparison_page(found, judgement), html)
    if markdown is not None:
        write_text(comparison_markdown(found, judgement), markdown)
    if junit_file is not None and judgement is not None:
        write_text(junit(found, judgement), junit_file)
    if as_json:
        told = found.to_dict() | ({"gate": judgement.to_dict()} if judgement is not None else {})
        out.print_json(data=told, allow_nan=False)
    else:
        _tell(found, judgement)
        for written in (html, markdown, junit_file):
            if written is not None:
                out.print(f"wrote {written}", soft_wrap=True, highlight=False)
    if judgement is not None and judgement.broken:
        raise typer.Exit(_BROKEN)


def leaderboard(runs: Runs, other_draws: OtherDraws = False, as_json: AsJson = False) -> None:
    """Rank the models of many runs, over all lenses: by their mean rank over measures and operators.

    Example: [bold]brinell leaderboard runs/*[/]
    """
    board = ranked(*runs, other_draws=other_draws)
    if as_json:
        out.print_json(data=board.to_dict(), allow_nan=False)
        return
    out.print(_board_table(board))
    out.print(
        "mean rank: 1 is the best; over the columns, within each over its operators. Intervals are 95 %, over images."
    )
    for measure in board.measures:
        out.print(f"{measure.name}: {board.heading(measure)} ({operators_told(board, measure)})", highlight=False)
    for note in board.left_out:
        out.print(f"left out: {note}", highlight=False)


def _tell(found: Contrasts, judgement: Judgement | None) -> None:
    for number, pair in enumerate(found.pairs):
        out.print(f"\n{pair.told}, {len(pair.images)} images", style="bold", soft_wrap=True, highlight=False)
        for note in pair.notes:
            out.print(f"note: {note}", soft_wrap=True, highlight=False)
        for measure in found.measures(number):
            if not measure.by_level:
                out.print(_contrast_table(found, number, measure))
        out.print(found.verdict(number), highlight=False)
    for note in found.left_out:
        out.print(f"left out: {note}", soft_wrap=True, highlight=False)
    if judgement is not None:
        out.print(*_gate_lines(found, judgement), sep="\n", highlight=False)


def _contrast_table(found: Contrasts, number: int, measure: Measure) -> Table:
    """One measure of a pair, the worst change first."""
    unit = "points" if measure.unit == "points" else "%"
    table = Table(title=f"\n{measure.what} ({measure.better} is better)", title_justify="left", box=box.SIMPLE_HEAD)
    for head in ("", "before", "after", f"change, {unit} [95 %]", "p", "images", " "):
        table.add_column(head, justify="right" if head.strip() else "left", no_wrap=head != "images")
    for line in found.of(number, measure.name):
        verdict = line.verdict(found.alpha)
        images = f"{line.images}" + (f" (+{line.alone[0]}/+{line.alone[1]})" if line.alone != (0, 0) else "")
        table.add_row(
            operator_title(line.operator),
            value(measure, line.old),
            value(measure, line.new),
            tell(line, unit=False),
            "–" if line.adjusted != line.adjusted else f"{line.adjusted:.2g}",
            images,
            "" if verdict == "no clear difference" else verdict,
            style=_MARKS.get(verdict),
        )
    if any(line.alone != (0, 0) for line in found.of(number, measure.name)):
        table.caption = "images with a value in both (+ in the old alone / + in the new alone, which don't count)"
    return table


def _gate_lines(found: Contrasts, judgement: Judgement) -> list[Any]:
    """What a gate says: a line for each rule that is broken, and the verdict."""
    lines = [f"broken: {check.rule.told}; {found.pairs[check.line.pair].told}, {check.told}" for check in judgement.broken]
    untested = sum(check.state == "untested" for check in judgement.checks)
    if untested:
        lines.append(f"{untested} checks have too few images to tell a change from chance")
    broken = len({id(check.rule) for check in judgement.broken})
    rules = len(judgement.gate.rules)
    lines.append(f"\ngate: {f'{broken} of {rules} rules broken' if broken else f'all {rules} rules kept'}")
    return lines


def _board_table(board: Leaderboard) -> Table:
    table = Table()
    for head in ("", "model", "mean rank [95 %]", *(measure.name for measure in board.measures)):
        table.add_column(head, justify="left" if head == "model" else "right", overflow="fold")
    for place, one in enumerate(board.standings, 1):
        figures = (figure(measure, one.figures[measure.name]) for measure in board.measures)
        table.add_row(str(place), one.model, f"{one.rank:.2f}", *figures)
    return table
