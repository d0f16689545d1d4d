"""Compare brinell's degradation profiles with the published ones (Swingler 2022); writes docs/fidelity.md and its figures.

    python -m fidelity.profiles

Runs are stored under runs/fidelity-*; finished ones are not repeated.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jinja2
import numpy as np

from brinell.perturb.operator import find_operator
from brinell.runs.statistics import proportion
from fidelity import figures
from fidelity.attack import attack_facts
from fidelity.compare import area, distance, first_below, interval, kept, rank_correlation
from fidelity.experiments import (
    ALL_IMAGES,
    ATTACK,
    FAR_AREA,
    FAR_LEVELS,
    FEW,
    LITE,
    NETWORK,
    PAPER,
    SETTING,
    Agreement,
    Comparison,
    Row,
    agreement,
    compared,
    comparisons,
    experiments,
    other_variants,
)
from fidelity.measure import (
    ROOT,
    VARIANT,
    Measured,
    measure,
    published,
    published_changes,
    published_networks,
    published_noise,
)
from fidelity.posterise import measure_posterise, posterise_facts
from fidelity.words import format_level, grid, listed, signed, title

PAGE = ROOT / "docs" / "fidelity.md"
OURS, THEIRS = "EfficientNet-Lite0, brinell", "EfficientNet-B0, published"
B0 = "EfficientNetB0"
SHORT = {B0: "B0", "EfficientNet-Lite1": "Lite1", "Keras' normalisation of the time": "Keras"}


def main() -> None:
    """Run what is missing, then write the page and its figures."""
    main_run = measure("published", ["all"])
    found = comparisons(main_run)
    rows = experiments(main_run, [one.operator for one in found if one.far and one.operator != ATTACK])
    variants_run = measure("readings", other_variants(), limit=FEW)
    folder = PAGE.parent / "figures"
    figures.save(figures.curves(_curves(main_run, found), OURS, THEIRS), folder / "fidelity-curves.svg")
    figures.save(figures.spread(_marks(rows), [PAPER, LITE, SETTING, NETWORK]), folder / "fidelity-spread.svg")
    PAGE.write_text(_page(main_run, found, rows, variants_run), encoding="utf-8")
    sys.stdout.write(f"{PAGE.relative_to(ROOT)} written\n")


def _page(main_run: Measured, found: list[Comparison], rows: list[Row], variants_run: Measured) -> str:
    template = (Path(__file__).parent / "page.md.j2").read_text(encoding="utf-8")
    far = [one for one in found if one.far]
    agreed = agreement({name: main_run.of(find_operator(name, VARIANT).id) for name in compared()})
    facts: dict[str, Any] = {
        "images": len(main_run.images),
        "few": FEW,
        "far_area": FAR_AREA,
        "far_levels": FAR_LEVELS,
        "clean": (found[0].ours[0], found[0].theirs[0]),
        "operators": len(compared()),
        "curves": len(found),
        "near": len(found) - len(far),
        "far": listed(title(one.operator) for one in far),
        "agreed": agreed,
        "change_table": _changes(main_run),
        "changes": _near_changes(main_run),
        "agreements": _agreements(main_run, agreed, variants_run),
        "between_papers": _between_papers(),
        "operator_table": _operators(main_run, found),
        "experiment_table": _experiments(rows),
        "findings": [(title(one.operator), _finding(one, rows)) for one in far if one.operator != ATTACK],
        "variant_table": _variants(main_run, variants_run),
        "posterise": posterise_facts(measure_posterise()),
        "attack": attack_facts(main_run, variants_run),
    }
    environment = jinja2.Environment(undefined=jinja2.StrictUndefined, trim_blocks=True, keep_trailing_newline=True)
    return environment.from_string(template).render(facts)


# ---- figures ----


def _curves(main_run: Measured, found: Sequence[Comparison]) -> list[figures.Record]:
    """Return the records of all curves; random noise, which has no published one, comes last."""
    records: list[figures.Record] = []
    for name in [*(one.operator for one in found), "noise"]:
        right = main_run.of(find_operator(name, VARIANT).id)
        shares = [proportion(count, len(right)) for count in right.sum(0).tolist()]
        records += [
            {"panel": title(name), "series": OURS, "level": level, "accuracy": one.value, "low": one.low, "high": one.high}
            for level, one in enumerate(shares)
        ]
        records += [
            {"panel": title(name), "series": THEIRS if network == B0 else network, "level": level, "accuracy": value}
            for network in published_networks()
            for level, value in enumerate(published(network).get(name, np.empty(0)).tolist())
        ]
    return records


def _marks(rows: Sequence[Row]) -> list[figures.Record]:
    """Return one mark per network and setting; settings that change Lite0 substantially are labelled."""
    share = {row.name: row.kept for row in rows}
    marks: list[figures.Record] = []
    for row in rows:
        for operator, value in row.kept.items():
            seen = row.base is None or abs(value - share[row.base][operator]) > FAR_AREA
            label = SHORT.get(row.name) if seen else None
            marks.append({"row": title(operator), "group": row.group, "kept": value, "label": label})
    return marks


# ---- tables ----


def _agreements(main_run: Measured, agreed: Agreement, variants_run: Measured) -> str:
    few = main_run.among(variants_run)
    by_text = {**few.right, **variants_run.right}
    variants = {variant: [find_operator(name, variant) for name in compared()] for variant in ("published", "paper")}
    whole = agreement({name: main_run.of(find_operator(name, VARIANT).id) for name in published()})
    lines = [
        ("published variant", len(main_run.images), agreed),
        (f"the same with {title(ATTACK)}", len(main_run.images), whole),
    ] + [
        (label, FEW, agreement({one.name: by_text["efficientnet_lite0", one.id] for one in variants[variant]}))
        for label, variant in (("the same on fewer images", "published"), ("variant of the paper's text", "paper"))
    ]
    return grid(
        ["Lite0 compared with B0", "images", "areas", "first levels below 50 %", "mean distance of curves"],
        [
            [
                label,
                str(count),
                f"{one.areas:.3f} [{one.low:.3f}, {one.high:.3f}]",
                f"{one.firsts:.3f}",
                f"{one.distance:.3f}",
            ]
            for label, count, one in lines
        ],
    )


def _between_papers() -> str:
    """Return the rank correlation of the areas of the paper's other networks with those of its B0."""
    areas = {network: np.array([area(published(network)[name]) for name in compared()]) for network in published_networks()}
    return listed(f"{rank_correlation(areas[one], areas[B0]):.3f} ({one})" for one in published_networks() if one != B0)


