"""Command-line flags generated from options models: a new option is a documented flag without further work."""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import typer
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from brinell.units import singular

OPTION_WIDTH = 30  # of the help's column with an option and its value; longer ones are folded


@dataclass(frozen=True)
class Flag:
    """One flag: the path of the option that it sets, its name, its type and its help."""

    path: tuple[str, ...]
    name: str
    kind: Any
    help: str
    panel: str
    negatable: bool = False

    @property
    def parameter(self) -> str:
        """Name of the flag as a Python parameter."""
        return self.name.replace("-", "_")

    @property
    def metavar(self) -> str | None:
        """Placeholder of the value in the help: the choices, unless they are many and the help lists them."""
        if self.kind is bool:
            return None
        if get_origin(self.kind) is Literal:
            choices = "|".join(get_args(self.kind))
            return choices if len(f"--{self.name} {choices}") <= OPTION_WIDTH else "NAME"
        kind = get_args(self.kind)[0] if get_origin(self.kind) is list else self.kind
        return {int: "N", float: "X"}.get(kind, "TEXT")

    def as_parameter(self) -> inspect.Parameter:
        """Return the flag as a parameter that typer reads."""
        declarations = [f"--{self.name}/--no-{self.name}" if self.negatable else f"--{self.name}"]
        option = typer.Option(
            *declarations, help=self.help, rich_help_panel=self.panel, show_default=False, metavar=self.metavar
        )
        annotation = Annotated[self.kind | None, option]  # type: ignore[name-defined]
        return inspect.Parameter(self.parameter, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)


def flags_of(
    model: type[BaseModel],
    path: tuple[str, ...] = (),
    *,
    panel: str,
    prefix: str = "",
    names: Mapping[str, str] | None = None,
    skip: Iterable[str] = (),
) -> list[Flag]:
    """Return a flag for each option of a model.

    `names` gives flags other names than their options, `prefix` goes before all names, `skip` are options without a flag.
    """
    flags = []
    for option, field in model.model_fields.items():
        if option in skip or option == "name":
            continue
        kind, many = _kind(field.annotation)
        name = (names or {}).get(option) or prefix + _flag_name(option, many)
        flags.append(
            Flag(
                path=(*path, option),
                name=name,
                kind=types.GenericAlias(list, (kind,)) if many else kind,
                help=_help(field, many),
                panel=panel,
                negatable=kind is bool and field.default is not False,
            )
        )
    return flags


def _flag_name(option: str, many: bool) -> str:
    """Return an option's name as a flag; an option that takes several values is repeated in the singular."""
    return (singular(option) if many else option).replace("_", "-")


def _kind(annotation: Any) -> tuple[Any, bool]:
    """Return the type of a flag's value, and whether the flag can be repeated."""
    origin = get_origin(annotation)
    if origin is Annotated:
        return _kind(get_args(annotation)[0])
    if origin in (Union, types.UnionType):
        parts = [part for part in get_args(annotation) if part is not type(None)]
        if set(parts) == {int, float}:
            return float, False
        return _kind(parts[0]) if len(parts) == 1 else (str, False)
    if origin is Literal:
        values = get_args(annotation)
        return (annotation if all(isinstance(value, str) for value in values) else type(values[0])), False
    if origin in (tuple, list):
        kind, _ = _kind(get_args(annotation)[0])
        return (kind if kind in (int, float) else str), True  # typer knows no lists of choices; the config checks them
    return (annotation if annotation in (bool, int, float, str) else str), False


def _help(field: FieldInfo, many: bool) -> str:
    text = field.description or ""
    default = field.default
    described = (
        "default" in text
        or field.is_required()
        or default is None
        or default is False
        or default in ((), "")
        or default == ("all",)
    )
    if not described:
        shown = "yes" if default is True else ", ".join(map(_format, _listed(default)))
        text = f"{text.removesuffix('.')} (default: {shown})."
    return f"{text.removesuffix('.')}; may be repeated." if many else text


def _format(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _listed(value: Any) -> tuple[Any, ...]:
    return value if isinstance(value, tuple) else (value,)


def unique(flags: Iterable[Flag]) -> list[Flag]:
    """Return flags without those whose name an earlier one has: several lenses may share an option."""
    return list({flag.name: flag for flag in reversed(list(flags))}.values())[::-1]


def with_flags(function: Callable[..., None], flags: Iterable[Flag], doc: str | None = None) -> Callable[..., None]:
    """Return a command whose parameter `given` is a mapping of the flags that were used, by their names."""
    flags = list(flags)
    own = [
        parameter
        for parameter in inspect.signature(function, eval_str=True).parameters.values()
        if parameter.name != "given"
    ]

    def command(**arguments: Any) -> None:
        named = {flag.name: arguments.pop(flag.parameter) for flag in flags}
        given = {name: value for name, value in named.items() if value is not None and value != []}
        function(**arguments, given=given)

    parameters = [
        *(parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in own),
        *(flag.as_parameter() for flag in flags),
    ]
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    command.__doc__ = doc or function.__doc__
    return command
