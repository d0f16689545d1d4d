"""Runs compared, for people and machines: an HTML page, Markdown, and JUnit's XML of a gate."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from brinell.comparison.charts import comparison_charts
from brinell.comparison.contrasts import Contrast, Contrasts, operator_title, tell
from brinell.comparison.gates import Judgement
from brinell.comparison.measures import Measure
from brinell.errors import ConfigError
from brinell.lenses.profile.findings import THRESHOLDS
from brinell.report.page import bundle, embedded, template


def write_comparison(found: Contrasts, path: str | os.PathLike[str], judgement: Judgement | None = None) -> None:
    """Write what was compared as the file's name says: .html, .md, or .xml (JUnit, of a gate)."""
    path = Path(path)
    makers = {".html": comparison_page, ".htm": comparison_page, ".md": comparison_markdown, ".xml": _junit}
    if path.suffix.lower() not in makers:
        raise ConfigError(f"{path} should end in .html, .md or .xml, which says what is written")
    write_text(makers[path.suffix.lower()](found, judgement), path)


def write_text(text: str, path: Path) -> None:
    """Write a file, or say in a line why that can't be."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"can't write {path}: {error.strerror or error}") from None


def comparison_page(
    found: Contrasts, judgement: Judgement | None = None, hardening: Mapping[str, Any] | None = None
) -> str:
    """One HTML file with all it needs inside; of a `hardening`, what that came to first."""
    charts = {
        (number, name): chart
        for number in range(len(found.pairs))
        for name, chart in comparison_charts(found, number).items()
    }
    return template("comparison.html").render(
        found=found,
        judgement=judgement,
        hardening=hardening,
        made=time.strftime("%Y-%m-%d %H:%M"),
        version=_version(),
        thresholds=THRESHOLDS,
        title=operator_title,
        tell=tell,
        drawn=set(charts),
        charts=[(f"{number}-{name}", embedded(chart)) for (number, name), chart in charts.items()],
        bundle=bundle(),
    )


def comparison_markdown(found: Contrasts, judgement: Judgement | None = None) -> str:
    """The same as Markdown, for a job's summary or a pull request."""
    lines = []
    if judgement is not None:
        lines += _gate_lines(found, judgement)
    for number, pair in enumerate(found.pairs):
        lines += [f"## {_cell(pair.told)}", "", found.verdict(number), ""]
        lines += [f"*{note[0].upper()}{note[1:]}.*\n" for note in pair.notes]
        for measure in found.measures(number):
            if not measure.by_level:
                lines += _table(found, number, measure)
    lines += [f"*Left out: {note}.*\n" for note in found.left_out]
    lines.append(
        "Changes are new minus old over the same images, with 95 % intervals; p is adjusted for all operators of a measure "
        "(Holm). Shares of images: McNemar's exact test; means: a paired bootstrap over images."
    )
    return "\n".join(lines) + "\n"


def _gate_lines(found: Contrasts, judgement: Judgement) -> list[str]:
    broken = judgement.broken
    kept = sum(check.state == "kept" for check in judgement.checks)
    untested = len(judgement.checks) - kept - len(broken)
    head = f"# Gate: {'broken' if broken else 'passed'}"
    counts = f"{len(broken)} broken, {kept} kept" + (f", {untested} untested (too few images)" if untested else "")
    lines = [head, "", f"{len(judgement.checks)} checks of {len(judgement.gate.rules)} rules: {counts}.", ""]
    if broken:
        lines += ["| rule | pair | what changed |", "|---|---|---|"]
        lines += [
            f"| {_cell(check.rule.told)} | {_cell(found.pairs[check.line.pair].told)} | {_cell(check.told)} |"
            for check in broken
        ]
        lines.append("")
    return lines


def _table(found: Contrasts, number: int, measure: Measure) -> list[str]:
    lines = [f"### {measure.what[0].upper()}{measure.what[1:]}", ""]
    lines += ["| | before | after | change [95 %] | p | |", "|---|--:|--:|--:|--:|---|"]
    for line in found.of(number, measure.name):
        chance = "–" if line.adjusted != line.adjusted else f"{line.adjusted:.2g}"
        verdict = line.verdict(found.alpha)
        told = f"**{verdict}**" if verdict in ("better", "worse") else verdict
        before, after = (value(measure, one) for one in (line.old, line.new))
        lines.append(f"| {_cell(operator_title(line.operator))} | {before} | {after} | {tell(line)} | {chance} | {told} |")
    lines += ["", *([_alone(found.of(number, measure.name)), ""] if measure.unit == "percent" else [])]
    return lines


def _alone(lines: list[Contrast]) -> str:
    """Of measures that not all images have: how many have it on one side only."""
    each = [
        f"{operator_title(line.operator)} {line.alone[0]} and {line.alone[1]} ({line.images} in both)" for line in lines
    ]
    return f"Images with a value before alone, and after alone: {'; '.join(each)}."


def value(measure: Measure, number: float) -> str:
    """A mean for people."""
    if number != number:
        return "–"
    return f"{number:.1%}" if measure.unit == "points" else f"{number:.3g}"


def junit(found: Contrasts, judgement: Judgement) -> str:
    """A gate's checks as JUnit's XML, a suite a pair and a case a rule and operator."""
    root = ElementTree.Element("testsuites", name="brinell gate")
    for number, pair in enumerate(found.pairs):
        checks = [check for check in judgement.checks if check.line.pair == number]
        counts = {state: sum(check.state == state for check in checks) for state in ("broken", "untested")}
        suite = ElementTree.SubElement(
            root,
            "testsuite",
            name=pair.told,
            tests=str(len(checks)),
            failures=str(counts["broken"]),
            skipped=str(counts["untested"]),
            errors="0",
            time="0",
        )
        for check in checks:
            level = "" if check.line.level is None else f" at level {check.line.level}"
            name = f"{check.rule.told}: {operator_title(check.line.operator)}{level}"
            case = ElementTree.SubElement(suite, "testcase", classname=f"brinell.{check.rule.measure}", name=name, time="0")
            if check.state == "broken":
                told = f"{pair.told}: {check.told}; {check.rule.told}"
                ElementTree.SubElement(case, "failure", message=check.told, type="regression").text = told
            elif check.state == "untested":
                ElementTree.SubElement(case, "skipped", message="too few images to tell a change from chance")
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def _junit(found: Contrasts, judgement: Judgement | None) -> str:
    if judgement is None:
        raise ConfigError("a JUnit file tells what a gate says; give one with --gate FILE")
    return junit(found, judgement)


def _cell(text: str) -> str:
    """A text that can't break out of a table's cell."""
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")


def _version() -> str:
    try:
        return version("brinell")
    except PackageNotFoundError:
        return ""
