"""The report: one HTML file with everything inside, made from a run's rows and stored pictures."""

from __future__ import annotations

import importlib.resources
import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any
from urllib.parse import quote

import jinja2
from markupsafe import Markup

from brinell.classes import Classes
from brinell.config.criterion import DEFAULT_CRITERION, default_criterion
from brinell.errors import ConfigError
from brinell.marks import STYLES
from brinell.report.cards import Rated, hardness_table, make_cards, section_id
from brinell.report.figures import draw_panel, draw_png, draw_svg
from brinell.report.order import order_models
from brinell.report.section import Section, to_csv
from brinell.report.show import Chart, Context, Namer, Show
from brinell.runs.queries import describe_invalid, describe_queries
from brinell.runs.run import Run

Shown = tuple[Show, str, Any]  # how a lens shows its findings, the lens's name, and the findings


@dataclass(frozen=True)
class Content:
    """What a report is made of: the run, what each lens found, hardness, what was not tested, and the result of rules."""

    run: Run
    shown: Sequence[Shown]
    rated: Sequence[Rated] = ()
    untested: Sequence[str] = ()
    gate: Any = None
    sample: str = ""  # what a budget left out
    sections: dict[str, Section] = field(init=False)

    def __post_init__(self) -> None:
        rated = {one.lens: one for one in self.rated}
        models = list(self.run.models)
        made = {
            lens: order_models(show.section(context_of(self.run, lens, rated.get(lens)), findings), models)
            for show, lens, findings in self.shown
        }
        object.__setattr__(self, "sections", made)


def write_report(content: Content, out: str | os.PathLike[str] | None = None) -> str:
    """Write report.html into the run's folder, or another file, and return its path or URL."""
    if out is None:
        content.run.store.write(render(content).encode(), "report.html")
        return content.run.store.place("report.html")
    try:
        Path(out).write_text(render(content), encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"can't write {os.fspath(out)}: {error.strerror or error}") from None
    return os.fspath(out)


def write_cards(content: Content, folder: str, models: Sequence[str] = ()) -> list[str]:
    """Write the cards of models (default: all) into a folder of the run as SVG, PNG and Markdown; return the names."""
    from brinell.report.card_files import CardFacts, card_png, draw_card, file_name, write_markdown

    written: list[str] = []
    for card in make_cards(content.run, content.rated, content.sections, content.untested):
        if models and card.model not in models:
            continue
        facts, name = CardFacts.of(content.run, card), file_name(card.model)
        while f"{name}.svg" in written:
            name += "-2"
        svg = draw_card(card, facts)
        files = {"svg": svg.encode(), "png": card_png(svg), "md": write_markdown(card, facts, f"{name}.png").encode()}
        for suffix, data in files.items():
            content.run.store.write(data, folder, f"{name}.{suffix}")
            written.append(f"{name}.{suffix}")
    return written


def render(content: Content) -> str:
    """Return the report's HTML."""
    run = content.run
    data = _data_facts(run)
    page = {
        "gate": content.gate,
        "sample": content.sample,
        "manifest": run.manifest,
        "manifest_text": json.dumps(_short(run.manifest), indent=1, ensure_ascii=False),
        "models": list(run.models),
        "cards": make_cards(run, content.rated, content.sections, content.untested),
        "sections": [{"id": section_id(lens), "content": section} for lens, section in content.sections.items()],
        "hardness_table": hardness_table(content.rated, list(run.models)),
        "scales": [(one.scale.what, one.scale.meaning) for one in content.rated],
        "untested": [*content.untested, *_describe_data(run, data)],
        "title": run.title,
        "data": data,
        "queries": [*describe_queries(run.manifest), *describe_invalid(run)],
        "problems": run.query("select name, problem from samples where problem is not null"),
    }
    return render_template("report.html", page)


