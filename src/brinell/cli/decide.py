"""Commands that support decisions: gate, compare and leaderboard."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.padding import Padding

from brinell.cli.console import out, print_json, say
from brinell.comparison.compare import Comparison, format_change
from brinell.comparison.gates import GateResult
from brinell.comparison.leaderboard import Leaderboard, format_operators
from brinell.comparison.measures import describe_measure, format_value
from brinell.lenses.reader import Measure
from brinell.report.grid import Grid
from brinell.runs.statistics import Estimate
from brinell.runs.words import format_mean, format_share

GATE_FAILED = 1  # exit code
JSON_VERSION = 1
_STATES = {"passed": "green", "failed": "red", "untested": "yellow"}
_STYLES = {"better": "green", "worse": "red"}

Runs = Annotated[list[str], typer.Argument(metavar="RUN...", help="Folders or URLs of finished runs.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print everything as JSON.")]
OtherDraws = Annotated[
    bool,
    typer.Option("--other-draws", help="Allow runs with different seeds: pair by image, although random draws differ."),
]


def gate(
    folder: Annotated[str, typer.Argument(metavar="RUN", help="Folder or URL of a finished run.")],
    rules: Annotated[Path, typer.Option(metavar="FILE", help="YAML file of rules.")],
    junit: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the checks as JUnit XML.")] = None,
    markdown: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the result as Markdown.")] = None,
    store: Annotated[bool, typer.Option(help="Store the result in the run's folder and show it in the report.")] = True,
    as_json: AsJson = False,
) -> None:
    """Check a run against rules. Exit code 0 if all rules pass, 1 if one fails, 2 if they can't be checked.

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
        print_gate(result)
        say(*(f"wrote {file}" for file in (junit, markdown) if file is not None))
    if not result.passed:
        raise typer.Exit(GATE_FAILED)


def compare(
    runs: Runs,
    pair: Annotated[
        list[str] | None,
        typer.Option(metavar="OLD=NEW", help="Pair models whose names differ; may be repeated."),
    ] = None,
    other_draws: OtherDraws = False,
    common_images: Annotated[
        bool, typer.Option("--common-images", help="If the images differ, compare those that both runs have.")
    ] = False,
    alpha: Annotated[float, typer.Option(min=0, max=1, metavar="X", help="Significance level.")] = 0.05,
    gate: Annotated[Path | None, typer.Option(metavar="FILE", help="YAML file of rules; exit code 1 if one fails.")] = None,
    html: Annotated[Path | None, typer.Option("--out", "-o", metavar="FILE", help="Write an HTML page.")] = None,
    markdown: Annotated[Path | None, typer.Option(metavar="FILE", help="Write a summary as Markdown.")] = None,
    junit: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the gate's checks as JUnit XML.")] = None,
    as_json: AsJson = False,
) -> None:
    """Compare runs with the first one, image by image; or the models of one run with its first model.

    Examples: [bold]brinell compare runs/old runs/new -o changes.html[/]
    or [bold]brinell compare runs/old runs/new --gate gate.yaml --junit gate.xml[/]
    """
    from brinell.comparison.page import comparison_html, comparison_markdown, gate_junit, write_text
    from brinell.decisions import compare as compare_runs
    from brinell.decisions import gate as check_gate

    if junit is not None and gate is None:
        raise typer.BadParameter("--junit writes the checks of a gate; add --gate FILE")
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


