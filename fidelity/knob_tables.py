"""Tables of the page about the knob lens: brinell's robustness compared with the paper's (DSN 2020, Zhong, Hu and Chen)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

import brinell
from brinell.lenses.knob.findings import KnobFindings
from brinell.perturb.property import find_property
from fidelity.compare import rank_correlation
from fidelity.words import grid, title

VARIANT = "dsn2020"  # of properties that are named alone

# our networks, and the paper's that they are compared with
NETWORKS = {"mobilenet_v2": "mobilenetV2", "squeezenet1_1": "squeezenet1.0"}

# accuracy of torchvision's weights on ImageNet's validation set, from which the paper draws its photographs
PUBLISHED_ACCURACY = {"mobilenet_v2": 0.719, "squeezenet1_1": 0.581}

FACTOR = 2.0
HEADER = [
    "property",
    "paper",
    "ours",
    "ours / paper",
    "one scaled field",
    "survive",
    "broken images",
    "lower and higher confidence half / paper",
    "matched to ImageNet accuracy / paper",
]


class ByConfidence(NamedTuple):
    """R of images by their clean confidence."""

    lower: float  # the half of the broken images with lower confidence
    higher: float  # the other half
    matched: float  # without the most confident images, so that accuracy on the rest equals that on ImageNet


def split_by_confidence(run: brinell.Run) -> dict[tuple[str, str], ByConfidence]:
    """Return R by confidence, by network and property."""
    found: dict[tuple[str, str], ByConfidence] = {}
    for model, accuracy in PUBLISHED_ACCURACY.items():
        rows = run.rows(
            f"""with surest as (
                   select index, row_number() over (order by confidence) as nth,
                          (select count(*) from clean where model = '{model}' and not correct) as wrong
                   from clean where model = '{model}' and correct)
               select operator, avg(mse) filter (half <= 0.5), avg(mse) filter (half > 0.5),
                      avg(mse) filter (nth <= wrong * {accuracy} / (1 - {accuracy}))
               from (select operator, mse, nth, wrong, percent_rank() over (partition by operator order by nth) as half
                     from rows join samples using (image) join surest using (index)
                     where rows.model = '{model}' and smallest and status = 'broken') group by all"""
        ).fetchall()
        found |= {(model, operator): ByConfidence(*means) for operator, *means in rows}
    return found


def network_facts(
    network: str,
    published: dict[str, float],
    scaled: KnobFindings,
    fresh: KnobFindings,
    confidence: dict[tuple[str, str], ByConfidence],
) -> dict[str, Any]:
    """Return a network's table (the paper's R, ours by fresh draws and by one field, survivors) and figures."""
    lines, ours, theirs, one_field, matched, outside = [], [], [], [], [], []
    for name, paper in published.items():
        operator = find_property(name, VARIANT).id
        field = scaled.hardness[network, operator]
        drawn = fresh.hardness.get((network, operator), field)
        ratio = drawn.robustness.value / paper
        ours.append(drawn.robustness.value)
        theirs.append(paper)
        one_field.append(field.robustness.value)
        matched.append(confidence[network, operator].matched)
        near = 1 / FACTOR <= ratio <= FACTOR
        if not near:
            outside.append((title(operator), ratio))
        lines.append(
            [
                title(operator),
                f"{paper:.2e}",
                f"{drawn.robustness.value:.2e}",
                f"{ratio:.2f}" if near else f"**{ratio:.2f}**",
                f"{field.robustness.value:.2e}" if drawn is not field else "the same",
                f"{field.survived_share.value:.0%}",
                str(drawn.broken),
                " and ".join(f"{half / paper:.2f}" for half in confidence[network, operator][:2]),
                f"{matched[-1] / paper:.2f}",
            ]
        )
    first = scaled.hardness[network, find_property("contrast", VARIANT).id]
    return {
        "name": network,
        "paper": NETWORKS[network],
        "table": grid(HEADER, lines),
        "right": first.tested,
        "within": _count_within(ours, theirs),
        "count": len(theirs),
        "rank": rank_correlation(np.array(ours), np.array(theirs)),
        "rank_scaled": rank_correlation(np.array(one_field), np.array(theirs)),
        "within_scaled": _count_within(one_field, theirs),
        "accuracy": first.tested / (first.tested + first.skipped),
        "published_accuracy": PUBLISHED_ACCURACY[network],
        "within_matched": _count_within(matched, theirs),
        "rank_matched": rank_correlation(np.array(matched), np.array(theirs)),
        "outside": outside,
    }


def _count_within(ours: Sequence[float], theirs: Sequence[float]) -> int:
    """Return how many are within the factor of the paper's."""
    return sum(1 / FACTOR <= mine / paper <= FACTOR for mine, paper in zip(ours, theirs, strict=True))


def robustness(found: KnobFindings, network: str, operator: str) -> float:
    """Return R of a network under a property."""
    return found.hardness[network, operator].robustness.value


def draws_table(random: Sequence[str], scaled: KnobFindings, fresh: KnobFindings, fewer: KnobFindings) -> str:
    """Return R of the random properties with few and many fresh draws, divided by R of one scaled field."""
    lines = []
    for name in random:
        operator = find_property(name, VARIANT).id
        ratios = [
            robustness(found, network, operator) / robustness(scaled, network, operator)
            for network in NETWORKS
            for found in (fewer, fresh)
        ]
        lines.append([title(operator), *(f"{ratio:.2f}" for ratio in ratios)])
    return grid(["property", *(f"{network}, {draws}" for network in NETWORKS for draws in ("few", "many"))], lines)


def resize_table(
    blurs: Sequence[str], reference: dict[str, dict[str, float]], scaled: KnobFindings, nearest: KnobFindings
) -> str:
    """Return R of the blurs divided by the paper's, on photographs resized smoothly and by nearest neighbour."""
    lines = []
    for name in blurs:
        operator = find_property(name, VARIANT).id
        ratios = [
            robustness(found, network, operator) / reference[paper][name]
            for network, paper in NETWORKS.items()
            for found in (scaled, nearest)
        ]
        lines.append([title(operator), *(f"{ratio:.2f}" for ratio in ratios)])
    header = ["property", *(f"{network}, {way}" for network in NETWORKS for way in ("smooth", "nearest"))]
    return grid(header, lines)


def models_table(found: KnobFindings, names: list[str]) -> str:
    """Return R and the survivors of models, by property."""
    lines = []
    for operator in found.operators:
        pair = [found.hardness[name, operator] for name in names]
        values = [f"{one.robustness.value:.2e}" if one.broken else "never broken" for one in pair]
        lines.append([title(operator), *values, *(f"{one.survived_share.value:.0%}" for one in pair)])
    return grid(["property", *(f"R, {name}" for name in names), *(f"survive, {name}" for name in names)], lines)
