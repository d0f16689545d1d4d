"""The report: one HTML file with all it needs inside, made from a run's rows and stored pictures."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import jinja2
import vl_convert

from brinell.classes import Classes
from brinell.engine import Exhibit, read_exhibits
from brinell.report.figures import Figure, area_bars, average_profiles, operator_profiles
from brinell.results import METRICS, THRESHOLDS, Profiles, Store, profiles, title


@dataclass(frozen=True)
class Picture:
    """An image on the page, with what is written under it."""

    source: str
    heading: str
    lines: tuple[str, ...]
    right: bool | None = None
    clean_source: str | None = None


def write_report(store: Store) -> str:
    """Write report.html into the run's folder and give its place."""
    store.write(render(store).encode(), "report.html")
    return store.place("report.html")


def render(store: Store) -> str:
    """The report's HTML."""
    manifest = store.manifest()
    connection = store.connect()
    found = profiles(connection)
    exhibits = read_exhibits(store)
    names = {model: _namer(facts["classes"]) for model, facts in manifest["models"].items()}
    page = {
        "manifest": manifest,
        "manifest_text": json.dumps(_short(manifest), indent=1, ensure_ascii=False),
        "found": found,
        "title": title,
        "thresholds": THRESHOLDS,
        "data": _data_facts(connection),
        "problems": connection.execute("select name, problem from samples where problem is not null").fetchall(),
        "charts": _charts(found),
        "bundle": _bundle(),
        "sheets": _sheets(store, found, exhibits, names),
        "breakers": _breakers(store, found, exhibits, names),
        "levels": max(len(points) for points in found.curves.values()) - 1,
    }
    return _template().render(page)


def _charts(found: Profiles) -> list[tuple[str, str]]:
    figures = {"average": average_profiles(found), "operators": operator_profiles(found), "areas": area_bars(found)}
    return [(name, _embedded(chart)) for name, chart in figures.items()]


def _embedded(chart: Figure) -> str:
    """A chart's JSON, safe inside a script element."""
    text: str = chart.to_json(indent=None)
    return text.replace("<", "\\u003c")


@cache
def _bundle() -> str:
    """Vega and its parts as one script."""
    script: str = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;")
    return script.replace("</script", "<\\/script")


@cache
def _template() -> jinja2.Template:
    loader = jinja2.PackageLoader("brinell.report", "templates")
    environment = jinja2.Environment(loader=loader, autoescape=True, trim_blocks=True, lstrip_blocks=True)
    environment.filters["percent"] = lambda value: "–" if value is None or value != value else f"{100 * value:.1f} %"
    return environment.get_template("report.html")


def _namer(classes: list[str] | None) -> Callable[[int], str]:
    """Class numbers as names for people."""
    if classes is None:
        return lambda index: f"class {index}"
    return Classes(tuple(classes)).short


def _data_facts(connection: Any) -> dict[str, int]:
    total, readable = connection.execute("select count(*), count(*) filter (problem is null) from samples").fetchone()
    kept, answered = connection.execute(
        "select count(distinct index) filter (kept), count(distinct index) from clean"
    ).fetchone()
    return {
        "total": total,
        "unreadable": total - readable,
        "unlabelled": readable - answered,
        "not_selected": answered - kept,
        "kept": kept,
    }


def _inline(store: Store, file: str) -> str:
    return "data:image/webp;base64," + base64.b64encode(store.read(file)).decode()


def _sheets(
    store: Store, found: Profiles, exhibits: list[Exhibit], names: dict[str, Callable[[int], str]]
) -> list[tuple[str, list[tuple[float, list[Picture]]]]]:
    """For each model and threshold the example image at every operator's failure point (Figures 7-9)."""
    sheets = []
    for model in found.models:
        by_threshold = []
        for threshold in THRESHOLDS:
            shown = [e for e in exhibits if e.model == model and e.threshold == threshold]
            shown.sort(key=lambda exhibit: exhibit.level)
            pictures = [_failure_picture(store, found, exhibit, names[model]) for exhibit in shown]
            by_threshold.append((threshold, pictures))
        if any(pictures for _, pictures in by_threshold):
            sheets.append((model, by_threshold))
    return sheets


def _failure_picture(store: Store, found: Profiles, exhibit: Exhibit, name: Callable[[int], str]) -> Picture:
    assert exhibit.threshold is not None
    told = found.failure(exhibit.model, exhibit.operator, exhibit.threshold).told
    lines = (f"level {exhibit.level}: {told}", f"{name(exhibit.prediction)}{_sure(exhibit.confidence)}")
    return Picture(_inline(store, exhibit.file), title(exhibit.operator), lines, exhibit.correct)


def _breakers(
    store: Store, found: Profiles, exhibits: list[Exhibit], names: dict[str, Callable[[int], str]]
) -> list[tuple[str, list[tuple[str, list[Picture]]]]]:
    """For each model and operator the images that break first, beside the clean ones."""
    groups = []
    for model in found.models:
        by_operator = []
        for operator in found.operators:
            shown = [e for e in exhibits if e.model == model and e.operator == operator and e.threshold is None]
            pictures = [
                Picture(
                    _inline(store, exhibit.file),
                    f"level {exhibit.level}",
                    (
                        f"clean: {names[model](exhibit.label)}{_sure(exhibit.clean_confidence)}",
                        f"then: {names[model](exhibit.prediction)}{_sure(exhibit.confidence)}",
                    ),
                    False,
                    _inline(store, exhibit.clean_file),
                )
                for exhibit in shown
            ]
            if pictures:
                by_operator.append((title(operator), pictures))
        if by_operator:
            groups.append((model, by_operator))
    return groups


def _sure(confidence: float | None) -> str:
    return "" if confidence is None else f", {confidence:.0%} sure"


def _short(manifest: dict[str, Any]) -> dict[str, Any]:
    """The manifest without the models' class lists, which are long."""
    models = {name: {k: v for k, v in facts.items() if k != "classes"} for name, facts in manifest["models"].items()}
    return {**manifest, "models": models}


def write_figures(store: Store, folder: str = "figures") -> list[str]:
    """All figures of the paper's kind as SVG and PNG: the averages, and each model's operators, by every measure."""
    found = profiles(store.connect())
    charts: dict[str, Figure] = {f"average-{metric}": average_profiles(found, metric) for metric in METRICS}
    charts["areas"] = area_bars(found)
    for model in found.models:
        for metric in METRICS:
            charts[f"{model}-{metric}"] = operator_profiles(found, model, metric)
    written = []
    for name, chart in charts.items():
        text = chart.to_json(indent=None)
        store.write(vl_convert.vegalite_to_svg(text).encode(), folder, f"{name}.svg")
        store.write(vl_convert.vegalite_to_png(text, scale=2), folder, f"{name}.png")
        written += [f"{name}.svg", f"{name}.png"]
    return written
