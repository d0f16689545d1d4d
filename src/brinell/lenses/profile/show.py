"""The report's part on degradation profiles."""

from __future__ import annotations

from brinell.engine.exhibits import Exhibit, read_exhibits
from brinell.lenses.profile.charts import Figure, area_bars, average_profiles, operator_profiles
from brinell.lenses.profile.findings import THRESHOLDS, Profiles
from brinell.report.section import Namer, Picture, Section, Told, inline, pairs, sure
from brinell.runs.names import title
from brinell.runs.store import Store


def profile_section(told: Told, found: Profiles) -> Section:
    """Curves, failure points, and what failure looks like."""
    return Section(
        template="profile.html",
        question="How far can images degrade before the model breaks?",
        what="degradation profiles",
        found=found,
        options=told.options,
        charts={"average": average_profiles(found), "operators": operator_profiles(found), "areas": area_bars(found)},
        content={
            "thresholds": THRESHOLDS,
            "sheets": _sheets(told, found),
            "breakers": pairs(told, found),
            "levels": max(len(points) for points in found.curves.values()) - 1,
        },
    )


def profile_figures(found: Profiles) -> dict[str, Figure]:
    """All figures of the paper's kind: the averages, and each model's operators, by every measure."""
    charts: dict[str, Figure] = {f"average-{metric}": average_profiles(found, metric) for metric in found.metrics}
    charts["areas"] = area_bars(found)
    for model in found.models:
        for metric in found.metrics:
            charts[f"{model}-{metric}"] = operator_profiles(found, model, metric)
    return charts


def _sheets(told: Told, found: Profiles) -> list[tuple[str, list[tuple[float, list[Picture]]]]]:
    """For each model and threshold the example image at every operator's failure point (Figures 7-9)."""
    sheets, exhibits = [], read_exhibits(told.store)
    for model in found.models:
        by_threshold = []
        for threshold in THRESHOLDS:
            shown = [e for e in exhibits if e.model == model and e.threshold == threshold]
            shown.sort(key=lambda exhibit: exhibit.level)
            pictures = [_failure_picture(told.store, found, exhibit, told.names[model]) for exhibit in shown]
            by_threshold.append((threshold, pictures))
        if any(pictures for _, pictures in by_threshold):
            sheets.append((model, by_threshold))
    return sheets


def _failure_picture(store: Store, found: Profiles, exhibit: Exhibit, name: Namer) -> Picture:
    assert exhibit.threshold is not None
    told = found.failure(exhibit.model, exhibit.operator, exhibit.threshold).told
    lines = (f"level {exhibit.level}: {told}", f"{name(exhibit.prediction)}{sure(exhibit.confidence)}")
    return Picture(inline(store, exhibit.file), title(exhibit.operator), lines, exhibit.correct)
