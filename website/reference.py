"""The API reference: every public name, in the order in which people need them."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

from pydantic import BaseModel

import brinell

FIRST = ("run", "wrap", "open_model", "open_dataset", "Run")
INTRODUCTION = """# API reference

Everything that `import brinell` offers. Names are imported on first use, so that `import brinell` takes no time. Commands
and YAML files have the same options: [all commands](cli.md), [a run as a file](config.md).
"""


def write_reference() -> str:
    """Return the page."""
    sections: dict[str, list[str]] = {"Functions": [], "Results, models and data": [], "Options": [], "Errors": []}
    for name in [*FIRST, *sorted(set(brinell.__all__) - set(FIRST), key=str.swapcase)]:
        title, text = _entry(name, getattr(brinell, name))
        sections[title].append(text)
    sections["Operators as functions"] = [_auto("function", "perturb.apply"), _auto("class", "perturb.Perturbation")]
    return "\n".join([INTRODUCTION, *(part for title, texts in sections.items() for part in (f"## {title}\n", *texts))])


def _entry(name: str, value: Any) -> tuple[str, str]:
    """Return the section of a name, and its text."""
    if not inspect.isclass(value):
        return "Functions", _auto("function" if callable(value) else "data", name)
    if issubclass(value, Exception):
        return "Errors", _auto("exception", name)
    if issubclass(value, BaseModel):
        return "Options", "\n".join(_options(name, value))
    return "Results, models and data", _auto("class", name)


def _auto(kind: str, name: str) -> str:
    members = "\n   :members:" if kind == "class" else ""
    return f"```{{eval-rst}}\n.. auto{kind}:: brinell.{name}{members}\n```\n"


def _options(name: str, model: type[BaseModel]) -> Iterator[str]:
    """Yield a table of the fields of an options model; autodoc would print its whole signature."""
    yield from (f"### `{name}`", "", inspect.getdoc(model) or "", "", "| option | default | |", "| --- | --- | --- |")
    for field, info in model.model_fields.items():
        default = "required" if info.is_required() else f"`{info.get_default(call_default_factory=True)!r}`"
        yield f"| `{field}` | {default.replace('|', '&#124;')} | {(info.description or '').replace('|', '&#124;')} |"
    yield ""
