"""Real full runs as populations, of which samples are drawn under budgets: `python -m fidelity.real_samples RUNS`.

RUNS is the folder that `python -m fidelity.sample_runs RUNS` wrote; runs that are missing are left out. Cells that
results/real_samples.json holds are not measured again: remove it to begin again.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from brinell.lenses.fragility.fragile import find_fragile
from brinell.lenses.fragility.maps import read_maps
from brinell.lenses.geometry.rows import RESTRICTED, SCORE_LIMIT
from brinell.results import Run
from fidelity.sample_figures import (
    measure_accuracy,
    measure_areas,
    measure_curves,
    measure_distances,
    measure_spots,
    measure_windows,
)
from fidelity.samples import BUDGETS, Array, Figures, Generator, Population, cover_all

RESULTS = Path(__file__).parent / "results" / "real_samples.json"
PASSES = Path(__file__).parent / "results" / "real_passes.json"
COUNTS = (10, 24, 100, 1000)
SIMULATIONS = 2000
WIDTH_IMAGES = 200
Measure = Callable[..., Figures]
_PROFILE = """
    select operator, image, level, correct::double from rows where lens = 'profile' and model = '{model}'
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
_SPOT_ACCURACY = """
    select operator, image, level - 1, correct::double from rows where lens = 'highlights' and level > 0
"""
# hardness in column 0, the smallest change that breaks an image in column 1
_KNOB = """
    select operator, image, unnest([0, 1]), unnest([case when status = 'survived' then 1.0 else abs(severity)::double end,
        case when status = 'broken' then {distance}::double end])
    from rows where lens = 'knob' and status in ('broken', 'survived') and smallest
"""
_LEAST = """
    select operator, image, 1, case when status = 'broken' then 255 * mae end from rows
    where lens = 'highlights' and operator = 'highlight:least' and status in ('broken', 'survived')
"""
_SEARCHED_MOTIONS = f"""
    select operator, image, unnest([0, 1]),
        unnest([{RESTRICTED} / {SCORE_LIMIT}, case when status = 'broken' then score end])
    from rows where lens = 'geometry' and draw is null and status in ('broken', 'survived')
"""


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


def _opened(folder: Path, *names: str) -> Iterator[tuple[str, Run]]:
    for name in names:
        if (folder / name / "manifest.json").exists() and Run(folder / name).finished:
            yield name, Run(folder / name)


def populations(folder: Path) -> Iterator[tuple[Measure, Population, int]]:
    """Yield what is measured, a population, and the passes that one image of a full run takes."""
    for name, run in _opened(folder, "digits-profile", "cifar-profile"):
        tables = tables_of(run, _PROFILE.format(model=next(iter(run.models))))
        ranked = sorted(tables, key=lambda operator: float(tables[operator].mean()))
        for operator in dict.fromkeys((ranked[0], ranked[len(ranked) // 2], ranked[-1])):
            truth = tables[operator].mean(0)
            where = f"{operator.partition(':')[0]} ({truth.mean():.0%})"
            population = _population(name, where, tables[operator], truth)
            yield measure_areas, population, len(truth) - 1
            if name == "digits-profile":  # smoothing takes long
                yield measure_curves, population, len(truth) - 1
    for name, run in _opened(folder, "digits-highlights", "digits-motions"):
        for operator, table in tables_of(run, _SPOTS if "highlights" in run.lenses else _MOTIONS).items():
            part = np.nansum(table[:, : table.shape[1] // 4]) / np.nansum(table)
            truth = float(np.nanmean(np.nanmean(table, 1))), float(part)
            yield measure_spots, _population(name, operator.partition(":")[0], table, truth), table.shape[1]
            if "highlights" in run.lenses:
                table = tables_of(run, _SPOT_ACCURACY)[operator]
                population = _population(name, operator.partition(":")[0], table, float(table.mean()))
                yield measure_accuracy, population, table.shape[1]
    searches = {"digits-knob": _KNOB, "digits-least": _LEAST, "digits-manitest": _SEARCHED_MOTIONS}
    for name, run in _opened(folder, *searches):
        yield from _searched(name, run, searches[name])
    for name, run in _opened(folder, "digits-fragility"):
        yield from _windows(name, run)


def _searched(name: str, run: Run, sql: str) -> Iterator[tuple[Measure, Population, int]]:
    """Yield the hardness of each image, and the smallest change that breaks it."""
    distance = run.lens(next(iter(run.lenses))).get("distance", "")
    for operator, table in tables_of(run, sql.format(distance=distance)).items():
        broken = ~np.isnan(table[:, 1])
        truth = float(table[:, 0].mean()), float(broken.mean()), float(table[broken, 1].mean())
        yield measure_distances, _population(name, operator, table, truth), _queries(run, operator)


def _windows(name: str, run: Run) -> Iterator[tuple[Measure, Population, int]]:
    """Yield which windows of each image flip after a shift and after a shrink, by size."""
    samples = run.query(
        "select distinct image, height, width from samples join clean using (index) where kept order by image"
    )
    for operator in sorted({operator for (operator,) in run.query("select distinct operator from rows")}):
        for move in ("shift", "shrink"):
            flips = []
            for image, height, width in samples:
                maps = read_maps(run, next(iter(run.models)), operator, image)
                other = maps.large if move == "shift" else maps.small
                assert other is not None and maps.small is not None
                flips.append(find_fragile(maps.windows(height, width), maps.large, other, move).loose)
            table = np.stack(flips).astype(np.float64)
            numbers = np.arange(float(len(table)))[:, None]
            population = _population(name, f"{operator}, {move}", numbers, (float(table.mean()), table))
            yield measure_windows, population, len(maps.large.grid) + len(maps.small.grid)


def _queries(run: Run, operator: str) -> int:
    """Return the mean number of queries of an image under a search."""
    return round(run.query("select avg(queries) from rows where operator = $operator", {"operator": operator})[0][0])


def main(folder: str) -> None:
    """Measure coverage and widths, and store them; smoothed curves take longest, and come last."""
    found = list(populations(Path(folder)))
    passes = {(measure.__name__, one.source, one.where): count for measure, one, count in found}
    PASSES.write_text(json.dumps([[*key, count] for key, count in passes.items()], indent=1) + "\n", encoding="utf-8")
    curves, others = ([one[:2] for one in found if (one[0] is measure_curves) == smoothed] for smoothed in (True, False))
    for measured, counts in ((others, (WIDTH_IMAGES,)), (others, COUNTS), (curves, COUNTS)):
        cover_all(measured, counts, BUDGETS, RESULTS, SIMULATIONS)


if __name__ == "__main__":
    main(sys.argv[1])
