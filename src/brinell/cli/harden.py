"""`brinell harden`: a better model, and what it is better at."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich import box
from rich.console import Console
from rich.table import Table

from brinell.api import harden as carried_out
from brinell.hardening.options import load_harden_config
from brinell.hardening.verdict import Verdict
from brinell.runs.store import Store
from brinell.validation import read_yaml

out = Console(markup=False, highlight=False)


def harden(
    config: Annotated[Path, typer.Argument(metavar="CONFIG", help="A YAML file: a model, data, and what to train on.")],
    folder: Annotated[str | None, typer.Option("--out", help="The hardening's folder.")] = None,
    device: Annotated[str | None, typer.Option(help="auto, cpu, cuda or cuda:N.")] = None,
    set: Annotated[list[str] | None, typer.Option(help="key=value over all the rest, as in training.epochs=3.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="What changed, as JSON.")] = False,
) -> None:
    """Fine-tune a model on failures and on operators; measure it before and after on images that it was not trained on.

    The same command again goes on where it stopped. Example: [bold]brinell harden harden.yaml --set training.epochs=3[/]
    """
    given = [f"out={folder}"] if folder is not None else []
    given += [f"execution.device={device}"] if device is not None else []
    content = read_yaml(config, "config", "a model and data")
    found = carried_out(load_harden_config(content, [*(set or ()), *given]))
    if as_json:
        out.print_json(data=found.verdict.to_dict(), allow_nan=False)
        return
    out.print(_table(found.verdict))
    out.print(f"{found.verdict.sentence[0].upper()}{found.verdict.sentence[1:]}.", soft_wrap=True)
    store = Store(found.folder)
    out.print(f"model: hardened:{store.place()}", f"summary: {store.place('summary.html')}", sep="\n", soft_wrap=True)


def _table(verdict: Verdict) -> Table:
    table = Table(box=box.SIMPLE_HEAD)
    for head in ("", "before", "after", "change [95 %]", "images"):
        table.add_column(head, justify="right" if head else "left", no_wrap=bool(head))
    for row in verdict.rows():
        table.add_row(*row)
    return table