def leaderboard(
    runs: Runs,
    other_draws: OtherDraws = False,
    slice_: Annotated[
        str | None,
        typer.Option(
            "--slice",
            metavar="COLUMN[=VALUE]",
            help="Rank on one slice of the images, or on each slice of a column: a metadata column, or class.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Rank the models of several runs by their mean rank over measures and operators.

    Example: [bold]brinell leaderboard runs/*[/]
    """
    from brinell.decisions import leaderboard as rank_models
    from brinell.decisions import slices

    chosen = [None] if slice_ is None else slices(*runs, column=slice_)
    boards = [rank_models(*runs, other_draws=other_draws, slice=one) for one in chosen]
    if as_json:
        content = [{"version": JSON_VERSION, **board.to_json()} for board in boards]
        print_json(content[0] if slice_ is None or "=" in slice_ else content)
        return
    for board in boards:
        _print_board(board)


def _print_board(board: Leaderboard) -> None:
    if board.slice is not None:
        out.print(f"\n{board.slice}", style="bold")
    out.print(_board_table(board), board.verdict(), sep="\n")
    if any(row.overall for row in board.rows):
        out.print(_overall_table(board))
    for measure in board.measures:
        out.print(f"{measure.name}: {board.heading(measure)} ({format_operators(board, measure)})")
    say(*(f"left out: {note}" for note in board.left_out))
    say(*(f"skipped {folder}: {reason}" for folder, reason in board.skipped.items()))


def _print(comparison: Comparison, result: GateResult | None) -> None:
    for number, pair in enumerate(comparison.pairs):
        out.print(f"\n{pair.title}, {len(pair.images)} images", style="bold", soft_wrap=True)
        say(*(f"note: {note}" for note in pair.notes))
        for measure in comparison.measures(number):
            if not measure.by_level:
                out.print(_measure_table(comparison, number, measure))
        for table in (one for one in comparison.tables.get(number, ()) if one.brief):
            out.print(Grid(table.heads, table.rows, table.title, table.note, frozenset({0, 1, len(table.heads) - 1})))
        out.print(comparison.verdict(number))
    say(*(f"left out: {note}" for note in comparison.left_out))
    if result is not None:
        print_gate(result)


def _measure_table(comparison: Comparison, number: int, measure: Measure) -> Grid:
    """Return one measure of a pair, the worst change first."""
    unit = "percentage points" if measure.unit == "points" else "percent of the old value"
    title = f"{describe_measure(measure)} ({measure.better} is better; changes in {unit})"
    deltas = comparison.select(number, measure.name)
    rows, styles = [], []
    for delta in deltas:
        verdict = delta.verdict(comparison.alpha)
        unpaired = f"\n+{delta.unpaired[0]}/+{delta.unpaired[1]}" if delta.unpaired != (0, 0) else ""
        p = "–" if delta.adjusted != delta.adjusted else f"{delta.adjusted:.2g}"
        values = (format_value(measure, value) for value in (delta.old, delta.new))
        shown = "" if verdict == "no clear difference" else verdict
        rows.append((delta.title, *values, format_change(delta, unit=False), p, f"{delta.images}{unpaired}", shown))
        styles.append(_STYLES.get(verdict, ""))
    some = any(delta.unpaired != (0, 0) for delta in deltas)
    note = "images with a value in both runs (+ only in the old / + only in the new, which are not counted)" if some else ""
    heads = ("operator", "before", "after", "change [95 %]", "p", "images", "")
    return Grid(heads, tuple(rows), title, note, frozenset({0, 6}), tuple(styles))


def print_gate(result: GateResult) -> None:
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
    text = format_share(value) if measure.unit == "points" else format_mean(value)
    return text.replace(" ", "\n")


def _board_table(board: Leaderboard) -> Grid:
    rows = []
    for row in board.rows:
        shared = sum(other.position == row.position for other in board.rows) > 1
        figures = (_figure(measure, row.figures[measure.name]) for measure in board.measures)
        rank = format_mean(row.rank, ".2f").replace(" ", "\n")
        rows.append((f"{row.position}{'=' * shared} {row.model}", rank, *figures))
    heads = ("model", "mean rank", *(measure.name for measure in board.measures))
    note = (
        "Place: 1 + the number of models that are significantly better; = marks ties. Mean rank (1 is best): ranks by the "
        "mean over operators, averaged over columns. Brackets: 95 % confidence intervals over images."
    )
    return Grid(heads, tuple(rows), note=note)


def _overall_table(board: Leaderboard) -> Grid:
    """Return figures that are not ranked, a row for each, with the models side by side."""
    names = dict.fromkeys(name for row in board.rows for name in row.overall)
    rows = [(name, *(_overall(name, row.overall.get(name)) for row in board.rows)) for name in names]
    note = "Not used for ranking; see docs/corruptions.md. Effective robustness is relative to the first model given."
    return Grid(("over all degradations", *(row.model for row in board.rows)), tuple(rows), note=note)


def _overall(name: str, value: Estimate | None) -> str:
    if value is None:
        return ""
    return format_mean(value) if name == "nll" else format_share(value)
