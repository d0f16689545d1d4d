"""The report: one HTML file with all it needs inside, made from a run's rows and stored pictures."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from typing import Any

import jinja2
import vl_convert

from brinell.classes import Classes
from brinell.config.criterion import DEFAULT_CRITERION, default_criterion
from brinell.engine.manifest import told_queries
from brinell.lenses.analysis import findings
from brinell.lenses.profile.charts import Figure
from brinell.report.parts import PARTS
from brinell.report.section import Namer, Section, Told
from brinell.runs.names import title
from brinell.runs.store import Store


def write_report(store: Store) -> str:
    """Write report.html into the run's folder and give its place."""
    store.write(render(store).encode(), "report.html")
    return store.place("report.html")


def render(store: Store) -> str:
    """The report's HTML."""
    manifest = store.manifest()
    connection = store.connect()
    sections = _sections(store, manifest)
    page = {
        "manifest": manifest,
        "manifest_text": json.dumps(_short(manifest), indent=1, ensure_ascii=False),
        "sections": sections,
        "title": title,
        "data": _data_facts(connection),
        "queries": told_queries(manifest),
        "problems": connection.execute("select name, problem from samples where problem is not null").fetchall(),
        "charts": [(name, embedded(chart)) for section in sections for name, chart in section.charts.items()],
        "bundle": bundle(),
    }
    return template("report.html").render(page)


def _sections(store: Store, manifest: dict[str, Any]) -> list[Section]:
    """A part of the page for each lens that the run has."""
    found = findings(store.connect(), manifest)
    kinds = dict.fromkeys(default_criterion("detection" in facts) for facts in manifest["models"].values())
    options = {
        lens["name"]: {
            **lens,
            "criterion": " or ".join(kinds) if lens["criterion"] == DEFAULT_CRITERION else lens["criterion"],
        }
        for lens in manifest["identity"]["config"]["lenses"]
    }
    names = _names(manifest)
    return [PARTS[type(own)].section(Told(store, options.get(lens, {}), names), own) for lens, own in found.items()]


def _names(manifest: dict[str, Any]) -> dict[str, Namer]:
    return {model: _namer(facts["classes"]) for model, facts in manifest["models"].items()}


def embedded(chart: Figure) -> str:
    """A chart's JSON, safe inside a script element."""
    text: str = chart.to_json(indent=None)
    return text.replace("<", "\\u003c")


@cache
def bundle() -> str:
    """Vega and its parts as one script."""
    script: str = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;")
    return script.replace("</script", "<\\/script")


@cache
def template(name: str) -> jinja2.Template:
    """A page's template, with what the pages share."""
    loader = jinja2.PackageLoader("brinell.report", "templates")
    environment = jinja2.Environment(loader=loader, autoescape=True, trim_blocks=True, lstrip_blocks=True)
    environment.filters["percent"] = lambda value: "–" if value is None or value != value else f"{100 * value:.1f} %"
    return environment.get_template(name)


def _namer(classes: list[str] | None) -> Callable[[int], str]:
    """Class numbers as names for people."""
    known = Classes(tuple(classes or ()))
    return lambda index: "nothing" if index < 0 else known.short_name(index)


def _data_facts(connection: Any) -> dict[str, int]:
    total, usable, unreadable = connection.execute(
        "select count(*), count(*) filter (problem is null), count(*) filter (image is null) from samples"
    ).fetchone()
    kept, answered = connection.execute(
        "select count(distinct index) filter (kept), count(distinct index) from clean"
    ).fetchone()
    return {
        "total": total,
        "unreadable": unreadable,
        "objectless": total - usable - unreadable,
        "unlabelled": usable - answered,
        "not_selected": answered - kept,
        "kept": kept,
    }


def _short(manifest: dict[str, Any]) -> dict[str, Any]:
    """The manifest without the models' class lists, which are long."""
    models = {name: {k: v for k, v in facts.items() if k != "classes"} for name, facts in manifest["models"].items()}
    return {**manifest, "models": models}


def write_figures(store: Store, folder: str = "figures") -> list[str]:
    """All figures of the run's lenses as SVG and PNG."""
    charts: dict[str, Figure] = {}
    pictures: dict[str, bytes] = {}
    manifest = store.manifest()
    for found in findings(store.connect(), manifest).values():
        part = PARTS[type(found)]
        charts |= part.figures(found)
        pictures |= part.pictures(Told(store, {}, _names(manifest)), found)
    written = []
    for name, content in pictures.items():
        store.write(content, folder, f"{name}.png")
        written.append(f"{name}.png")
    for name, chart in charts.items():
        text = chart.to_json(indent=None)
        store.write(vl_convert.vegalite_to_svg(text).encode(), folder, f"{name}.svg")
        store.write(vl_convert.vegalite_to_png(text, scale=2), folder, f"{name}.png")
        written += [f"{name}.svg", f"{name}.png"]
    return written