def _changes(main_run: Measured) -> str:
    lines = []
    for name, pairs in published_changes().items():
        ours = 100 * main_run.changed[find_operator(name, VARIANT).id]
        lines.append(
            [title(name), *(cell for level, share in pairs for cell in (str(level), str(share), f"{ours[level]:.1f}"))]
        )
    heads = [
        head
        for network in published_networks()
        for head in (f"{SHORT.get(network, network)}: level", "paper, %", "brinell, %")
    ]
    return grid(["", *heads], lines)


def _near_changes(main_run: Measured) -> tuple[int, int]:
    """Return how many of the paper's shares of changed pixels are within 5 points of ours, and their number."""
    ours = {name: 100 * main_run.changed[find_operator(name, VARIANT).id] for name in published_changes()}
    near = [abs(ours[name][level] - share) <= 5 for name, pairs in published_changes().items() for level, share in pairs]
    return sum(near), len(near)


def _operators(main_run: Measured, found: Sequence[Comparison]) -> str:
    networks = sorted(published_networks(), key=lambda network: network != B0)
    lines = [
        [
            f"**{title(one.operator)}**" if one.far else title(one.operator),
            _with_interval(one),
            *(format_level(first_below(published(network)[one.operator])) for network in networks),
            "{:.3f} [{:.3f}, {:.3f}]".format(area(one.ours), *interval(area(one.resampled))),
            f"{area(one.theirs):.3f}",
            signed(one.difference, 3),
        ]
        for one in found
    ]
    noise = main_run.of(find_operator("noise", VARIANT).id).mean(0)
    levels = [format_level(published_noise(network)) for network in networks]
    lines.append([title("noise"), format_level(first_below(noise)), *levels, f"{area(noise):.3f}", "", ""])
    short = [SHORT.get(network, network) for network in networks]
    return grid(["", "first level below 50 %: Lite0", *short, "area: Lite0", "B0", "difference"], lines)


