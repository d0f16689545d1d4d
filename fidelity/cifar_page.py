"""The part of the page about the fragility lens that covers the study on CIFAR-10."""

from __future__ import annotations

import json
from typing import Any

import altair as alt

from fidelity.fragility_cifar import NEAR, RECIPES, RESULTS, SIZES, WHOLE
from fidelity.words import grid


def page(edges: list[float]) -> dict[str, Any]:
    """Return the page's figures of the full study; `edges` are those of `fidelity.fragility_cifar.edges`."""
    found, trained, pooled = _read()
    accuracy = {name: one["accuracy"]["test"] for name, one in found.items()}
    return {
        "epochs": WHOLE.epochs,
        "images": WHOLE.images,
        "networks": len(found),
        "accuracy": (min(accuracy.values()), max(accuracy.values())),
        "fit": (found["28"]["accuracy"]["training"], accuracy["28"]),
        "pooled_right": [accuracy[name] for name in (pooled[0], pooled[-1])],
        "by": {by: _by(found, f"loose shift by {by}") for by in ("correct", "label")},
        "black": {size: {RECIPES[name].pool: found[name]["location"][str(size)] for name in pooled} for size in SIZES},
        "removed": {"black": _removed(found, "location"), "windows": _removed(found, "resized")},
        "near": NEAR,
        "edges": edges,
        "training": _training_table(found, trained),
        "labels": _label_table(found, trained),
        "pooling": _pooling_table(found, pooled),
    }


def draw() -> Any:
    """Return the chart of the full study."""
    return _figure(*_read())


def _read() -> tuple[dict[str, Any], list[str], list[str]]:
    """Return the results, and the networks that differ in training and in pooling."""
    if not RESULTS.exists():
        raise SystemExit("no results of the study on CIFAR-10; run python -m fidelity.fragility_cifar --whole first")
    found = json.loads(RESULTS.read_text(encoding="utf-8"))
    trained, pooled = ([name for name in found if bool(RECIPES[name].pool) is pooling] for pooling in (False, True))
    return found, trained, pooled


def _removed(found: dict[str, Any], what: str) -> tuple[float, float]:
    """Return the least and the largest share of label changes that large pooling removes, at 12 and 16 pixels."""
    shares = []
    for size in ("12", "16"):
        one = {pool: found[f"pool {pool}"][what][size] for pool in (3, 27, 32)}
        changes = {pool: own if what == "location" else own["loose shift by label"] for pool, own in one.items()}
        shares += [1 - changes[pool] / changes[3] for pool in (27, 32)]
    return min(shares), max(shares)


def _by(found: dict[str, Any], kind: str) -> dict[int, dict[str, float]]:
    """Return the share of fragile windows, by size and network."""
    return {size: {name: one["resized"][str(size)][kind] for name, one in found.items()} for size in SIZES}


def _training_table(found: dict[str, Any], names: list[str]) -> str:
    lines = []
    for name in names:
        sizes = [found[name]["resized"][str(size)] for size in SIZES]
        cells = [f"{100 * one['loose shift by correct']:.0f} % ({100 * one['right']:.0f} %)" for one in sizes]
        lines.append([name, *cells, f"{100 * found[name]['accuracy']['test']:.0f} %"])
    return grid(["fragile (correct)", *(f"{size} px" for size in SIZES), "accuracy"], lines)


def _label_table(found: dict[str, Any], names: list[str]) -> str:
    lines = []
    for name in names:
        sizes = [found[name]["resized"][str(size)] for size in SIZES]
        lines.append([name, *(f"{100 * one['loose shift by label']:.0f} %" for one in sizes)])
    return grid(["label changes", *(f"{size} px" for size in SIZES)], lines)


def _pooling_table(found: dict[str, Any], names: list[str]) -> str:
    lines = []
    for name in names:
        for what in ("location", "resized", "padded"):
            own = found[name][what]
            values = [own[str(size)] if what == "location" else own[str(size)]["loose shift by label"] for size in SIZES]
            lines.append(
                [
                    name,
                    {"location": "on black"}.get(what, f"windows, {what}"),
                    *(f"{100 * value:.0f} %" for value in values),
                ]
            )
    return grid(["", "label changes", *(f"{size} px" for size in SIZES)], lines)


def _figure(found: dict[str, Any], trained: list[str], pooled: list[str]) -> Any:
    """Return Figs. 6 and 7: lines over crop sizes and over pooling sizes."""
    records = []
    kinds = {"fragile": "loose shift by correct", "label changes": "loose shift by label"}
    for group in ("crops in training", "regularisers and scales"):
        own = [name for name in trained if name == "28" or name.startswith(">=") is (group == "crops in training")]
        for what, kind in kinds.items():
            for name in own:
                shares = {size: found[name]["resized"][str(size)][kind] for size in SIZES}
                at = {"panel": f"{group}: {what}", "line": name}
                records += [{**at, "x": size, "share": round(100 * share, 2)} for size, share in shares.items()]
    for name in pooled:
        for size in SIZES:
            point = {"line": f"{size} px", "x": RECIPES[name].pool}
            moved, label = found[name]["location"][str(size)], found[name]["resized"][str(size)]["loose shift by label"]
            records.append({"panel": "pooling: label changes on black", **point, "share": round(100 * moved, 2)})
            records.append({"panel": "pooling: label changes in windows", **point, "share": round(100 * label, 2)})
    charts = []
    for panel, x in zip(
        dict.fromkeys(record["panel"] for record in records), ["window, px"] * 4 + ["pooling"] * 2, strict=True
    ):
        data = alt.InlineData(values=[record for record in records if record["panel"] == panel])
        chart = (
            alt.Chart(data, title=panel)
            .mark_line(point=True)
            .encode(
                x=alt.X("x:Q", title=x), y=alt.Y("share:Q", title="%"), color=alt.Color("line:N", title=None, sort=None)
            )
        )
        charts.append(chart.properties(width=230, height=150))
    return alt.concat(*charts, columns=2).resolve_scale(color="independent")
