"""The report: one HTML file with everything inside, made from a run's rows and stored pictures."""

from __future__ import annotations

import importlib
import importlib.resources
import json
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import jinja2

from brinell.classes import Classes
from brinell.config.criterion import DEFAULT_CRITERION, default_criterion
from brinell.marks import STYLES
from brinell.report.show import Chart, Context, Namer, Show
from brinell.runs.queries import describe_queries
from brinell.runs.run import Run

Shown = tuple[Show, str, Any]  # how a lens shows its findings, the lens's name, and the findings


def write_report(run: Run, shown: Sequence[Shown], gate: Any = None) -> str:
    """Write report.html into the run's folder and return its path or URL; `gate` is the result of rules."""
    run.store.write(render(run, shown, gate).encode(), "report.html")
    return run.store.place("report.html")


def render(run: Run, shown: Sequence[Shown], gate: Any = None) -> str:
    """Return the report's HTML."""
    sections = [show.section(context_of(run, lens), findings) for show, lens, findings in shown]
    problems = run.query("select name, problem from samples where problem is not null")
    page = {
        "gate": gate,
        "manifest": run.manifest,
        "manifest_text": json.dumps(_short(run.manifest), indent=1, ensure_ascii=False),
        "sections": sections,
        "title": run.title,
        "data": _data_facts(run),
        "queries": describe_queries(run.manifest),
        "problems": problems,
        "charts": [(name, embedded(chart)) for section in sections for name, chart in section.charts.items()],
        "bundle": bundle(),
    }
    return template("report.html").render(page)


def context_of(run: Run, lens: str) -> Context:
    """Return what a lens's section needs besides its findings."""
    options = dict(run.lens(lens))
    if options.get("criterion") == DEFAULT_CRITERION:
        kinds = dict.fromkeys(default_criterion(model.detector) for model in run.models.values())
        options["criterion"] = " or ".join(kinds)
    return Context(run, options, {name: _namer(model.classes) for name, model in run.models.items()})


def embedded(chart: Chart) -> str:
    """Return a chart's JSON, safe inside a script element."""
    text: str = chart.to_json(indent=None)
    return text.replace("<", "\\u003c")


@cache
def bundle() -> str:
    """Return Vega and its parts as one script."""
    vl_convert = importlib.import_module("vl_convert")  # slow to import, and needed for pages alone
    script: str = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;")
    return script.replace("</script", "<\\/script")


def _load_template(name: str) -> str:
    """Return a template of this package, or of another one as "package:file"."""
    package, _, file = name.rpartition(":")
    folder = importlib.resources.files(package) if package else importlib.resources.files("brinell.report") / "templates"
    return (folder / file).read_text(encoding="utf-8")


@cache
def template(name: str) -> jinja2.Template:
    """Return a page's template, with the filters that the pages share."""
    loader = jinja2.FunctionLoader(_load_template)
    environment = jinja2.Environment(loader=loader, autoescape=True, trim_blocks=True, lstrip_blocks=True)
    environment.filters["percent"] = lambda value: "–" if value is None or value != value else f"{100 * value:.1f} %"
    environment.globals["box_styles"] = list(STYLES.values())
    return environment.get_template(name)


def _namer(classes: Sequence[str] | None) -> Namer:
    """Return a function from class indices to names for people."""
    known = Classes(tuple(classes or ()))
    return lambda index: "nothing" if index < 0 else known.short_name(index)


def _data_facts(run: Run) -> dict[str, int]:
    [(total, usable, unreadable)] = run.query(
        "select count(*), count(*) filter (problem is null), count(*) filter (image is null) from samples"
    )
    [(kept, answered)] = run.query("select count(distinct index) filter (kept), count(distinct index) from clean")
    return {
        "total": total,
        "unreadable": unreadable,
        "objectless": total - usable - unreadable,
        "unlabelled": usable - answered,
        "not_selected": answered - kept,
        "kept": kept,
    }


def _short(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """Return the manifest without the models' class lists, which are long."""
    models = {name: {k: v for k, v in facts.items() if k != "classes"} for name, facts in manifest["models"].items()}
    return {**manifest, "models": models}


def write_figures(run: Run, shown: Sequence[Shown], folder: str = "figures") -> list[str]:
    """Write all figures as SVG and PNG into a folder of the run and return the names of the files."""
    vl_convert = importlib.import_module("vl_convert")
    charts: dict[str, Chart] = {}
    pictures: dict[str, bytes] = {}
    for show, lens, findings in shown:
        charts |= show.charts(findings)
        pictures |= show.pictures(context_of(run, lens), findings)
    written = []
    for name, content in pictures.items():
        run.store.write(content, folder, f"{name}.png")
        written.append(f"{name}.png")
    for name, chart in charts.items():
        text = chart.to_json(indent=None)
        run.store.write(vl_convert.vegalite_to_svg(text).encode(), folder, f"{name}.svg")
        run.store.write(vl_convert.vegalite_to_png(text, scale=2), folder, f"{name}.png")
        written += [f"{name}.svg", f"{name}.png"]
    return written
