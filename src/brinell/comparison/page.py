"""A comparison as files: an HTML page, Markdown, and a gate's checks as JUnit XML."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from brinell.comparison.compare import Comparison, Delta, format_change
from brinell.comparison.gates import GateResult
from brinell.comparison.measures import describe_measure, format_value
from brinell.errors import ConfigError
from brinell.lenses.reader import ComparisonTable, Measure
from brinell.report.page import render_template
from brinell.versions import package_version

TEMPLATE = "brinell.comparison:comparison.html"


def write_comparison(comparison: Comparison, path: str | os.PathLike[str], gate: GateResult | None = None) -> None:
    """Write a comparison in the format of the file's suffix: .html, .md, or .xml (JUnit, for a gate)."""
    path = Path(path)
    suffix = path.suffix.lower()
    if suffix in (".html", ".htm"):
        write_text(comparison_html(comparison, gate), path)
    elif suffix == ".md":
        write_text(comparison_markdown(comparison, gate), path)
    elif suffix != ".xml":
        raise ConfigError(f"expected a file that ends in .html, .md or .xml, got {path}")
    elif gate is None:
        raise ConfigError("a JUnit file reports a gate's checks; give a gate with --gate FILE")
    else:
        write_text(gate_junit(gate), path)


def write_text(text: str, path: Path) -> None:
    """Write a file, or raise an error of one line."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"can't write {path}: {error.strerror or error}") from None


def comparison_html(
    comparison: Comparison, gate: GateResult | None = None, *, page: str = TEMPLATE, content: dict[str, Any] | None = None
) -> str:
    """Return one HTML file with everything inside; `page` may be a template that extends this one, with more `content`."""
    from brinell.comparison.charts import comparison_figures  # altair is slow to import, and only a page needs it

    figures = {
        (number, name): figure
        for number in range(len(comparison.pairs))
        for name, figure in comparison_figures(comparison, number).items()
    }
    facts = {
        "comparison": comparison,
        "gate": gate,
        "made": time.strftime("%Y-%m-%d %H:%M"),
        "version": package_version("brinell") or "",
        "describe": describe_measure,
        "format_change": format_change,
        "format_value": format_value,
        "figures": figures,
    }
    return render_template(page, facts | (content or {}))


def comparison_markdown(comparison: Comparison, gate: GateResult | None = None) -> str:
    """Return a summary as Markdown, for a CI job's summary or a pull request."""
    lines = [gate_markdown(gate)] if gate is not None else []
    for number, pair in enumerate(comparison.pairs):
        lines += [f"## {_cell(pair.title)}", "", comparison.verdict(number), ""]
        lines += [f"*{note[0].upper()}{note[1:]}.*\n" for note in pair.notes]
        for measure in comparison.measures(number):
            if not measure.by_level:
                lines += _measure_markdown(comparison, number, measure)
        for table in (one for one in comparison.tables.get(number, ()) if one.brief):
            lines += _table_markdown(table)
    lines += [f"*Left out: {note}.*\n" for note in comparison.left_out]
    lines.append(
        "Changes are new minus old over the same images, with 95 % intervals; p-values are adjusted for all operators of a "
        "measure (Holm). Shares of images: McNemar's exact test; means: paired bootstrap over images."
    )
    return "\n".join(lines) + "\n"


def gate_markdown(gate: GateResult) -> str:
    """Return a gate's result as Markdown, for a CI job's summary or a pull request."""
    failed, passed, untested = (gate.select(state) for state in ("failed", "passed", "untested"))
    counts = f"{len(failed)} failed, {len(passed)} passed" + (
        f", {len(untested)} untested (too few images)" * bool(untested)
    )
    lines = [f"# Gate: {'passed' if gate.passed else 'failed'}", ""]
    lines += [f"{len(gate.checks)} checks of {len(gate.gate.rules)} rules: {counts}.", ""]
    if failed:
        lines += ["| rule | models | result |", "|---|---|---|"]
        lines += [f"| {_cell(check.rule.title)} | {_cell(check.subject)} | {_cell(check.summary)} |" for check in failed]
        lines.append("")
    return "\n".join(lines)


def _measure_markdown(comparison: Comparison, number: int, measure: Measure) -> list[str]:
    what = describe_measure(measure)
    lines = [f"### {what[0].upper()}{what[1:]}", ""]
    lines += ["| | before | after | change [95 %] | p | |", "|---|--:|--:|--:|--:|---|"]
    deltas = comparison.select(number, measure.name)
    for delta in deltas:
        p = "–" if delta.adjusted != delta.adjusted else f"{delta.adjusted:.2g}"
        verdict = delta.verdict(comparison.alpha)
        verdict = f"**{verdict}**" if verdict in ("better", "worse") else verdict
        before, after = (format_value(measure, value) for value in (delta.old, delta.new))
        lines.append(f"| {_cell(delta.title)} | {before} | {after} | {format_change(delta)} | {p} | {verdict} |")
    lines += ["", *([_describe_unpaired(deltas), ""] if measure.unit == "percent" else [])]
    return lines


def _table_markdown(table: ComparisonTable) -> list[str]:
    rows = [table.heads, ["---", *["--:"] * (len(table.heads) - 1)], *table.rows]
    return [f"### {_cell(table.title)}", "", *(f"| {' | '.join(map(_cell, row))} |" for row in rows), "", table.note, ""]


def _describe_unpaired(deltas: list[Delta]) -> str:
    """Return how many images have a value on one side only, for measures that not all images have."""
    each = [f"{one.title} {one.unpaired[0]} and {one.unpaired[1]} ({one.images} in both)" for one in deltas]
    return f"Images with a value only before, and only after: {'; '.join(each)}."


def gate_junit(gate: GateResult) -> str:
    """Return a gate's checks as JUnit XML: a suite per model or pair, a case per rule and operator."""
    root = ElementTree.Element("testsuites", name="brinell gate")
    for subject in gate.subjects:
        checks = [check for check in gate.checks if check.subject == subject]
        counts = {state: sum(check.state == state for check in checks) for state in ("failed", "untested")}
        suite = ElementTree.SubElement(
            root,
            "testsuite",
            name=subject,
            tests=str(len(checks)),
            failures=str(counts["failed"]),
            skipped=str(counts["untested"]),
            errors="0",
            time="0",
        )
        for check in checks:
            name = f"{check.rule.title}: {check.title}"
            case = ElementTree.SubElement(suite, "testcase", classname=f"brinell.{check.rule.measure}", name=name, time="0")
            if check.state == "failed":
                text = f"{subject}: {check.summary}; {check.rule.title}"
                kind = "limit" if check.rule.drop is None else "regression"
                ElementTree.SubElement(case, "failure", message=check.summary, type=kind).text = text
            elif check.state == "untested":
                ElementTree.SubElement(case, "skipped", message="too few images for a test")
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def _cell(text: str) -> str:
    """Return a text that can't break out of a table's cell."""
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")
