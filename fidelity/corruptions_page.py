"""docs/fidelity-corruptions.md from stored results: our corruptions and the published ones."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import jinja2
import numpy as np
from numpy.typing import NDArray

from brinell.lenses.profile.robustness import ALEXNET, ALEXNET_CLEAN, SEVERITIES
from brinell.runs.statistics import CONFIDENCE
from fidelity.bar_page import render_bar, render_seeds
from fidelity.words import grid, signed

HERE = Path(__file__).parent
PAGE = HERE.parent / "docs" / "fidelity-corruptions.md"
EXACT = (
    "brightness",
    "contrast",
    "defocus_blur",
    "jpeg_compression",
    "pixelate",
    "zoom_blur",
)  # nothing is drawn at random
Array = NDArray[np.float64]


def render_page(results: dict[str, Any], bar: dict[str, Any]) -> str:
    """Return the page, from results about ImageNet-C and about ImageNet-C-bar."""
    blocks = [block for block in results["blocks"].values() if {"ours", "package", "script", "repeated"} <= set(block)]
    if not blocks:
        raise SystemExit("no block of photographs is complete: measure some first")
    networks, seeds = results["networks"], results["seeds"]
    both = {name: (_gather(blocks, name, ("ours",)), _gather(blocks, name, ("package", "script"))) for name in networks}
    images = next(iter(both[networks[0]][0].values())).shape[0]
    repeated = {name: _gather(blocks, name, ("repeated",)) for name in networks}
    changed = {name: _changed_answers(*both[name]) for name in networks}
    redrawn = {name: _changed_answers(repeated[name], both[name][1]) for name in networks}
    template = jinja2.Template((HERE / "corruptions.md.j2").read_text(encoding="utf-8"), keep_trailing_newline=True)
    return template.render(
        images=images,
        networks=networks,
        summary=_summary(both),
        tables={name: _table(both[name], repeated[name]) for name in networks},
        exact=max(share for own in changed.values() for name, share in own.items() if name in EXACT),
        random=_mean(share for own in changed.values() for name, share in own.items() if name not in EXACT),
        redrawn=_mean(share for own in redrawn.values() for share in own.values()),
        answers=images * SEVERITIES,
        draws=_draws(results["draws"]),
        count=results["draws"][0]["draws"],
        **render_seeds(seeds, _interval),
        once=_interval(np.subtract(*(_errors(side)[seeds["operator"]][0] for side in both[seeds["network"]]))),
        **render_bar(bar),
    )


def _mean(shares: Iterable[float]) -> float:
    return float(np.mean(list(shares)))


def _draws(found: list[dict[str, Any]]) -> str:
    lines = [[str(one["photo"] + 1), str(one["severity"]), str(one["ours"]), str(one["published"])] for one in found]
    return grid(["photograph", "severity", "brinell", "published code"], lines)


def _gather(blocks: list[dict[str, Any]], network: str, sides: tuple[str, ...]) -> dict[str, Array]:
    """Return wrong answers (images, severities 0 to 5) by corruption; of several sides, the last that has it."""
    found = {}
    for operator in ALEXNET:
        held = [[block[side][network].get(operator) for block in blocks] for side in sides]
        complete = [own for own in held if None not in own]
        if complete:
            found[operator.partition(":")[0]] = np.concatenate([np.array(own, dtype=np.float64) for own in complete[-1]])
    return found


def _errors(wrong: dict[str, Array]) -> dict[str, tuple[Array, Array]]:
    """Return each image's corruption error and relative one, (images,) each, by corruption."""
    found = {}
    for operator, alexnet in ALEXNET.items():
        name = operator.partition(":")[0]
        if name not in wrong:
            continue
        own = wrong[name]
        relative = (own[:, 1:] - own[:, :1]).sum(1) / (SEVERITIES * (alexnet - ALEXNET_CLEAN))
        found[name] = own[:, 1:].sum(1) / (SEVERITIES * alexnet), relative
    return found


def _interval(differences: Array) -> str:
    """Return a mean difference in points, with its 95 % interval over images."""
    from scipy import stats

    count = len(differences)
    half = stats.t.ppf((1 + CONFIDENCE) / 2, count - 1) * differences.std(ddof=1) / np.sqrt(count)
    value = 100 * differences.mean()
    return f"{signed(value, 1)} [{signed(value - 100 * half, 1)}, {signed(value + 100 * half, 1)}]"


def _summary(both: dict[str, tuple[dict[str, Array], dict[str, Array]]]) -> str:
    lines = []
    for network, sides in both.items():
        errors = [_errors(side) for side in sides]
        for place, name in enumerate(("mCE", "relative mCE")):
            ours, theirs = (np.mean([own[place] for own in each.values()], 0) for each in errors)
            values = (f"{100 * each.mean():.1f}" for each in (ours, theirs))
            lines.append([f"{network}: {name}", *values, _interval(ours - theirs)])
    return grid(["", "brinell", "published code", "difference [95 %]"], lines)


def _table(sides: tuple[dict[str, Array], dict[str, Array]], repeated: dict[str, Array]) -> str:
    """Return one network's table, with what other random numbers change in the published code alone."""
    lines = []
    differ, redrawn = _changed_answers(*sides), _changed_answers(repeated, sides[1])
    for name in (operator.partition(":")[0] for operator in ALEXNET):
        ours, theirs = (_errors(side)[name][0] for side in sides)
        again = (_errors({name: repeated[name]})[name][0], redrawn[name]) if name in repeated else None
        lines.append(
            [
                f"`{name}`",
                f"{100 * ours.mean():.1f}",
                f"{100 * theirs.mean():.1f}",
                f"{100 * again[0].mean():.1f}" if again else "–",
                _interval(ours - theirs),
                f"{100 * differ[name]:.1f} %",
                f"{100 * again[1]:.1f} %" if again else "–",
            ]
        )
    heads = ["brinell", "published", "published, redrawn", "difference [95 %]", "answers that differ", "redrawn"]
    return grid(["corruption error", *heads], lines)


def _changed_answers(ours: dict[str, Array], theirs: dict[str, Array]) -> dict[str, float]:
    """Return the share of answers to changed images that are right on one side and wrong on the other."""
    return {name: float(np.mean(own[:, 1:] != theirs[name][:, 1:])) for name, own in ours.items()}
