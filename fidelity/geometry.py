"""Compare brinell's smallest motions with the published ones (ManiFool, CVPR 2018); writes docs/fidelity-geometry.md.

python -m fidelity.table1 --images 1000 --workers 16        measure Table 1
python -m fidelity.photographs --images 300 --device cuda   measure a row of Fig. 7
python -m fidelity.geometry                                 write the page from these results
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import jinja2
import numpy as np

from brinell.lenses.geometry.findings import GeometryFindings
from brinell.lenses.geometry.statistics import Rate
from brinell.motion.groups import GROUPS as KNOWN
from brinell.runs.statistics import mean, proportion
from fidelity.measure import ROOT
from fidelity.photographs import RESULTS as PHOTOGRAPHS
from fidelity.table1 import GATHERED, GROUPS, LENETS, SEEDS
from fidelity.words import grid

PUBLISHED = {
    "translation": (1.68, 1.54),
    "rotation_translation": (1.40, 1.33),
    "scale_translation": (1.41, 1.32),
    "similarity": (1.26, 1.25),
}
WITHIN = 0.15
TEST_IMAGES = ("test images", "first test images")  # settings
WHAT = ("fooled", "median of all", "ρ̂ where both fool", "queries")


def row_of_figure_7(blocks: dict[str, dict[str, Any]]) -> list[list[str]]:
    """Return a line per network and group, from the measured blocks of photographs."""
    lines = []
    for network, own in blocks.items():
        for group in ("similarity", "affine"):
            score = _column(own, group, "score")
            there = score[~np.isnan(score)]
            score_mean = mean(float(there.mean()), float(there.std(ddof=1)), len(there))
            rates = _rates([block[f"{group}:random"]["counts"] for block in own.values()])
            half = GeometryFindings({}, {("", ""): rates}).threshold_score("", "")
            seconds = sum(block[f"{group}:manifool"]["seconds"] for block in own.values()) / len(score)
            lines.append(
                [
                    network,
                    group,
                    f"{score_mean.value:.2f} [{score_mean.low:.2f}, {score_mean.high:.2f}]",
                    f"{len(there)} of {len(score)}",
                    _median(score),
                    f"{half:.2f}" if half is not None else f"more than {rates[-1].score:g}",
                    f"{rates[-1].rejected:.0%}",
                    f"{_column(own, group, 'queries').mean():.0f}",
                    f"{seconds:.2f}",
                ]
            )
    return lines


def other_settings(runs: list[dict[str, Any]]) -> list[list[str]]:
    """Return the other runs compared with the first, on the photographs that both searched."""
    first, *others = runs
    lines = []
    for other in others:
        for network, own in other["blocks"].items():
            same = {key: block for key, block in first["blocks"][network].items() if key in own}
            for group in ("similarity", "affine"):
                base, score = (_column(part, group, "score") for part in (same, own))
                both = ~np.isnan(base) & ~np.isnan(score)
                lines.append(
                    [
                        _changed(first["settings"], other["settings"]),
                        network,
                        group,
                        *(f"{(~np.isnan(part)).sum()} of {len(part)}" for part in (base, score)),
                        *(_median(part) for part in (base, score)),
                        *(f"{part[both].mean():.2f}" for part in (base, score)),
                        *(f"{_column(part, group, 'queries').mean():.0f}" for part in (same, own)),
                    ]
                )
    return lines


def reach(runs: list[dict[str, Any]]) -> dict[str, str]:
    """Return how many more photographs other settings fool, and at which cost, in words for the text."""
    more, longer = (_compared(runs[0], other) for other in runs[1:3])
    gained = {(network, group): after - before for network, group, before, after, *_ in more}
    first = gained.pop(("mobilenet_v2", "affine"))
    return {
        "gained": str(first),
        "of": str(more[0][4]),
        "elsewhere": f"{min(gained.values())} to {max(gained.values())}",
        "cost": _range([cost for *_, cost in more], 1),
        "fooled": _range([100 * after / count for _, _, _, after, count, _ in longer], 0),
        "longer_cost": _range([cost for *_, cost in longer], 1),
    }


def _range(values: list[float], digits: int) -> str:
    return f"{min(values):.{digits}f} to {max(values):.{digits}f}"


def _compared(first: dict[str, Any], other: dict[str, Any]) -> list[tuple[str, str, int, int, int, float]]:
    """Return by network and group how many photographs are fooled before and after, of how many, and the queries' ratio."""
    found = []
    for network, own in other["blocks"].items():
        same = {key: block for key, block in first["blocks"][network].items() if key in own}
        for group in ("similarity", "affine"):
            base, score = (_column(part, group, "score") for part in (same, own))
            cost = _column(own, group, "queries").mean() / _column(same, group, "queries").mean()
            before, after = (int((~np.isnan(part)).sum()) for part in (base, score))
            found.append((network, group, before, after, len(score), float(cost)))
    return found


