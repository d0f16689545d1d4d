"""Commands that measure: run, plan and demo."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from brinell.cli.config_flags import config_of, run_flags
from brinell.cli.console import out, say
from brinell.cli.execute import confirm_cost, execute
from brinell.cli.flags import with_flags
from brinell.config.part import scheduled_part
from brinell.engine.checks import check_config
from brinell.report.grid import Grid
from brinell.run_config import RunConfig

File = Annotated[Path | None, typer.Argument(metavar="CONFIG", help="YAML file; flags override it.")]


def _run(
    given: Mapping[str, Any],
    config: File = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Start long runs without asking.")] = False,
) -> None:
    """Test models on data; rerun to resume. Prints a cost estimate and asks before runs of more than an hour.

    Examples: [bold]brinell run --model timm:resnet50 --data photos/ --out runs/first[/]
    or [bold]brinell run test.yaml --set data.limit=100[/]
    """

    def quick() -> RunConfig:
        return config_of(config, {**given, "preset": "quick"})

    loaded = _scheduled(config_of(config, given))
    if loaded.plan is not None:
        from brinell.evidence.plan import read_plan  # few runs have a plan

        read_plan(Path(loaded.plan))  # a mistake is found before hours are spent
    execute(loaded, partial(confirm_cost, quick=quick, yes=yes))


def _scheduled(config: RunConfig) -> RunConfig:
    """Return a config with the part that an array job's scheduler names, unless one is given."""
    if config.execution.part is not None or (found := scheduled_part(os.environ)) is None:
        return config
    part, variable = found
    say(f"{part.words} ({variable}); --part 1/1 measures the whole run here")
    return config.model_copy(update={"execution": config.execution.model_copy(update={"part": str(part)})})


def _plan(given: Mapping[str, Any], config: File = None) -> None:
    """Estimate the cost of a run from a few images: forward passes or queries, time and storage. Stores nothing.

    Example: [bold]brinell plan --model efficientnet_lite0 --data photos/[/]
    """
    loaded = config_of(config, given)
    check_config(loaded, loaded.models)
    from brinell.engine.estimates.plan import plan, under_budget
    from brinell.engine.estimates.text import BUDGET_NOTE, HEADS, budget_table, plan_rows, plan_totals
    from brinell.engine.setup import assemble

    estimate = plan(assemble(loaded))
    shown = under_budget(estimate, loaded.budget)
    out.print(Grid(HEADS, tuple(plan_rows(shown)), left=frozenset({0, 1})))
    say(*plan_totals(shown))
    heads, *budgets = budget_table(estimate) or [()]
    if budgets:
        out.print(Grid(heads, tuple(budgets), "Budgets", BUDGET_NOTE))


run = with_flags(_run, run_flags())
plan = with_flags(_plan, run_flags())


def demo(
    folder: Annotated[str, typer.Option("--out", help="Folder to store the run in.")] = "runs/demo",
) -> None:
    """Run five lenses on a few photographs and write a report. Needs the extra demo.

    Example: [bold]brinell demo[/]
    """
    from brinell.cli.demo import run_demo

    run_demo(folder)
