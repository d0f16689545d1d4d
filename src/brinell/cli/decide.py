"""Commands that support decisions: gate, compare and leaderboard."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich import box
from rich.padding import Padding
from rich.table import Table

from brinell.cli.console import out, print_json, say
from brinell.comparison.compare import Comparison, format_change
from brinell.comparison.gates import GateResult
from brinell.comparison.leaderboard import Leaderboard, format_operators
from brinell.comparison.measures import describe_measure, format_value
from brinell.lenses.reader import Measure
from brinell.runs.statistics import Estimate

GATE_FAILED = 1  # exit code
JSON_VERSION = 1
_STATES = {"passed": "green", "failed": "red", "untested": "yellow"}
_STYLES = {"better": "green", "worse": "red"}

Runs = Annotated[list[str], typer.Argument(metavar="RUN…", help="Folders or URLs of finished runs.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print everything as JSON.")]
OtherDraws = Annotated[
    bool, typer.Option("--other-draws", help="Allow runs with different seeds, whose random draws differ; pairs by image.")
]


def gate(
    folder: Annotated[str, typer.Argument(metavar="RUN", help="Folder or URL of a finished run.")],
    rules: Annotated[Path, typer.Option(help="YAML file of rules.")],
    junit: Annotated[Path | None, typer.Option(help="Write the checks as JUnit XML.")] = None,
    markdown: Annotated[Path | None, typer.Option(help="Write the result as Markdown.")] = None,
    store: Annotated[bool, typer.Option(help="Store the result in the run's folder, so that its report shows it.")] = True,
    as_json: AsJson = False,
) -> None:
    """Check a run against rules. The exit code is 0 if all rules pass, 1 if one fails, 2 if they can't be checked.

    Example: [bold]brinell gate runs/first --rules rules.yaml --junit gate.xml[/]
    """
    from brinell.comparison.page import gate_junit, gate_markdown, write_text
    from brinell.decisions import gate as check_gate

    result = check_gate(folder, rules, store=store)
    if junit is not None:
        write_text(gate_junit(result), junit)
    if markdown is not None:
        write_text(gate_markdown(result), markdown)
    if as_json:
        print_json({"version": JSON_VERSION, "run": folder, **result.to_json()})
    else:
        _print_gate(result)
        say(*(f"wrote {file}" for file in (junit, markdown) if file is not None))
    if not result.passed:
        raise typer.Exit(GATE_FAILED)


def compare(
    runs: Runs,
    pair: Annotated[
        list[str] | None,
        typer.Option(metavar="OLD=NEW", help="Models to compare if their names differ; may be repeated."),
    ] = None,
    other_draws: OtherDraws = False,
    common_images: Annotated[
        bool, typer.Option("--common-images", help="If the images differ, compare those that both runs have.")
    ] = False,
    alpha: Annotated[float, typer.Option(min=0, max=1, help="Significance level.")] = 0.05,
    gate: Annotated[Path | None, typer.Option(help="YAML file of rules; the exit code is 1 if a rule fails.")] = None,
    html: Annotated[Path | None, typer.Option("--out", "-o", help="Write an HTML page.")] = None,
    markdown: Annotated[Path | None, typer.Option(help="Write a summary as Markdown.")] = None,
    junit: Annotated[Path | None, typer.Option(help="Write the gate's checks as JUnit XML.")] = None,
    as_json: AsJson = False,
) -> None:
    """Compare runs with the first of them, image by image; or the models of one run with its first.

    Examples: [bold]brinell compare runs/old runs/new -o changes.html[/]
    or [bold]brinell compare runs/old runs/new --gate gate.yaml --junit gate.xml[/]
    """
    from brinell.comparison.page import comparison_html, comparison_markdown, gate_junit, write_text
    from brinell.decisions import compare as compare_runs
    from brinell.decisions import gate as check_gate

    if junit is not None and gate is None:
        raise typer.BadParameter("a JUnit file reports a gate's checks; give a gate with --gate FILE")
    comparison = compare_runs(*runs, pairs=pair or (), other_draws=other_draws, common_images=common_images, alpha=alpha)
    result = check_gate(comparison, gate) if gate is not None else None
    if html is not None:
        write_text(comparison_html(comparison, result), html)
    if markdown is not None:
        write_text(comparison_markdown(comparison, result), markdown)
    if junit is not None and result is not None:
        write_text(gate_junit(result), junit)
    if as_json:
        checks = None if result is None else result.to_json()
        print_json({"version": JSON_VERSION, **comparison.to_json(), "gate": checks})
    else:
        _print(comparison, result)
        say(*(f"wrote {file}" for file in (html, markdown, junit) if file is not None))
    if result is not None and not result.passed:
        raise typer.Exit(GATE_FAILED)


def leaderboard(runs: Runs, other_draws: OtherDraws = False, as_json: AsJson = False) -> None:
    """Rank the models of several runs by their mean rank over measures and operators.

    Example: [bold]brinell leaderboard runs/*[/]
    """
    from brinell.decisions import leaderboard as rank_models

    board = rank_models(*runs, other_draws=other_draws)
    if as_json:
        print_json({"version": JSON_VERSION, **board.to_json()})
        return
    out.print(_board_table(board))
    out.print(
        "rank: 1 is best; the mean over columns of the mean over operators. Second lines: 95 % intervals over images."
    )
    for measure in board.measures:
        out.print(f"{measure.name}: {board.heading(measure)} ({format_operators(board, measure)})")
    for note in board.left_out:
        out.print(f"left out: {note}")


def _print(comparison: Comparison, result: GateResult | None) -> None:
    for number, pair in enumerate(comparison.pairs):
        out.print(f"\n{pair.title}, {len(pair.images)} images", style="bold", soft_wrap=True)
        say(*(f"note: {note}" for note in pair.notes))
        for measure in comparison.measures(number):
            if not measure.by_level:
                out.print(_measure_table(comparison, number, measure))
        out.print(comparison.verdict(number))
    say(*(f"left out: {note}" for note in comparison.left_out))
    if result is not None:
        _print_gate(result)


def _measure_table(comparison: Comparison, number: int, measure: Measure) -> Table:
    """Return one measure of a pair, the worst change first."""
    unit = "percentage points" if measure.unit == "points" else "percent of the old value"
    title = f"\n{describe_measure(measure)} ({measure.better} is better; changes in {unit})"
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for head in ("", "before", "after", "change [95 %]", "p", "images", " "):
        table.add_column(head, justify="right" if head.strip() else "left", no_wrap=head != "")
    deltas = comparison.select(number, measure.name)
    for delta in deltas:
        verdict = delta.verdict(comparison.alpha)
        unpaired = f"\n+{delta.unpaired[0]}/+{delta.unpaired[1]}" if delta.unpaired != (0, 0) else ""
        table.add_row(
            delta.title,
            format_value(measure, delta.old),
            format_value(measure, delta.new),
            format_change(delta, unit=False),
            "–" if delta.adjusted != delta.adjusted else f"{delta.adjusted:.2g}",
            f"{delta.images}{unpaired}",
            "" if verdict == "no clear difference" else verdict,
            style=_STYLES.get(verdict),
        )
    if any(delta.unpaired != (0, 0) for delta in deltas):
        table.caption = "images with a value in both (+ only in the old / + only in the new, which don't count)"
    return table


def _print_gate(result: GateResult) -> None:
    """Print each rule with its state and the checks that failed, and the verdict last."""
    for one in result.by_rule:
        out.print(f"{one.state}: {one.rule.heading}", style=_STATES[one.state])
        for line in one.lines:
            out.print(Padding(line, (0, 0, 0, 4)))
    if result.hint:
        out.print(f"\n{result.hint}")
    out.print(f"\ngate: {result.verdict}", style=_STATES["passed" if result.passed else "failed"])


def _figure(measure: Measure, value: Estimate) -> str:
    """Return a mean above its interval."""
    scale, spec = (100, ".0f") if measure.unit == "points" else (1, ".2g")
    if value.low != value.low:
        return format_value(measure, value.value)
    return f"{format_value(measure, value.value)}\n{scale * value.low:{spec}}–{scale * value.high:{spec}}"


def _board_table(board: Leaderboard) -> Table:
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for head in ("", "model", "rank", *(measure.name for measure in board.measures)):
        table.add_column(head, justify="left" if head == "model" else "right", overflow="fold")
    for position, row in enumerate(board.rows, 1):
        figures = (_figure(measure, row.figures[measure.name]) for measure in board.measures)
        rank = f"{row.rank.value:.2f}\n{row.rank.low:.2f}–{row.rank.high:.2f}"
        table.add_row(str(position), row.model, rank, *figures)
    return table
