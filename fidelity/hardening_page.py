"""The page about hardening, from what was measured."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import jinja2

from brinell.runs.quantiles import student_quantile
from brinell.runs.statistics import CONFIDENCE, Estimate, mean
from fidelity.hardening_motions import TABLE_2
from fidelity.words import grid, signed

RECIPE_TITLES = {
    "plain": "fine-tuning",
    "set_normalisation": "with the dataset's mean and standard deviation",
    "squeeze_excitation": "with squeeze-and-excitation",
    "gently": "with clean images and fresh spots",
}


NETWORKS = {"resnet18": "ResNet-18", "resnet20": "ResNet-20", "resnet56": "ResNet-56"}
BATCH = 128
#: the training runs that the text names: network, epochs, rate and whether the search was quick
NAMED = {
    "cifar": ("resnet18", 3, 0.01, True),
    "wide_slow": ("resnet18", 3, 0.001, True),
    "base": ("resnet20", 5, 0.01, False),
    "short": ("resnet20", 1, 0.01, False),
    "long": ("resnet20", 20, 0.01, False),
    "slow": ("resnet20", 5, 0.001, False),
    "quick": ("resnet20", 5, 0.01, True),
    "deep": ("resnet56", 5, 0.01, True),
    "deep_slow": ("resnet56", 5, 0.001, True),
}
Run = dict[str, Any]


def page(found: dict[str, Any]) -> str:
    """Return the page."""
    template = jinja2.Environment(trim_blocks=True, lstrip_blocks=True, undefined=jinja2.StrictUndefined).from_string(
        (Path(__file__).parent / "hardening.md.j2").read_text(encoding="utf-8")
    )
    moved, lit = found["cifar"], found["photographs"]
    named = {
        name: next(run for run in moved if tuple(run[key] for key in ("network", "epochs", "rate", "quick")) == settings)
        for name, settings in NAMED.items()
    }
    text = template.render(
        **named,
        paper=TABLE_2,
        table_2=_table_2(named["cifar"]),
        ordered=_ordered(named["cifar"]),
        trainings=_trainings(moved),
        title=lambda run: NETWORKS[run["network"]],
        score=lambda run, name: f"{_score(run, name):.2f}",
        ratio=lambda run, name: f"{_ratio(run, name):.2f}",
        lost=lambda run, name: f"{0 - _clean_change(run, name):.1f}",
        missed=lambda run, name: _line(run, name)["images"] - _line(run, name)["fooled"],
        steps=lambda run: run["epochs"] * _batches(run),
        size=lambda run: run["images"] // _batches(run),
        gap=lambda run: f"{100 * (_ratio(run, 'minimal') - 1) / (TABLE_2['minimal'] / TABLE_2['original'] - 1):.0f}",
        photographs=lit[0],
        recipes=_recipes(lit[0]),
        shorter=[(run["epochs"], _recipes(run)) for run in lit[1:]],
    )
    return text.rstrip() + "\n"


def _line(run: Run, name: str) -> dict[str, Any]:
    return next(line for line in run["lines"] if line["name"] == name)


def _score(run: Run, name: str) -> float:
    return float(_line(run, name)["score"]["value"])


def _ratio(run: Run, name: str) -> float:
    """Return ρ̂ divided by that of the original network."""
    return _score(run, name) / _score(run, "original")


def _clean_change(run: Run, name: str) -> float:
    """Return the change of clean accuracy in points; 0 rather than a negative zero."""
    return round(100 * (_line(run, name)["clean"] - _line(run, "original")["clean"]), 6) or 0.0


def _batches(run: Run) -> int:
    """Return the batches of an epoch, which have nearly the same size."""
    return math.ceil(int(run["images"]) / BATCH)


def _trainings(runs: list[Run]) -> str:
    """Return how much each training run changes ρ̂ and clean accuracy."""
    recipes = ("minimal", "random", "baseline", "minimal and unchanged")
    rows = []
    for run in runs:
        known = {line["name"] for line in run["lines"]}
        cells = [
            f"{_ratio(run, name):.2f} ({signed(_clean_change(run, name), 1)})" if name in known else "–" for name in recipes
        ]
        search = "quick" if run["quick"] else "full"
        settings = [NETWORKS[run["network"]], f"{run['images']:,}", str(run["epochs"]), f"{run['rate']:g}", search]
        rows.append([*settings, str(run["test"]), *cells])
    return grid(["network", "images", "epochs", "rate", "ManiFool", "test images", *recipes], rows)


def _with_interval(line: dict[str, Any]) -> Estimate:
    """Return a mean score with its interval (docs/statistics.md).

    Results stored before intervals were those of skewed numbers have Student's, which has the same standard deviation.
    """
    score, count = line["score"], line["fooled"]
    half = (score["high"] - score["low"]) / 2
    if not math.isclose(score["high"] - score["value"], half, rel_tol=1e-6):
        return Estimate(**score)
    deviation = half * math.sqrt(count) / student_quantile(count - 1, (1 + CONFIDENCE) / 2)
    return mean(score["value"], deviation, count)


def _table_2(cifar: dict[str, Any]) -> str:
    first = cifar["lines"][0]
    rows = []
    for line in cifar["lines"]:
        score, rate = _with_interval(line), line["rates"]
        at = rate.get("2.5", rate.get(2.5))
        rows.append(
            [
                line["name"],
                f"{line['paper']:.2f}",
                f"{score.value:.2f} [{score.low:.2f}, {score.high:.2f}]",
                f"{line['paper'] / first['paper']:.2f}",
                f"{score.value / first['score']['value']:.2f}",
                f"{line['fooled']} of {line['images']}",
                f"{at['value']:.1%}",
                "more than 3" if line["middle"] is None else f"{line['middle']:.2f}",
                f"{line['clean']:.1%}",
            ]
        )
    head = [
        "trained on",
        "paper's ρ̂",
        "ρ̂ here [95 %]",
        "paper, ratio",
        "here, ratio",
        "fooled",
        "wrong at r = 2.5",
        "r̂",
        "clean",
    ]
    return grid(head, rows)


def _ordered(cifar: dict[str, Any]) -> bool:
    scores = {line["name"]: line["score"]["value"] for line in cifar["lines"]}
    return bool(scores["minimal"] > scores["random"] > scores["baseline"])


def _recipes(photographs: dict[str, Any]) -> str:
    def shown(effect: dict[str, Any]) -> str:
        change = effect["change"]
        interval = f" [{change['low']:+.1f}, {change['high']:+.1f}]" if change["low"] == change["low"] else ""
        return f"{effect['before']:.1%} → {effect['after']:.1%}, {change['value']:+.1f}{interval}"

    rows = []
    for line in photographs["lines"]:
        before, after = (one.get("1", one.get(1)) for one in line["at_least"])
        cells = [shown(line[name]) for name in ("failures", "spots", "held_out", "clean")]
        rows.append([RECIPE_TITLES[line["recipe"]], *cells, f"{before:.1%} → {after:.1%}"])
    return grid(["recipe", "held-out failures", "all spots", "held-out operators", "clean", "S ≥ 1"], rows)
