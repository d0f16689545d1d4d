"""Real full runs as populations, of which samples are drawn under budgets: `python -m fidelity.real_samples RUNS`.

RUNS is a folder of runs: cifar-profile and photos-profile (profile), cifar-highlights (highlights), cifar-motions
(geometry, random), cifar-knob (knob) and cifar-fragility (fragility). Those that are missing are left out.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from brinell.results import Run
from fidelity.samples import (
    BUDGETS,
    Array,
    Generator,
    Population,
    cover,
    measure_areas,
    measure_curves,
    measure_searches,
    measure_spots,
)

RESULTS = Path(__file__).parent / "results" / "real_samples.json"
COUNTS = (10, 24, 100)  # more images than a run has would be drawn often
SIMULATIONS = 100
_PROFILE = """
    select operator, image, level, correct::double from rows where lens = 'profile'
    and operator not in (select operator from rows where lens = 'profile' group by all having count(distinct level) < 31)
"""
_SPOTS = """
    select operator, image, level - 1, (not correct)::double from rows where lens = 'highlights' and level > 0 and image in
        (select image from rows where lens = 'highlights' and level = 0 and correct)
"""
_MOTIONS = """
    select operator, image, level * (select max(draw) + 1 from rows) + draw,
           case status when 'broken' then 1.0 when 'survived' then 0.0 end
    from rows where lens = 'geometry' and draw is not null
"""
_KNOB = """
    select operator, image, 0, min(case when status = 'survived' then 1.0 else abs(severity) end)::double from rows
    where lens = 'knob' and status in ('broken', 'survived') group by all
"""
_FRAGILITY = """
    select operator, image, 0, (fragile / windows)::double from rows where lens = 'fragility' and status = 'measured'
    and kind = 'loose shift' and judged_by = 'correct' and windows > 0
"""


@dataclass(frozen=True)
class Width:
    """The mean width of a figure's interval over all images of a run, and the passes that it takes."""

    run: str
    figure: str
    share: float
    images: int
    passes: int
    width: float


def tables_of(run: Run, sql: str) -> dict[str, Array]:
    """Return values (images, cells) by operator, NaN where there is none."""
    found = run.connection.execute(
        f"select operator, dense_rank() over (order by image) - 1, * exclude (operator, image) from ({sql})"
    ).fetchnumpy()
    operators, images, cells, values = (np.asarray(column) for column in found.values())
    tables = {}
    for operator in sorted(set(operators.tolist())):
        own = operators == operator
        table = np.full((images.max() + 1, cells.max() + 1), np.nan)
        table[images[own], cells[own]] = np.ma.filled(values[own], np.nan)
        tables[operator] = table[~np.isnan(table).all(1)]
    return tables


def _population(source: str, where: str, table: Array, truth: Any) -> Population:
    def draw(generator: Generator, images: int) -> Array:
        found: Array = table[generator.integers(0, len(table), images)]
        return found[:, 0] if table.shape[1] == 1 else found

    return Population(source, where, draw, truth)


def _is_finished(folder: Path) -> bool:
    return (folder / "manifest.json").exists() and Run(folder).finished


def populations(folder: Path) -> Iterator[tuple[Callable[..., Any], Population, int]]:
    """Yield what is measured, a population, and the passes that one image of a full run takes."""
    for name in ("cifar-profile", "photos-profile"):
        if _is_finished(folder / name):
            tables = tables_of(Run(folder / name), _PROFILE)
            ranked = sorted(tables, key=lambda operator: float(tables[operator].mean()))
            for operator in dict.fromkeys((ranked[0], ranked[len(ranked) // 2], ranked[-1])):
                truth = tables[operator].mean(0)
                population = _population(
                    name, f"{operator.partition(':')[0]} ({truth.mean():.0%})", tables[operator], truth
                )
                yield measure_areas, population, len(truth) - 1
                yield measure_curves, population, len(truth) - 1
    for name, sql in (("cifar-highlights", _SPOTS), ("cifar-motions", _MOTIONS)):
        if _is_finished(folder / name):
            for operator, table in tables_of(Run(folder / name), sql).items():
                part = np.nansum(table[:, : table.shape[1] // 4]) / np.nansum(table)
                truth = float(np.nanmean(np.nanmean(table, 1))), float(part)
                yield measure_spots, _population(name, operator.partition(":")[0], table, truth), table.shape[1]
    for name, sql in (("cifar-knob", _KNOB), ("cifar-fragility", _FRAGILITY)):
        if _is_finished(folder / name):
            for operator, table in tables_of(Run(folder / name), sql).items():
                yield (
                    measure_searches,
                    _population(name, operator, table, float(np.nanmean(table))),
                    _queries(Run(folder / name), operator),
                )


def _queries(run: Run, operator: str) -> int:
    """Return the mean number of queries of an image under a search, or of its windows and the smaller ones inside."""
    what = "2 * windows" if "fragility" in run.lenses else "queries"
    return round(run.query(f"select avg({what}) from rows where operator = $operator", {"operator": operator})[0][0])


def main(folder: str) -> None:
    """Measure coverage and widths, and store them."""
    covered, widths = [], []
    for measure, population, passes in populations(Path(folder)):
        for share in BUDGETS[1:] if measure is measure_curves else BUDGETS:  # full runs are not smoothed
            for images in COUNTS:
                covered += [vars(one) for one in cover(measure, population, images, share, SIMULATIONS)]
            for one in cover(measure, population, 200, share, SIMULATIONS):
                where = f"{population.source}, {population.where}"
                widths.append(vars(Width(where, one.figure, share, 200, round(200 * share * passes), one.width)))
        print(population.source, population.where, flush=True)
        RESULTS.write_text(json.dumps({"covered": covered, "widths": widths}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1])
