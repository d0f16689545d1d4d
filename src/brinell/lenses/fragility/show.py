"""How fragile windows are shown: maps over photographs, shares against size, and pairs."""

from __future__ import annotations

from typing import Any

from brinell.lenses.fragility.exhibits import read_window_exhibits
from brinell.lenses.fragility.findings import FragilityFindings
from brinell.lenses.fragility.names import KINDS
from brinell.lenses.fragility.tables import findings_table
from brinell.report.show import Chart, Context, NamedChart, Section, Show


def section(context: Context, findings: FragilityFindings) -> Section:
    """Return the report's section."""
    from brinell.lenses.fragility.section import make_section  # imports numpy

    return make_section(context, findings)


def all_charts(findings: FragilityFindings) -> dict[str, Chart]:
    """Return all charts, by the names of their files."""
    from brinell.lenses.fragility import charts

    drawn: dict[str, Chart] = {}
    if findings.windows:
        drawn = {f"fragile-{kind.replace(' ', '-')}": charts.fragile_curves(findings, kind) for kind in KINDS}
        drawn["recognised"] = charts.recognised_curves(findings)
    if findings.locations:
        drawn["location"] = charts.location_curves(findings)
    return drawn


def pictures(context: Context, findings: FragilityFindings) -> dict[str, bytes]:
    """Return maps over photographs, and pairs."""
    from brinell.lenses.fragility.overlays import draw_sheets  # imports numpy

    return draw_sheets(context, findings, read_window_exhibits(context.run.store))


def _named(name: str, *choices: str) -> NamedChart:
    """Return a chart of charts.py by its name."""

    def draw(findings: FragilityFindings, **chosen: Any) -> Chart:
        from brinell.lenses.fragility import charts

        return getattr(charts, name)(findings, **chosen)

    return NamedChart(draw, {choice: lambda findings: list(KINDS) for choice in choices})


SHOW = Show(
    table=findings_table,
    section=section,
    charts=all_charts,
    named={
        "fragile": _named("fragile_curves", "kind"),
        "recognised": _named("recognised_curves"),
        "location": _named("location_curves"),
    },
    pictures=pictures,
    late=("brinell.lenses.fragility.charts",),
)
