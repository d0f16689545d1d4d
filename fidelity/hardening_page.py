"""The page about hardening, from what was measured."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jinja2

from fidelity.words import grid

RECIPE_TITLES = {
    "plain": "fine-tuning",
    "set_normalisation": "with the dataset's mean and standard deviation",
    "squeeze_excitation": "with squeeze-and-excitation",
    "gently": "with clean images and fresh spots",
}


def page(found: dict[str, Any]) -> str:
    """Return the page."""
    template = jinja2.Environment(trim_blocks=True, lstrip_blocks=True, undefined=jinja2.StrictUndefined).from_string(
        (Path(__file__).parent / "hardening.md.j2").read_text(encoding="utf-8")
    )
    moved, lit = found.get("cifar", []), found.get("photographs", [])
    return template.render(
        cifar=moved[0] if moved else None,
        table_2=_table_2(moved[0]) if moved else "",
        ordered=[_ordered(run) for run in moved],
        trainings=_trainings(moved),
        photographs=lit[0] if lit else None,
        recipes=_recipes(lit[0]) if lit else "",
        shorter=[(run["epochs"], _recipes(run)) for run in lit[1:]],
    )


def _trainings(runs: list[dict[str, Any]]) -> str:
    """Return how much each training run changes ρ̂ and clean accuracy."""
    rows = []
    for run in runs:
        first, *lines = run["lines"]
        cells = [
            f"{line['score']['value'] / first['score']['value']:.2f} ({100 * (line['clean'] - first['clean']):+.0f})"
            for line in lines
        ]
        how = "quick" if run["quick"] else "full"
        settings = [f"{run['images']:,}", str(run["epochs"]), f"{run['rate']:g}", run["batches"], how, f"{run['test']}"]
        rows.append([*settings, *cells])
    head = ["images", "epochs", "rate", "batches", "ManiFool", "test images", "minimal", "random", "baseline"]
    return grid(head, rows)


def _table_2(cifar: dict[str, Any]) -> str:
    first = cifar["lines"][0]
    rows = []
    for line in cifar["lines"]:
        score, rate = line["score"], line["rates"]
        at = rate.get("2.5", rate.get(2.5))
        rows.append(
            [
                line["name"],
                f"{line['paper']:.2f}",
                f"{line['score']['value']:.2f} [{score['low']:.2f}, {score['high']:.2f}]",
                f"{line['paper'] / first['paper']:.2f}",
                f"{score['value'] / first['score']['value']:.2f}",
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