def _experiments(rows: Sequence[Row]) -> str:
    return grid(
        ["", "images", *(title(name) for name in rows[0].kept)],
        [
            [
                row.name if row.group in (SETTING, NETWORK) else f"*{row.name}*",
                str(row.images),
                *(f"{one:.3f}" for one in row.kept.values()),
            ]
            for row in rows
        ],
    )


def _variants(main_run: Measured, variants_run: Measured) -> str:
    few, lines = main_run.among(variants_run), []
    for key in other_variants():
        name = key.partition(":")[0]
        if name != ATTACK:
            curves = [few.of(find_operator(name, VARIANT).id).mean(0), variants_run.of(key).mean(0), published()[name]]
            levels, areas = [format_level(first_below(one)) for one in curves], [f"{area(one):.3f}" for one in curves]
            lines.append([title(key), *levels, *areas, *(f"{distance(one, curves[2]):.3f}" for one in curves[:2])])
    heads = ["first level below 50 %: published", "this variant", "B0", "area: published", "this variant", "B0"]
    return grid(["", *heads, "distance from B0: published", "this variant"], lines)


# ---- sentences ----


def _finding(one: Comparison, rows: Sequence[Row]) -> str:
    """Return what the experiments show for an operator, and whether that explains the difference."""
    share = {row.name: row.kept[one.operator] for row in rows}
    first = {row.name: format_level(row.first[one.operator]) for row in rows}
    lite, b0 = share[ALL_IMAGES], share[B0]
    gap = lite - b0
    moves = {row.name: share[row.name] - share[row.base] for row in rows if row.base is not None}
    closest = min(moves, key=lambda name: abs(gap + moves[name]))
    here = {row.name: share[row.name] for row in rows if row.group in (LITE, NETWORK)}
    there = [share[row.name] for row in rows if row.group == PAPER]
    nearest = min(here, key=lambda name: abs(here[name] - b0))
    low, high = interval(area(kept(one.resampled)))
    if low <= b0 <= high:
        verdict = (
            "**Within sampling error of the images**: "
            f"Lite0's 95 % interval is {low:.2f}–{high:.2f}, its level {_with_interval(one)}."
        )
    elif abs(gap + moves[closest]) < abs(gap) / 2:
        verdict = (
            f"**Explained by {closest}**: with it, Lite0 keeps {share[closest]:.2f} and drops below 50 % at level "
            f"{first[closest]}, B0 at {first[B0]}."
        )
    elif min(there) <= lite <= max(there) or min(here.values()) <= b0 <= max(here.values()):
        verdict = "**The network**: no setting closes half of the gap, and networks differ by more than the gap."
    else:
        started = "Explained by what a level starts from**, see [below](#posterise)"
        reason = started if one.operator == "posterise" else "Not explained**"
        verdict = (
            f"No setting closes half of the gap, and the gap is outside the range of networks on both sides. **{reason}."
        )
    return (
        f"Lite0 keeps {lite:.2f}, B0 {b0:.2f}. Settings change Lite0 by {signed(min(moves.values()))} to "
        f"{signed(max(moves.values()))}. Networks keep {min(here.values()):.2f}–{max(here.values()):.2f} on our images "
        f"(nearest to B0: {nearest} with {here[nearest]:.2f}), and {min(there):.2f}–{max(there):.2f} in the paper. "
        f"{verdict}"
    )


def _with_interval(one: Comparison) -> str:
    low, high = (format_level(round(end)) for end in interval(first_below(one.resampled).astype(float)))
    own = format_level(first_below(one.ours))
    return own if low == high == own else f"{own} [{low}, {high}]"


if __name__ == "__main__":
    main()