def _column(blocks: dict[str, Any], group: str, name: str) -> np.ndarray:
    return np.array([value for block in blocks.values() for value in block[f"{group}:manifool"][name]], dtype=np.float64)


def _median(score: np.ndarray) -> str:
    """Return the median over all photographs, counting those that were not fooled as the largest."""
    middle = float(np.median(np.nan_to_num(score, nan=np.inf)))
    return f"{middle:.2f}" if np.isfinite(middle) else "–"


def _changed(base: dict[str, float], other: dict[str, float]) -> str:
    words = {"targets": "{} targets", "step_lengths": "{} step lengths", "max_step": "steps up to {:g} px"}
    words |= {"retry": "retry with steps up to {:g} px", "max_steps": "{} steps"}
    return ", ".join(word.format(other[name]) for name, word in words.items() if other[name] != base[name])


def _rates(blocks: list[dict[str, list[int]]]) -> list[Rate]:
    """Return how often random motions of each score change the label."""
    rates = []
    for wanted in blocks[0]:
        tried, changed, out = np.sum([block[wanted] for block in blocks], axis=0).tolist()
        share = proportion(changed, tried)
        rates.append(Rate("", "", float(wanted), share, share, tried, out / (tried + out)))
    return rates


def _table_1(found: dict[str, Any], seeds: list[str]) -> tuple[str, dict[tuple[str, str], tuple[float, float]]]:
    """Return Table 1, and by group and method the ratio to the paper and the mean score."""
    lines, checks = [], {}
    for group in GROUPS:
        for method, published in zip(("manifool", "manitest"), PUBLISHED[group], strict=True):
            own = [found["table"][seed].get(f"{group}:{method}") for seed in seeds]
            means = [_mean(one) for one in own]
            there = [one for one in own if one]
            if not there:  # not measured yet
                continue
            mean = float(np.mean([one["score"] for one in there]))
            ratio = mean / published
            checks[group, method] = ratio, mean
            failed = f"{sum(one['failed'] for one in there)} of {sum(one['images'] for one in there)}"
            seconds, queries = (np.mean([one[name] for one in there]) for name in ("seconds", "queries"))
            mark = f"{ratio:.2f}" if abs(ratio - 1) <= WITHIN else f"**{ratio:.2f}**"
            lines.append(
                [KNOWN[group].short, method, f"{published:.2f}", *means, mark, failed, f"{seconds:.2f}", f"{queries:.0f}"]
            )
    head = [
        "set",
        "method",
        "paper",
        *(f"network {seed[4:]}" for seed in seeds),
        "ours / paper",
        "not fooled",
        "s",
        "queries",
    ]
    return grid(head, lines), checks


