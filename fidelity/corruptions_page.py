"""docs/fidelity-corruptions.md from stored results: mCE by our corruptions and by the published code."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jinja2
import numpy as np
from numpy.typing import NDArray

from brinell.lenses.profile.robustness import ALEXNET, ALEXNET_CLEAN, SEVERITIES
from brinell.runs.statistics import CONFIDENCE
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


def render_page(results: dict[str, Any]) -> str:
    """Return the page."""
    blocks = [block for block in results["blocks"].values() if {"ours", "package", "script"} <= set(block)]
    if not blocks:
        raise SystemExit("no block of photographs is complete: measure some first")
    networks = results["networks"]
    both = {name: (_gather(blocks, name, ("ours",)), _gather(blocks, name, ("package", "script"))) for name in networks}
    images = next(iter(both[networks[0]][0].values())).shape[0]
    changed = {name: _changed_answers(*both[name]) for name in networks}
    exact = [share for own in changed.values() for name, share in own.items() if name in EXACT]
    template = jinja2.Template((HERE / "corruptions.md.j2").read_text(encoding="utf-8"), keep_trailing_newline=True)
    return template.render(
        images=images,
        networks=networks,
        summary=_summary(both),
        table=_table(both),
        exact=max(exact),
        random=max(share for own in changed.values() for name, share in own.items() if name not in EXACT),
        answers=images * SEVERITIES,
    )


def _gather(blocks: list[dict[str, Any]], network: str, sides: tuple[str, ...]) -> dict[str, Array]:
    """Return wrong answers (images, severities 0 to 5) by corruption; of several sides, the last that has it."""
    found = {}
    for operator in ALEXNET:
        own = []
        for block in blocks:
            held = [block[side][network][operator] for side in sides if operator in block[side][network]]
            own.append(np.array(held[-1], dtype=np.float64))
        found[operator.partition(":")[0]] = np.concatenate(own)
    return found


def _errors(wrong: dict[str, Array]) -> dict[str, tuple[Array, Array]]:
    """Return each image's corruption error and relative one, (images,) each, by corruption."""
    found = {}
    for operator, alexnet in ALEXNET.items():
        name = operator.partition(":")[0]
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


def _table(both: dict[str, tuple[dict[str, Array], dict[str, Array]]]) -> str:
    lines = []
    for name in (operator.partition(":")[0] for operator in ALEXNET):
        line = [f"`{name}`"]
        for sides in both.values():
            ours, theirs = (_errors(side)[name][0] for side in sides)
            same = _changed_answers(*sides)[name]
            line += [f"{100 * ours.mean():.1f}", f"{100 * theirs.mean():.1f}", f"{100 * same:.1f} %"]
        lines.append(line)
    heads = [f"{network}: {what}" for network in both for what in ("brinell", "published", "answers that differ")]
    return grid(["corruption error", *heads], lines)


def _changed_answers(ours: dict[str, Array], theirs: dict[str, Array]) -> dict[str, float]:
    """Return the share of answers to changed images that are right on one side and wrong on the other."""
    return {name: float(np.mean(own[:, 1:] != theirs[name][:, 1:])) for name, own in ours.items()}
