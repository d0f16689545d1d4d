"""Brinell's smallest motions beside the published ones: writes docs/fidelity-geometry.md.

    python -m fidelity.table1 --images 1000 --workers 16      what Table 1 is made of
    python -m fidelity.geometry --photographs 300 --device cuda

The second command carries out a row of Fig. 7 where it isn't there yet (0 photographs: leaves it out), and writes the
page from all that was measured, and fidelity/results/geometry.json. Runs lie under runs/fidelity-geometry*.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import jinja2
import numpy as np

import brinell
from brinell.geometry import GROUPS as KNOWN
from brinell.results import Motions
from fidelity.measure import ASSETS, IMAGES, ROOT, require_assets
from fidelity.table1 import GROUPS, LENETS, SEEDS, SETTINGS, scores
from fidelity.words import grid

PUBLISHED = {
    "translation": (1.68, 1.54),
    "rotation_translation": (1.40, 1.33),
    "scale_translation": (1.41, 1.32),
    "similarity": (1.26, 1.25),
}
WITHIN = 0.15
RESULTS = Path(__file__).parent / "results" / "geometry.json"
# network of the assets, its input, and the shorter side before the crop
NETWORKS = {"mobilenet_v2": (224, 256), "squeezenet1_1": (224, 256), "mobilenet_v1_075_192": (192, 219)}


def photographs(count: int, device: str, quick: bool) -> brinell.Run:
    """The networks of the assets on photographs, similarity and affine."""
    sys.path.insert(0, str(ASSETS / "models"))
    import nets  # type: ignore[import-not-found]

    execution = brinell.Execution(device=device)
    models: list[Any] = [
        brinell.wrap(nets.load(name)[0], size=size, short_side=side, name=name, execution=execution)
        for name, (size, side) in NETWORKS.items()
    ]
    models.append(brinell.open_model("efficientnet_lite0", execution))
    lens: dict[str, Any] = {"name": "geometry", "operators": ["similarity", "affine"], "radii": [0.5, 1, 2, 3, 4, 5]}
    if quick:
        lens |= {"targets": 3, "lengths": 8, "draws": 3, "most_steps": 25}
    data = {"source": IMAGES, "limit": count, "shuffle": True, "labels": "index"}
    out = ROOT / "runs" / f"fidelity-geometry-photographs-{count}{'-quick' if quick else ''}"
    return brinell.run(models, data, lens=lens, out=out, execution=execution)


def gathered() -> dict[str, Any]:
    """All that was measured of Table 1, as plain data."""
    networks = [f"seed{seed}" for seed in SEEDS] + list(LENETS)
    table = {}
    for network in networks:
        both = scores(network) | scores(network, "manitest")
        if both:
            table[network] = {operator: _figures(own) for operator, own in both.items()}
    settings = {}
    usual = scores("seed0")
    for setting in SETTINGS:
        found = scores("seed0", setting)
        base = scores("seed0", "manitest") if setting.startswith("manitest,") else usual
        if setting not in ("usual", "manitest") and found:
            settings[setting] = {
                operator: _change(own["score"], base[operator]["score"], paired="test images" not in setting)
                for operator, own in found.items()
                if operator in base and operator.partition(":")[0] in ("translation", "similarity")
            }
    return {"table": table, "settings": settings}


def _figures(own: dict[str, np.ndarray]) -> dict[str, float]:
    value = own["score"]
    there = value[~np.isnan(value)]
    return {
        "images": len(value),
        "failed": int(np.isnan(value).sum()),
        "score": float(there.mean()),
        "error": float(there.std(ddof=1) / len(there) ** 0.5),
        "seconds": float(own["seconds"].mean()),
        "queries": float(own["queries"].mean()),
        "gradients": float(own["gradients"].mean()),
    }


def _change(found: np.ndarray, base: np.ndarray, paired: bool) -> dict[str, float]:
    """By how much the mean moves, and how many images' scores do."""
    count = min(len(found), len(base))
    found, base = found[:count], base[:count]
    other = float(np.mean(~np.isclose(found, base, rtol=1e-6, equal_nan=True))) if paired else 1.0
    return {
        "change": float(np.nanmean(found) / np.nanmean(base) - 1),
        "images": count,
        "failed": int(np.isnan(found).sum()),
        "other": other,
    }


def _row(run: brinell.Run) -> dict[str, Any]:
    found = run.summary()
    assert isinstance(found, Motions)
    lens = run.manifest["identity"]["config"]["lenses"][0]
    settings = {key: lens[key] for key in ("targets", "lengths", "draws", "most_steps")}
    lines = []
    for (model, operator), one in found.smallest.items():
        group = operator.partition(":")[0]
        middle = found.middle(model, f"{group}:random")
        last = found.rates[model, f"{group}:random"][-1]
        lines.append(
            {
                "model": model,
                "group": group,
                "score": one.score.value,
                "low": one.score.low,
                "high": one.score.high,
                "fooled": one.fooled,
                "images": one.fooled + one.failed,
                "middle": middle,
                "reached": last.wanted,
                "rejected": last.rejected,
                "seconds": one.seconds,
            }
        )
    return {"settings": settings, "lines": lines}