def page(found: dict[str, Any], photographs: list[dict[str, Any]]) -> str:
    """Return the page."""
    seeds = [f"seed{seed}" for seed in SEEDS if f"seed{seed}" in found["table"]]
    table, checks = _table_1(found, seeds)
    lenets = [
        [KNOWN[group].short, method, *(_mean(found["table"].get(lenet, {}).get(f"{group}:{method}")) for lenet in LENETS)]
        for group in GROUPS
        for method in ("manifool", "manitest")
        if any(f"{group}:{method}" in found["table"].get(lenet, {}) for lenet in LENETS)
    ]
    settings = []
    for setting, own in found["settings"].items():
        method = "manitest" if "manitest" in setting else "manifool"
        settings.append(
            [setting, *(_shown_change(own.get(f"{group}:{method}")) for group in ("translation", "similarity"))]
        )
    order = [checks[group, "manifool"][1] for group in GROUPS]
    template = jinja2.Environment(trim_blocks=True, lstrip_blocks=True, undefined=jinja2.StrictUndefined).from_string(
        (Path(__file__).parent / "geometry.md.j2").read_text(encoding="utf-8")
    )
    text = template.render(
        table=table,
        sizes=_counts(found["table"][seed] for seed in seeds),
        within=sum(abs(ratio - 1) <= WITHIN for ratio, _ in checks.values()),
        checks=len(checks),
        below=[_below(checks["translation", "manifool"][0], found["settings"][name]) for name in TEST_IMAGES],
        ordered=order[0] > order[2] >= order[1] > order[3],
        compared=[(KNOWN[group].short, own) for group, own in found["compared"].items()],
        lenets_measured=bool(lenets),
        lenet_images=_counts(found["table"].get(lenet, {}) for lenet in LENETS),
        setting_images=_counts(found["settings"].values()),
        lenets=grid(["set", "method", *LENETS], lenets),
        settings=grid(["convention", "T", "T+R+S"], settings),
        row=photographs[0]["settings"] if photographs else None,
        photographs=grid(
            ["network", "group", "ρ̂ [95 %]", "fooled", "median of all", "r̂", "rejected at the largest r", "queries", "s"],
            row_of_figure_7(photographs[0]["blocks"]),
        )
        if photographs
        else "",
        others=grid(
            ["settings", "network", "group", *(f"{what}: {when}" for what in WHAT for when in ("base", "these"))],
            other_settings(photographs),
        )
        if photographs[1:]
        else "",
        reach=reach(photographs) if photographs[2:] else None,
    )
    return text.rstrip() + "\n"


def _below(ratio: float, setting: dict[str, dict[str, float]]) -> str:
    """Return by how many per cent ManiFool's score for translations would be below the paper in another setting."""
    return f"{100 * (1 - ratio * (1 + setting['translation:manifool']['change'])):.0f}"


def _counts(parts: Iterable[dict[str, dict[str, float]]]) -> str:
    """Return the number of images, or the smallest and the largest number."""
    counts = sorted({int(one["images"]) for part in parts for one in part.values()})
    return " to ".join(f"{count:,}" for count in dict.fromkeys(counts[:1] + counts[-1:]))


def _mean(one: dict[str, float] | None) -> str:
    return "–" if one is None else f"{one['score']:.2f} ± {one['error']:.2f}"


def _shown_change(one: dict[str, float] | None) -> str:
    if one is None:
        return "–"
    failed = f", {one['failed']:.0f} not fooled" if one["failed"] else ""
    if not one["other"]:
        return f"no image changes{failed}"
    return f"{one['change']:+.1%} ± {one['error']:.1%}{failed}"


def main() -> None:
    """Write the page."""
    if not GATHERED.exists():
        raise SystemExit("no results yet; run python -m fidelity.table1 first")
    found = json.loads(GATHERED.read_text(encoding="utf-8"))
    photographs = json.loads(PHOTOGRAPHS.read_text(encoding="utf-8")) if PHOTOGRAPHS.exists() else []
    target = ROOT / "docs" / "fidelity-geometry.md"
    target.write_text(page(found, photographs), encoding="utf-8")
    print(f"wrote {target.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
