"""The runs behind the page: the comparison, and experiments that explain the differences."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from brinell.perturb.operator import OPERATORS, find_operator, operator_names, step_operator
from brinell.registry import DEFAULT_VARIANT
from fidelity.compare import Array, Outcomes, area, distance, first_below, interval, kept, rank_correlation, resampled
from fidelity.measure import ASSETS, LITE0, VARIANT, Curve, Measured, measure, published, published_networks

ATTACK = "gradient_descent"
FEW = 100  # images of the experiments
FAR_AREA, FAR_LEVELS = 0.08, 3  # beyond these an operator differs substantially
THEIR_GREY = 151  # mean grey value of the paper's images (its Tables 1-3)
RATES = (1_000, 3_000, 10_000)

# Keras' EfficientNet computed (x - mean) / sqrt(std) instead of (x - mean) / std (tensorflow issue 49930)
KERAS = ",".join(f"{128 / 255 / std**0.5:.4f}" for std in (0.229, 0.224, 0.225))
SETTINGS = {
    "other random draws": {"seed": 1},
    "centre crop instead of stretch": {"models": "efficientnet_lite0?resize=crop"},
    "nearest-neighbour resize": {"models": f"{LITE0}&interpolation=nearest"},
    "Keras' normalisation of the time": {"models": f"{LITE0}&std={KERAS}"},
}
NETWORKS = {
    "EfficientNet-Lite1": "efficientnet_lite1?resize=stretch&",
    "MobileNet V2": f"onnx:{ASSETS}/models/mobilenet_v2.onnx?",
    "MobileNet V1 0.75": f"onnx:{ASSETS}/models/mobilenet_v1_075_192.onnx?",
    "SqueezeNet 1.1": f"onnx:{ASSETS}/models/squeezenet1_1.onnx?",
}


@dataclass(frozen=True)
class Comparison:
    """An operator: our outcomes and the published curve."""

    operator: str
    right: Outcomes
    theirs: Curve

    @cached_property
    def ours(self) -> Curve:
        """Our curve."""
        return self.right.mean(0)

    @cached_property
    def resampled(self) -> Array:
        """Our curves on resampled images."""
        return resampled([self.right])[:, 0]

    @property
    def difference(self) -> float:
        """Our area minus theirs."""
        return float(area(self.ours) - area(self.theirs))

    @property
    def far(self) -> bool:
        """Whether the two differ substantially."""
        levels = abs(int(first_below(self.ours)) - int(first_below(self.theirs)))
        return abs(self.difference) > FAR_AREA or levels >= FAR_LEVELS


def comparisons(measured: Measured) -> list[Comparison]:
    """Return all operators with a published curve, the most damaging first and the attack last."""
    theirs = published()
    found = [Comparison(name, measured.of(find_operator(name, VARIANT).id), theirs[name]) for name in theirs]
    return sorted(found, key=lambda one: (one.operator == ATTACK, area(one.ours)))


@dataclass(frozen=True)
class Agreement:
    """Rank correlations of areas (with an interval) and of first levels below 50 %, and the mean distance of curves."""

    areas: float
    low: float
    high: float
    firsts: float
    distance: float


def agreement(outcomes: dict[str, Outcomes]) -> Agreement:
    """Return the agreement of outcomes, by operator, with the published curves of EfficientNet-B0."""
    curves = np.stack([right.mean(0) for right in outcomes.values()])
    theirs = np.stack([published()[name] for name in outcomes])
    correlations = [rank_correlation(areas, area(theirs)) for areas in area(resampled(list(outcomes.values())))]
    return Agreement(
        rank_correlation(area(curves), area(theirs)),
        *interval(np.array(correlations)),
        rank_correlation(first_below(curves), first_below(theirs)),
        distance(curves, theirs),
    )


def compared() -> list[str]:
    """Return the operators that the agreement covers: all with a published curve except the attack."""
    return [name for name in operator_names() if name in published() and name != ATTACK]


def other_variants() -> list[str]:
    """Return the ids of all operators in other variants of the paper than the published one."""
    left_out = {*raw_gradients(), *(find_operator(name, VARIANT).id for name in operator_names())}
    return [one.id for one in OPERATORS.values() if one.id not in left_out and one.variant != DEFAULT_VARIANT]


@dataclass(frozen=True)
class Row:
    """A network in a setting: by operator, the share of clean accuracy that it keeps (mean over levels), and its first
    level below 50 %. `base` is the row that it differs from in one respect.
    """

    name: str
    group: str
    images: int
    kept: dict[str, float]
    first: dict[str, int]
    base: str | None = None


def _row(name: str, group: str, images: int, curves: dict[str, Curve], base: str | None = None) -> Row:
    shares = {operator: float(area(kept(curve))) for operator, curve in curves.items()}
    return Row(name, group, images, shares, {operator: int(first_below(curve)) for operator, curve in curves.items()}, base)


PAPER, LITE, SETTING, NETWORK = "the paper", "Lite0", "Lite0, one thing changed", "other networks on our images"
ALL_IMAGES, FIRST_IMAGES = "EfficientNet-Lite0", f"EfficientNet-Lite0, first {FEW} images"


def experiments(main: Measured, operators: list[str]) -> list[Row]:
    """Return the rows that vary draws, model input, normalisation, images and network for these operators."""
    ids = {name: find_operator(name, VARIANT).id for name in operators}

    def row(name: str, group: str, measured: Measured, base: str | None = None, network: str = "efficientnet_lite0") -> Row:
        curves = {one: measured.of(key, network).mean(0) for one, key in ids.items()}
        return _row(name, group, len(measured.images), curves, base)

    def run(name: str, **options: object) -> Measured:
        return measure(name.lower().replace(" ", "-").replace("'", ""), list(ids.values()), limit=FEW, **options)  # type: ignore[arg-type]

    papers = [_row(name, PAPER, 590, {one: published(name)[one] for one in operators}) for name in published_networks()]
    settings = [row(name, SETTING, run(name, **options), FIRST_IMAGES) for name, options in SETTINGS.items()]
    others = run("networks", models=[f"{source}name={name}" for name, source in NETWORKS.items()])
    selector = measure("judge", ["fade_grey"], models=NETWORKS["MobileNet V2"].rstrip("?"), levels=1)
    correct = selector.of("fade_grey:published", "mobilenet_v2")[:, 0]
    return [
        *papers,
        row(ALL_IMAGES, LITE, main),
        row("images that MobileNet V2 classifies correctly", SETTING, main.only(correct), ALL_IMAGES),
        row(f"images of mean grey {THEIR_GREY}", SETTING, main.only(as_bright(main)), ALL_IMAGES),
        row(FIRST_IMAGES, LITE, main.among(others)),
        *settings,
        *(row(name, NETWORK, others, network=name) for name in NETWORKS),
    ]


def as_bright(measured: Measured) -> Outcomes:
    """Return the largest set of brightest images whose mean grey value is at least that of the paper's images."""
    assert measured.grey is not None
    order = np.argsort(-measured.grey)
    means = np.cumsum(measured.grey[order]) / np.arange(1, len(order) + 1)
    chosen = np.zeros(len(order), bool)
    chosen[order[means >= THEIR_GREY]] = True
    return chosen


def raw_gradients() -> dict[str, int]:
    """Return variants of the attack that the package doesn't offer, with their rates: steps along the unscaled gradient."""
    found = {f"{ATTACK}:raw{rate}": rate for rate in RATES}
    for name, rate in found.items():
        if name not in OPERATORS:
            _add_raw_gradient(rate)
    return found


def _add_raw_gradient(rate: int) -> None:
    @step_operator(ATTACK, find_operator(ATTACK, VARIANT).facts, variant=f"raw{rate}")
    def along(images: Tensor, gradient: Tensor) -> Tensor:
        return (images.to(torch.float32) + rate * gradient).round_().clamp_(0, 255).to(torch.uint8)
