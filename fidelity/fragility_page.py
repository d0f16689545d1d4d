"""The page about the fragility lens and its figures, from stored results."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import altair as alt
import jinja2

from brinell.lenses.fragility.names import KINDS
from fidelity import cifar_page
from fidelity import fragility_tables as tables
from fidelity.figures import save
from fidelity.fragility_tables import NETWORKS, PAPER, SIZES, Results, percent, share_of
from fidelity.measure import ROOT

PAGE = ROOT / "docs" / "fidelity-fragility.md"
FIGURES = ROOT / "docs" / "figures"
PAPER_DROP = 0.56  # of confidence in the 40 pairs that people were shown


def render_page(found: Results) -> str:
    """Return the page."""
    environment = jinja2.Environment(trim_blocks=True, lstrip_blocks=True, undefined=jinja2.StrictUndefined)
    template = environment.from_string((Path(__file__).parent / "fragility.md.j2").read_text(encoding="utf-8"))
    page = template.render(
        images=found["images"],
        strides=_strides(found["strides"]),
        windows=sum(share_of(found, NETWORKS[0], size, KINDS[0])["windows"] for size in SIZES),
        shares=tables.shares_table(found),
        paper=tables.paper_table(found),
        strict=tables.strict_ratios(found),
        largest=tables.largest_windows(found),
        signs=tables.signs_table(found),
        correct=tables.correct_table(found),
        halves=tables.halves_table(found),
        drops=tables.drops_table(found),
        whole_drops=found["whole_drops"],
        whole=tables.whole_table(found),
        whole_images=found["whole_images"],
        unresized=tables.unresized_table(found),
        nearest=tables.nearest_table(found),
        rules=tables.rules_table(found),
        paper_drop=PAPER_DROP,
        cifar=cifar_page.page(found["edges"]),
        pct=lambda value, digits=0: percent(value, digits),
    )
    return page.rstrip() + "\n"


def draw_figures(found: Results, folder: Path) -> None:
    """Write the page's figures."""
    save(_curves(found), folder / "fidelity-fragility.svg")
    save(cifar_page.draw(), folder / "fidelity-fragility-cifar.svg")


def _strides(strides: dict[str, int]) -> str:
    if len(set(strides.values())) == 1:
        return f"a stride of {next(iter(strides.values()))}"
    return "strides of " + ", ".join(f"{stride} at P = {size}" for size, stride in strides.items())


def _curves(found: Results) -> Any:
    """Return the paper's Figs. 5 and A.1 for our networks, with the figures in its text."""
    records = []
    for network in NETWORKS:
        for kind in KINDS:
            for size in SIZES:
                share = share_of(found, network, size, kind)["share"]
                value, low, high = (round(100 * share[each], 3) for each in ("value", "low", "high"))
                records.append({"network": network, "kind": kind, "P": size, "share": value, "low": low, "high": high})
    for (kind, size), paper in PAPER.items():
        records.append({"network": "paper, ResNet-v2-152", "kind": kind, "P": size, "share": 100 * paper})
    base = alt.Chart().encode(x=alt.X("P:Q", scale=alt.Scale(domain=[0.1, 0.9])), color=alt.Color("network:N", title=None))
    line = base.mark_line(point=True).encode(y=alt.Y("share:Q", title="fragile windows, %"))
    bars = (
        base.transform_filter("datum.share > 0 && indexof(datum.kind, 'loose') == 0")
        .mark_rule(opacity=0.4)
        .encode(y="low:Q", y2="high:Q")
    )
    layers = alt.layer(line, bars, data=alt.InlineData(values=records)).properties(width=230, height=150)
    return layers.facet(alt.Facet("kind:N", title=None, sort=list(KINDS)), columns=2).resolve_scale(y="independent")
