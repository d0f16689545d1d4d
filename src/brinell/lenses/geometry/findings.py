"""What the geometry lens found: the smallest motions that change a label, and how often random motions do."""

from __future__ import annotations

import html
import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from brinell.errors import RunError
from brinell.lenses.geometry.motions import exhibits, group_of, training_motions
from brinell.lenses.geometry.rows import (
    COLUMNS,
    FAILURES,
    LABEL_CHANGES,
    MEASURES,
    RATES,
    RATES_OVER_IMAGES,
    REASONS,
    SHARES,
    SMALLEST,
)
from brinell.lenses.reader import Figures, Reader
from brinell.motion.names import GROUP_FACTS
from brinell.runs.plain import to_plain
from brinell.runs.run import Run
from brinell.runs.statistics import Estimate, mean, proportion

THRESHOLD = 0.5


@dataclass(frozen=True)
class Invariance:
    """One model under one group, searched by one method. Means are over the images that were fooled.

    `score` is the paper's ρ̂: the mean geodesic score of the smallest motions. `by_retry` images were fooled by ManiFool's
    second try alone, which the paper doesn't have; `first_try` is the mean score without them. For `failed` images no
    motion was found, for these `reasons`; `skipped` ones were wrong when clean; `no_answer` ones got no answer.
    """

    model: str
    operator: str
    fooled: int
    failed: int
    skipped: int
    no_answer: int
    score: Estimate
    by_retry: int
    first_try: Estimate
    median: float | None
    seconds: float
    queries: float
    gradients: float
    steps: float | None
    reasons: dict[str, int]

    @property
    def retry_note(self) -> str:
        """What the second try found; empty if nothing."""
        if not self.by_retry:
            return ""
        without = f"; without them, the mean score is {self.first_try.value:.2f}" if self.by_retry < self.fooled else ""
        return f"{self.by_retry} of {self.fooled} fooled by a second try, whose longer steps find larger motions{without}"


@dataclass(frozen=True)
class Rate:
    """What random motions of one score do: `changed` is the share of motions that change the label, `worst` the share of
    images for which at least one of the draws does.

    `rejected` is the share of draws that have no motion of this score; it may bias the rate.
    """

    model: str
    operator: str
    score: float
    changed: Estimate
    worst: Estimate
    draws: int
    rejected: float


@dataclass(frozen=True)
class CoordinateShare:
    """How much one coordinate contributes to the smallest motions: its mean share of the squared change of the image.

    `size` is its mean absolute value, in raw units.
    """

    model: str
    operator: str
    coordinate: str
    mean: float
    size: float


@dataclass(frozen=True)
class GeometryFindings:
    """All findings of the geometry lens. `smallest` and `rates` go by (model, operator); rates are in increasing score."""

    smallest: dict[tuple[str, str], Invariance]
    rates: dict[tuple[str, str], list[Rate]]
    shares: list[CoordinateShare] = field(default_factory=list)
    label_changes: list[dict[str, Any]] = field(default_factory=list)
    threshold: float = THRESHOLD
    against: str = "answer"
    titles: Mapping[str, str] = field(default_factory=dict)

    @property
    def models(self) -> list[str]:
        """Models, the most invariant first."""
        names = dict.fromkeys(model for model, _ in [*self.smallest, *self.rates])
        return sorted(names, key=self._fragility)

    def _fragility(self, model: str) -> float:
        """Return less for a model that needs larger motions on average."""
        scores = [one.score.value for (owner, _), one in self.smallest.items() if owner == model and one.fooled]
        if scores:
            return -sum(scores) / len(scores)
        rates = [rate.changed.value for (owner, _), own in self.rates.items() if owner == model for rate in own]
        return sum(rates) / len(rates) if rates else math.inf

    @property
    def operators(self) -> list[str]:
        """Groups with their methods, in the order of the groups."""
        groups = list(GROUP_FACTS)
        names = {operator for _, operator in [*self.smallest, *self.rates]}
        return sorted(names, key=lambda name: (groups.index(group_of(name).name), name))

    def title(self, operator: str) -> str:
        """Return an operator's name for people."""
        return self.titles.get(operator, operator)

    def threshold_score(self, model: str, operator: str) -> float | None:
        """Return the paper's r̂: the lowest score at which random motions change `threshold` of the labels.

        It is interpolated between the scores that were measured; None if the rate stays below.
        """
        before_score, before_rate = 0.0, 0.0
        for rate in self.rates.get((model, operator), []):
            if rate.draws and rate.changed.value >= self.threshold:
                rise = rate.changed.value - before_rate
                part = (self.threshold - before_rate) / rise if rise > 0 else 1.0
                return before_score + part * (rate.score - before_score)
            before_score, before_rate = rate.score, rate.changed.value if rate.draws else before_rate
        return None

    def verdict(self, model: str) -> str:
        """Return the finding about a model in a sentence."""
        mine = [one for (owner, _), one in self.smallest.items() if owner == model]
        # the search that fooled the most images: a mean over a few of them says little
        fooled = sorted((one for one in mine if one.fooled), key=lambda one: (-one.fooled, one.score.value))
        parts = []
        if fooled:
            weakest = fooled[0]
            parts.append(
                f"{model} changes its label on {weakest.fooled} of {weakest.fooled + weakest.failed} images under "
                f"{self.title(weakest.operator)}, at a mean score of {weakest.score.value:.2f}"
            )
        elif mine:
            parts.append(f"No motion found changes a label of {model}")
        for owner, operator in self.rates:
            if owner == model:
                score = self.threshold_score(model, operator)
                share = f"{self.threshold:.0%} of its labels"
                where = (
                    f"fewer than {share} at every score tried" if score is None else f"{share} at a score of {score:.2f}"
                )
                start = "random" if parts else f"{model}: random"
                parts.append(f"{start} {group_of(operator).title} motions change {where}")
        return "; ".join(parts) + "." if parts else f"No findings for {model}."

    def table(self) -> list[dict[str, Any]]:
        """Return one flat record per model, group and method."""
        return [
            {
                **asdict(one),
                "score": one.score.value,
                "low": one.score.low,
                "high": one.score.high,
                "first_try": one.first_try.value,
            }
            for one in self.smallest.values()
        ]

    def figures(self) -> Iterator[Figures]:
        """Yield named figures; random motions have one step per score."""
        for one in self.smallest.values():
            yield one.model, one.operator, 0, one
        for (model, operator), rates in self.rates.items():
            yield model, operator, 0, {"threshold_score": self.threshold_score(model, operator)}
            for step, rate in enumerate(rates, 1):
                yield model, operator, step, rate

    def to_json(self) -> dict[str, Any]:
        """Return everything as plain data."""
        content: dict[str, Any] = to_plain(
            {
                "threshold": self.threshold,
                "against": self.against,
                "verdicts": {model: self.verdict(model) for model in self.models},
                "smallest": self.table(),
                "rates": [rate for rates in self.rates.values() for rate in rates],
                "threshold_scores": [
                    {"model": model, "operator": operator, "score": self.threshold_score(model, operator)}
                    for model, operator in self.rates
                ],
                "shares": self.shares,
                "label_changes": self.label_changes,
            }
        )
        return content

    def _repr_html_(self) -> str:
        """Return the verdicts and the table of scores, for notebooks."""
        verdicts = "".join(f"<p>{html.escape(self.verdict(model))}</p>" for model in self.models)
        rows = "".join(
            f"<tr><th>{html.escape(one.model)}</th><td>{html.escape(self.title(one.operator))}</td>"
            f"<td>{one.score.value:.2f} <small>[{one.score.low:.2f}, {one.score.high:.2f}]</small></td></tr>"
            for one in self.smallest.values()
            if one.fooled
        )
        return f"{verdicts}<table><caption>mean geodesic score of the smallest motions</caption>{rows}</table>"


