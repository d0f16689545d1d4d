"""Charts as SVG: one look for all, in the page's own colours, and nothing to load or run."""

from __future__ import annotations

import html
import importlib
import re
import textwrap
from collections.abc import Mapping
from typing import Any

from brinell.report.panels import line_panel, share_axis
from brinell.report.section import Chart

INK, SOFT, LINE, PAPER = "#1d2733", "#5b6876", "#dde3ea", "#fffffe"
FONT = "system-ui, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif"  # DejaVu has check marks and crosses
NUMBER_FONT = "system-ui, 'Segoe UI', Roboto, sans-serif"  # of panels: to measure text in DejaVu takes twice as long
# on the page these follow light and dark
_TOKENS = {INK: "var(--ink)", SOFT: "var(--soft)", LINE: "var(--line)", PAPER: "var(--paper)"}
THEME: dict[str, Any] = {
    "background": None,
    "font": FONT,
    "view": {"stroke": None},
    "axisQuantitative": {"labelLimit": 0},  # numbers are short, and to compare them with a limit takes time
    "axis": {
        "domainColor": LINE,
        "gridColor": LINE,
        "tickColor": LINE,
        "labelColor": SOFT,
        "titleColor": SOFT,
        "labelFontSize": 11,
        "titleFontSize": 11,
        "titleFontWeight": "normal",
        "labelLimit": 220,
        "titlePadding": 6,
    },
    "header": {"labelColor": INK, "labelFontWeight": 600, "titleColor": SOFT},
    "legend": {"labelColor": INK, "titleColor": SOFT, "titleFontWeight": "normal", "symbolOpacity": 1},
    "title": {"anchor": "start", "color": INK, "fontSize": 12.5, "fontWeight": 600, "offset": 8},
    "rule": {"color": INK},
    "tick": {"color": INK},
    "text": {"color": INK},
}
# browsers may write a number some pixels wider than it was measured
_NUMBERS = {**THEME["axisQuantitative"], "labelFont": NUMBER_FONT, "labelSeparation": 5}
_PANEL_THEME = THEME | {"axisQuantitative": _NUMBERS}
LETTER, WIDEST = 7.5, 15.0  # pixels of a letter of a title: on average, and at most
_LABEL = re.compile(r'(<(?:path|rect|line|text|circle)\b[^>]*?) aria-label="([^"]*)"([^>]*?)(/>|>)', re.DOTALL)
_ARIA = re.compile(r' (?:role|aria-[a-z]+)="[^"]*"')


def draw_svg(chart: Chart, *, legend: bool = True) -> str:
    """Return a chart as a whole SVG file, in light colours."""
    vl_convert = importlib.import_module("vl_convert")  # slow to import, and needed for figures alone
    spec: dict[str, Any] = chart.to_dict()
    own = spec.get("config", {})
    theme = THEME if legend else _PANEL_THEME
    spec |= _wrap_title(spec) | {"config": theme | {key: value for key, value in own.items() if key != "view"}}
    text: str = vl_convert.vegalite_to_svg(spec if legend else _without_legends(spec))
    return text


def start_drawing() -> None:
    """Start the renderer, and draw a small chart with it: its first ones take half a second."""
    draw_panel(line_panel([], [""], title="", x=share_axis("level", "level"), y=share_axis("value")))


def _wrap_title(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Return a title that is wider than its limit in several lines; otherwise its end would be cut off.

    Where every line is surely short enough, there is no limit to compare it with, which takes time.
    """
    title = spec.get("title")
    if not (isinstance(title, dict) and isinstance(title.get("text"), str) and "limit" in title):
        return {}
    lines = textwrap.wrap(title["text"], max(8, int(title["limit"] / LETTER)))
    short = max(map(len, lines), default=0) * WIDEST <= title["limit"]
    kept = {key: value for key, value in title.items() if key != "limit" or not short}
    return {"title": {**kept, "text": lines or ""}}


def _without_legends(spec: Any) -> Any:
    """Return a chart's specification without legends."""
    if isinstance(spec, list):
        return [_without_legends(each) for each in spec]
    if not isinstance(spec, dict):
        return spec
    return {key: None if key == "legend" and "field" in spec else _without_legends(each) for key, each in spec.items()} | (
        {"legend": None} if "field" in spec and "scale" in spec and "legend" not in spec and "axis" not in spec else {}
    )


def draw_png(chart: Chart) -> bytes:
    """Return a chart as a PNG file on white."""
    vl_convert = importlib.import_module("vl_convert")
    data: bytes = vl_convert.svg_to_png(on_white(draw_svg(chart)), scale=2)
    return data


def on_white(svg: str) -> str:
    """Return an SVG with a white ground."""
    return re.sub(r"(<svg\b[^>]*>)", r'\1<rect width="100%" height="100%" fill="white"/>', svg, count=1)


def draw_panel(chart: Chart) -> str:
    """Return a chart as an SVG element for the page: themed, with tooltips, and without a legend, which the page has."""
    svg = draw_svg(chart, legend=False)
    svg = _LABEL.sub(_with_title, svg)
    svg = _ARIA.sub("", svg)
    for colour, token in _TOKENS.items():
        svg = svg.replace(f'"{colour}"', f'"{token}"')
    return re.sub(r"<svg\b", '<svg aria-hidden="true" focusable="false"', svg, count=1)


def _with_title(match: re.Match[str]) -> str:
    """Return an element whose label is a tooltip."""
    start, label, rest, end = match.groups()
    title = f"<title>{html.escape(html.unescape(label))}</title>"
    name = re.match(r"<(\w+)", start)
    assert name is not None
    return f"{start}{rest}>{title}</{name[1]}>" if end == "/>" else f"{start}{rest}>{title}"


def draw_offline(chart: Chart) -> Chart:
    """Return a chart that a notebook shows as an SVG, which needs no network; otherwise it is the same Altair chart."""
    kind = type(chart)
    shown = {"_repr_mimebundle_": lambda self, *include, **exclude: {"image/svg+xml": draw_svg(self)}}
    copied = chart.copy()
    object.__setattr__(copied, "__class__", type(kind.__name__, (kind,), shown))
    return copied