def render_template(name: str, content: Mapping[str, Any]) -> str:
    """Return a page with what all pages share: drawn figures, files to download, and each picture once."""
    shared = {"draw": lambda chart: Markup(draw_panel(chart)), "csv_link": _csv_link, "source_of": _once()}
    return _environment().get_template(name).render({**shared, **content})


def _csv_link(records: Iterable[Mapping[str, Any]]) -> str:
    return "data:text/csv;charset=utf-8," + quote(to_csv(records))


def _once() -> Callable[[str], Markup]:
    """Return a function that gives a picture's attributes: its data where it occurs first, later where that is."""
    seen: dict[str, str] = {}

    def attributes(source: str) -> Markup:
        if source in seen:
            return Markup('data-same="{}"').format(seen[source])
        seen[source] = f"picture-{len(seen)}"
        return Markup('id="{}" src="{}"').format(seen[source], source)

    return attributes


def context_of(run: Run, lens: str, rated: Rated | None = None) -> Context:
    """Return what a lens's section needs besides its findings."""
    options = dict(run.lens(lens))
    if options.get("criterion") == DEFAULT_CRITERION:
        kinds = dict.fromkeys(default_criterion(model.task) for model in run.models.values())
        options["criterion"] = " or ".join(kinds)
    names = {name: _namer(model.classes) for name, model in run.models.items()}
    return Context(run, options, names, {} if rated is None else rated.models)


def _load_template(name: str) -> str:
    """Return a template of this package, or of another one as "package:file"."""
    package, _, file = name.rpartition(":")
    folder = importlib.resources.files(package) if package else _templates()
    return (folder / file).read_text(encoding="utf-8")


def _templates() -> Traversable:
    return importlib.resources.files("brinell.report") / "templates"


def load_templates() -> None:
    """Compile the templates of reports, which are then ready."""
    for file in _templates().iterdir():
        if file.name.endswith(".html"):
            _environment().get_template(file.name)


@cache
def _environment() -> jinja2.Environment:
    """Return where templates are loaded, with the filters that the pages share."""
    loader = jinja2.FunctionLoader(_load_template)
    environment = jinja2.Environment(loader=loader, autoescape=True, trim_blocks=True, lstrip_blocks=True)
    environment.filters["percent"] = lambda value: "–" if value is None or value != value else f"{100 * value:.1f} %"
    environment.filters["tojson_text"] = json.dumps
    environment.globals["box_styles"] = list(STYLES.values())
    return environment


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


def _describe_data(run: Run, data: Mapping[str, int]) -> list[str]:
    """Return which images were not measured, and why."""
    if data["total"] == data["kept"]:
        return []
    parts = [f"{data['kept']} images were measured out of {data['total']}."]
    if data["unreadable"]:
        parts.append(f"{data['unreadable']} could not be read (listed below).")
    if data["objectless"]:
        parts.append(f"{data['objectless']} show no object of the requested kind (listed below).")
    if data["unlabelled"] and run.config["data"]["labels"] == "prediction":
        parts.append(f"{data['unlabelled']} were left out: a model found nothing in them that could be their label.")
    elif data["unlabelled"]:
        parts.append(f"{data['unlabelled']} have no single label.")
    if data["not_selected"]:
        parts.append(f"{data['not_selected']} were excluded by the selection “{run.config['select']}”.")
    return [" ".join(parts)]


def _short(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """Return the manifest without the models' class lists, which are long."""
    models = {name: {k: v for k, v in facts.items() if k != "classes"} for name, facts in manifest["models"].items()}
    return {**manifest, "models": models}


def write_figures(run: Run, shown: Sequence[Shown], folder: str = "figures") -> list[str]:
    """Write all figures as SVG and PNG into a folder of the run and return the names of the files."""
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
        run.store.write(draw_svg(chart).encode(), folder, f"{name}.svg")
        run.store.write(draw_png(chart), folder, f"{name}.png")
        written += [f"{name}.svg", f"{name}.png"]
    return written