def find(run: Run, options: Mapping[str, Any], summary: Mapping[str, Any]) -> GeometryFindings:
    """Compute the findings from the tables `rows`, `samples` and `clean`."""
    smallest, rates = _find_smallest(run, options["max_steps"]), _find_rates(run)
    if not smallest and not rates:
        raise RunError(f"the run in {run.folder} has no rows yet; rerun its command to finish it")
    shares = [
        CoordinateShare(model, operator, group_of(operator).parts[number - 1], share, size)
        for model, operator, number, share, size in run.query(SHARES)
    ]
    label_changes = [
        {"model": model, "operator": operator, "from": before, "to": after, "images": images}
        for model, operator, before, after, images in run.query(LABEL_CHANGES)
    ]
    titles = {operator: run.title(operator) for _, operator in [*smallest, *rates]}
    return GeometryFindings(smallest, rates, shares, label_changes, options["threshold"], options["against"], titles)


def _find_smallest(run: Run, max_steps: int) -> dict[tuple[str, str], Invariance]:
    """Return the smallest motions by model and operator; steps beyond `max_steps` belong to the second try."""
    reasons: dict[tuple[str, str], dict[str, int]] = {}
    for model, operator, reason, count in run.query(REASONS):
        reasons.setdefault((model, operator), {})[reason] = count
    smallest = {}
    for model, operator, fooled, failed, skipped, no_answer, *figures in run.query(SMALLEST, {"max_steps": max_steps}):
        value, deviation, by_retry, first, first_deviation, median, seconds, queries, gradients, steps = figures
        smallest[model, operator] = Invariance(
            model=model,
            operator=operator,
            fooled=fooled,
            failed=failed,
            skipped=skipped,
            no_answer=no_answer,
            score=mean(math.nan if value is None else value, deviation, fooled),
            by_retry=by_retry,
            first_try=mean(math.nan if first is None else first, first_deviation, fooled - by_retry),
            median=median,
            seconds=seconds,
            queries=queries,
            gradients=gradients,
            steps=steps,
            reasons=reasons.get((model, operator), {}),
        )
    return smallest


def _find_rates(run: Run) -> dict[tuple[str, str], list[Rate]]:
    """Return what random motions do by model and operator, in increasing score."""
    over_images = {row[:3]: row[3:] for row in run.query(RATES_OVER_IMAGES)}
    rates: dict[tuple[str, str], list[Rate]] = {}
    for model, operator, score, answered, broken, rejected, drawn in run.query(RATES):
        deviation, images, fooled = over_images.get((model, operator, score), (None, 0, 0))
        changed = mean(broken / answered, deviation, images, most=1) if answered else proportion(0, 0)
        rates.setdefault((model, operator), []).append(
            Rate(
                model=model,
                operator=operator,
                score=score,
                changed=changed,
                worst=proportion(fooled, images),
                draws=answered,
                rejected=rejected / max(1, drawn),
            )
        )
    return rates


READER = Reader(
    columns=COLUMNS,
    find=find,
    changed="motion is not null",
    parameters="motion",
    measures=MEASURES,
    failures=FAILURES,
    exhibits=exhibits,
    motions=training_motions,
)
