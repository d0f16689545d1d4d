"""What `brinell ls` prints."""

from __future__ import annotations

from collections.abc import Callable

from rich.table import Table
from rich.text import Text

from brinell import catalogue
from brinell.errors import UnknownName
from brinell.registry import nearest


def listing(what: str) -> Table:
    """Return a table of everything that is registered under a kind."""
    kinds: dict[str, Callable[[], Table]] = {
        "lenses": _lenses,
        "presets": _presets,
        "operators": _operators,
        "models": _models,
        "datasets": _datasets,
        "criteria": _criteria,
    }
    if what not in kinds:
        raise UnknownName(f"unknown kind {what!r}; {nearest(what, list(kinds))}")
    return kinds[what]()


def _table(*heads: str) -> Table:
    table = Table(show_edge=False)
    for head in heads:
        table.add_column(head, overflow="fold")
    return table


def _lenses() -> Table:
    from brinell.lenses.lens import LENSES

    table = _table("lens", "question", "what it measures")
    for lens in LENSES.values():
        table.add_row(lens.name, lens.question, f"{lens.summary} ({lens.source})" if lens.source else lens.summary)
    return table


def _presets() -> Table:
    from brinell.lenses.lens import LENSES

    table = _table("lens", "preset", "what it is")
    for lens in LENSES.values():
        for number, (name, preset) in enumerate(lens.options.known_presets().items()):
            table.add_row("" if number else lens.name, name, preset.description)
        table.add_section()
    return table


def _operators() -> Table:
    table = _table("operator", "what it does")
    for lens, entries in catalogue.read().items():
        if lens != catalogue.CRITERIA:
            table.add_row(Text(f"lens {lens}", style="bold"), "")
            for entry in entries:
                tags = f" ({', '.join(entry.tags)})" if entry.tags else ""
                table.add_row(entry.name, f"{entry.description}{tags}")
            table.add_section()
    return table


def _criteria() -> Table:
    table = _table("criterion", "an answer is broken when")
    for entry in catalogue.read()[catalogue.CRITERIA]:
        table.add_row(entry.name, entry.description)
    return table


def _models() -> Table:
    from brinell.models.sources import SOURCES

    table = _table("form", "what it is")
    for source in SOURCES.values():
        table.add_row(source.form, source.description)
    return table


def model_options(kind: str) -> Table:
    """Return a table of the options of a kind of model."""
    from brinell.models.sources import DETECTION, SOURCES

    source = SOURCES[kind.partition(":")[0]]
    table = _table("option", "meaning")
    table.title, table.title_justify = f"{source.form}: {source.description}", "left"
    options = source.options()
    for key, description in options.items():
        table.add_row(key, description)
        if key == max(options.keys() - DETECTION, key=list(options).index):
            table.add_section()  # options of detectors follow
    return table


def _datasets() -> Table:
    from brinell.datasets.sources import SOURCES

    table = _table("form", "what it is")
    for source in SOURCES.values():
        table.add_row(source.form, source.description)
    return table