def page(found: dict[str, Any]) -> str:
    """The page from what was measured."""
    lines = []
    seeds = [f"seed{seed}" for seed in SEEDS if f"seed{seed}" in found["table"]]
    checks = []
    for group in GROUPS:
        for method, published in zip(("manifool", "manitest"), PUBLISHED[group], strict=True):
            own = [found["table"][seed].get(f"{group}:{method}") for seed in seeds]
            told = [f"{one['score']:.2f} ± {one['error']:.2f}" if one else "–" for one in own]
            there = [one for one in own if one]
            if not there:  # not measured yet
                continue
            mean = float(np.mean([one["score"] for one in there]))
            ratio = mean / published
            checks.append((group, method, ratio, mean))
            failed = f"{sum(one['failed'] for one in there)} of {sum(one['images'] for one in there)}"
            seconds, queries = (np.mean([one[name] for one in there]) for name in ("seconds", "queries"))
            mark = f"{ratio:.2f}" if abs(ratio - 1) <= WITHIN else f"**{ratio:.2f}**"
            lines.append(
                [KNOWN[group].short, method, f"{published:.2f}", *told, mark, failed, f"{seconds:.2f}", f"{queries:.0f}"]
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
    lenets = [
        [KNOWN[group].short, method, *(_mean(found["table"].get(lenet, {}).get(f"{group}:{method}")) for lenet in LENETS)]
        for group in GROUPS
        for method in ("manifool", "manitest")
        if any(f"{group}:{method}" in found["table"].get(lenet, {}) for lenet in LENETS)
    ]
    settings = []
    for setting, own in found["settings"].items():
        method = "manitest" if "manitest" in setting else "manifool"
        settings.append([setting, *(_told(own.get(f"{group}:{method}")) for group in ("translation", "similarity"))])
    row = found.get("photographs")
    photographs = [
        [
            one["model"],
            one["group"],
            f"{one['score']:.2f} [{one['low']:.2f}, {one['high']:.2f}]",
            f"{one['fooled']} of {one['images']}",
            f"{one['middle']:.2f}" if one["middle"] is not None else f"more than {one['reached']:g}",
            f"{one['rejected']:.0%}",
        ]
        for one in (row or {"lines": []})["lines"]
    ]
    means = {(group, method): mean for group, method, _, mean in checks}
    order = [means[group, "manifool"] for group in GROUPS]
    # of networks that both methods were asked about
    pairs = {
        group: [
            (found["table"][seed][f"{group}:manitest"]["score"], found["table"][seed][f"{group}:manifool"]["score"])
            for seed in seeds
            if f"{group}:manitest" in found["table"][seed]
        ]
        for group in GROUPS
    }
    template = jinja2.Environment(trim_blocks=True, lstrip_blocks=True, undefined=jinja2.StrictUndefined).from_string(
        (Path(__file__).parent / "geometry.md.j2").read_text(encoding="utf-8")
    )
    sizes = [found["table"][seed]["translation:manifool"]["images"] for seed in seeds]
    return template.render(
        table=grid(head, lines),
        sizes=sizes,
        within=sum(abs(ratio - 1) <= WITHIN for _, _, ratio, _ in checks),
        checks=len(checks),
        ordered=order[0] > order[2] >= order[1] > order[3],
        compared=[
            (KNOWN[group].short, float(np.mean([a for a, _ in both]) / np.mean([b for _, b in both])))
            for group, both in pairs.items()
            if both
        ],
        lenets_measured=bool(lenets),
        lenets=grid(["set", "method", *LENETS], lenets),
        settings=grid(["convention", "T", "T+R+S"], settings),
        photographs=grid(["network", "group", "ρ̂ [95 %]", "fooled", "r̂", "rejected at the largest r"], photographs),
        row=row,
    )


def _mean(one: dict[str, float] | None) -> str:
    return "–" if one is None else f"{one['score']:.2f} ± {one['error']:.2f}"


def _told(one: dict[str, float] | None) -> str:
    if one is None:
        return "–"
    same = "" if one["other"] else ", every image the same"
    return f"{one['change']:+.1%}{same}"


def main() -> None:
    """Measure what is missing of the photographs, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--photographs", type=int, default=0)
    parser.add_argument("--quick", action="store_true", help="three targets, eight lengths: for a CPU")
    parser.add_argument("--device", default="auto")
    given = parser.parse_args()
    require_assets()
    kept = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {}
    found = kept | gathered()
    if given.photographs:
        found["photographs"] = _row(photographs(given.photographs, given.device, given.quick))
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    target = ROOT / "docs" / "fidelity-geometry.md"
    target.write_text(page(found) + "\n", encoding="utf-8")
    print(f"wrote {target.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
