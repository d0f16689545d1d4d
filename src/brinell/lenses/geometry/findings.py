"""What the geometry lens found, from rows: the smallest motions that change a label, and what random ones do."""

from __future__ import annotations

import html
import math
from dataclasses import asdict, dataclass
from typing import Any

import duckdb

from brinell.errors import RunError
from brinell.motion.names import GROUP_FACTS, describe
from brinell.runs.names import title
from brinell.runs.statistics import Estimate, mean, proportion

THRESHOLD = 0.5


@dataclass(frozen=True)
class Invariance:
    """One model under one group, searched by one method. Means are over the images that were fooled.

    `score` is the paper's ρ̂: the mean geodesic score of the smallest motions. Of the fooled, `again` were so by ManiFool's
    second try alone, which the paper doesn't have; `first` is the mean without them. `failed` are images that no motion was
    found for, with the `reasons`; `skipped` were wrong when clean, and `silent` ones got no answer.
    """

    model: str
    operator: str
    fooled: int
    failed: int
    skipped: int
    silent: int
    score: Estimate
    again: int
    first: Estimate
    median: float | None
    seconds: float
    queries: float
    gradients: float
    steps: float | None
    reasons: dict[str, int]

    @property
    def method(self) -> str:
        """How it was searched."""
        return self.operator.partition(":")[2]

    @property
    def group(self) -> str:
        """The group's name."""
        return self.operator.partition(":")[0]

    @property
    def tries(self) -> str:
        """What the second try did, in words; empty where it did nothing."""
        if not self.again:
            return ""
        without = f"; without them the mean is {self.first.value:.2f}" if self.again < self.fooled else ""
        return f"{self.again} of the {self.fooled} by a second try, whose longer steps find larger motions{without}"


@dataclass(frozen=True)
class Rate:
    """What random motions of one score do: how often the label changes, and for how many images one of the draws does it.

    `rejected` is the share of draws that have no motion of this score; it may bias the rate.
    """

    model: str
    operator: str
    wanted: float
    changed: Estimate
    worst: Estimate
    draws: int
    rejected: float


@dataclass(frozen=True)
class Share:
    """How much of the smallest motions one generator has: its mean share of the squared changes of the image.

    `size` is its mean absolute coordinate, in raw units.
    """

    model: str
    operator: str
    part: str
    mean: float
    size: float


@dataclass(frozen=True)
class Smallest:
    """An image with the smallest motion that changes its label."""

    model: str
    operator: str
    image: str
    label: int
    clean_prediction: int
    prediction: int
    score: float
    motion: tuple[float, ...]
    clean_confidence: float | None

    @property
    def told(self) -> str:
        """The motion in words."""
        return describe(GROUP_FACTS[self.operator.partition(":")[0]], self.motion)


@dataclass(frozen=True)
class Motions:
    """All that the geometry lens found. `smallest` goes by (model, operator), `rates` by them in increasing score."""

    smallest: dict[tuple[str, str], Invariance]
    rates: dict[tuple[str, str], list[Rate]]
    shares: list[Share]
    falls: list[dict[str, Any]]
    threshold: float = THRESHOLD
    against: str = "answer"

    @property
    def models(self) -> list[str]:
        """The models, the most invariant first."""
        names = dict.fromkeys(model for model, _ in [*self.smallest, *self.rates])
        return sorted(names, key=self._place)

    def _place(self, model: str) -> float:
        """Less for a model that takes larger motions, on average."""
        found = [one.score.value for (owner, _), one in self.smallest.items() if owner == model and one.fooled]
        rates = [rate.changed.value for (owner, _), many in self.rates.items() if owner == model for rate in many]
        return -sum(found) / len(found) if found else sum(rates) / len(rates) if rates else math.inf

    @property
    def operators(self) -> list[str]:
        """Groups with their methods, in the order of the groups."""
        known = list(GROUP_FACTS)
        names = {operator for _, operator in [*self.smallest, *self.rates]}
        return sorted(names, key=lambda name: (known.index(name.partition(":")[0]), name))

    def middle(self, model: str, operator: str) -> float | None:
        """The paper's r̂: the least score at which random motions change the label as often as the threshold says.

        Between two scores that were measured it is interpolated; None where the rate stays below.
        """
        before_score, before_rate = 0.0, 0.0
        for rate in self.rates.get((model, operator), []):
            if rate.draws and rate.changed.value >= self.threshold:
                rise = rate.changed.value - before_rate
                part = (self.threshold - before_rate) / rise if rise > 0 else 1.0
                return before_score + part * (rate.wanted - before_score)
            before_score, before_rate = rate.wanted, rate.changed.value if rate.draws else before_rate
        return None

    def verdict(self, model: str) -> str:
        """The finding about a model in a sentence."""
        mine = [one for (owner, _), one in self.smallest.items() if owner == model]
        # the most images first: a mean over few of them says little
        fooled = sorted((one for one in mine if one.fooled), key=lambda one: (-one.fooled, one.score.value))
        parts = []
        if fooled:
            weak = fooled[0]
            parts.append(
                f"{model} changes its label under {title(weak.operator)} with motions of score {weak.score.value:.2f} on "
                f"average ({weak.fooled} of {weak.fooled + weak.failed} images)"
            )
        elif mine:
            parts.append(f"No motion was found that changes a label of {model}")
        for (owner, operator), _ in self.rates.items():
            if owner == model:
                middle = self.middle(model, operator)
                reach = f"from a score of {middle:.2f} on" if middle is not None else "at no score that was tried"
                name = GROUP_FACTS[operator.partition(":")[0]].title
                parts.append(f"random {name} motions change {self.threshold:.0%} of the labels {reach}")
        return "; ".join(parts) + "." if parts else f"Nothing is known of {model}."

    def table(self) -> list[dict[str, Any]]:
        """One flat record a model, group and method."""
        return [
            {
                **asdict(one),
                "score": one.score.value,
                "low": one.score.low,
                "high": one.score.high,
                "first": one.first.value,
            }
            for one in self.smallest.values()
        ]

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain data."""
        rates = [
            {**asdict(rate), "changed": asdict(rate.changed), "worst": asdict(rate.worst)}
            for many in self.rates.values()
            for rate in many
        ]
        middles = [
            {"model": model, "operator": operator, "middle": self.middle(model, operator)} for model, operator in self.rates
        ]
        return {
            "threshold": self.threshold,
            "against": self.against,
            "verdicts": {model: self.verdict(model) for model in self.models},
            "smallest": [_plain(record) for record in self.table()],
            "rates": [_plain(record) for record in rates],
            "middles": middles,
            "shares": [asdict(share) for share in self.shares],
            "falls": self.falls,
        }

    def _repr_html_(self) -> str:
        """The verdicts and the table of scores, for notebooks."""
        verdicts = "".join(f"<p>{html.escape(self.verdict(model))}</p>" for model in self.models)
        rows = "".join(
            f"<tr><th>{html.escape(one.model)}</th><td>{html.escape(title(one.operator))}</td>"
            f"<td>{one.score.value:.2f} <small>[{one.score.low:.2f}, {one.score.high:.2f}]</small></td></tr>"
            for one in self.smallest.values()
            if one.fooled
        )
        return f"{verdicts}<table><caption>mean geodesic score of the smallest motions</caption>{rows}</table>"


def _plain(record: dict[str, Any]) -> dict[str, Any]:
    """A record with None for what can't be told: NaN and infinity are no JSON."""
    return {
        key: _plain(value)
        if isinstance(value, dict)
        else None
        if isinstance(value, float) and not math.isfinite(value)
        else value
        for key, value in record.items()
    }


_SMALLEST = """
    select model, operator, count(*) filter (status = 'broken'), count(*) filter (status = 'survived'),
           count(*) filter (status = 'skipped'), count(*) filter (status = 'failed'),
           avg(score) filter (status = 'broken'), stddev_samp(score) filter (status = 'broken'),
           count(*) filter (status = 'broken' and steps > $most),
           avg(score) filter (status = 'broken' and steps <= $most),
           stddev_samp(score) filter (status = 'broken' and steps <= $most),
           median(score) filter (status = 'broken'), avg(seconds), avg(queries), avg(gradients), avg(steps)
    from rows where lens = 'geometry' and draw is null group by all order by all
"""
_REASONS = """
    select model, operator, reason, count(*) from rows
    where lens = 'geometry' and draw is null and status != 'broken' group by all order by 4 desc, 3
"""
_RATES = """
    select model, operator, amount, count(*) filter (status in ('broken', 'survived')),
           count(*) filter (status = 'broken'), count(*) filter (status = 'skipped' and reason != 'wrong when clean'),
           count(*) filter (reason != 'wrong when clean')
    from rows where lens = 'geometry' and draw is not null group by all order by all
"""
_WORST = """
    select model, operator, amount, count(*), count(*) filter (any_broken) from (
        select model, operator, amount, image, bool_or(status = 'broken') as any_broken
        from rows where lens = 'geometry' and draw is not null and status in ('broken', 'survived') group by all)
    group by all
"""
_RATE_DEVIATION = """
    select model, operator, amount, stddev_samp(own), count(*) from (
        select model, operator, amount, image, avg((status = 'broken')::int) as own
        from rows where lens = 'geometry' and draw is not null and status in ('broken', 'survived') group by all)
    group by all
"""
_FALLS = """
    select rows.model, operator, clean.prediction, rows.prediction, count(*) from rows join samples using (image)
    join clean on clean.model = rows.model and clean.index = samples.index
    where lens = 'geometry' and draw is null and status = 'broken' group by all order by 1, 2, 5 desc, 3, 4
"""
_MOST_FALLS = 5
_SHARES = """
    select model, operator, place, avg(share), avg(size) from (
        select model, operator, unnest(range(1, len(motion) + 1)) as place,
               unnest([x * x / greatest(list_sum([y * y for y in parts]), 1e-300) for x in parts]) as share,
               unnest([abs(x) for x in motion]) as size
        from rows where lens = 'geometry' and draw is null and status = 'broken')
    group by all order by all
"""
_LEAST = """
    select rows.model, operator, image, rows.label, clean.prediction, rows.prediction, score, motion, clean.confidence
    from rows join samples using (image) join clean on clean.model = rows.model and clean.index = samples.index
    where lens = 'geometry' and draw is null and status = 'broken'
    qualify row_number() over (partition by rows.model, operator order by score, image) <= $most
    order by rows.model, operator, score
"""


def motions(
    connection: duckdb.DuckDBPyConnection,
    *,
    most_steps: int,
    threshold: float = THRESHOLD,
    against: str = "answer",
) -> Motions:
    """Compute everything from the tables `rows`, `samples` and `clean`; steps beyond `most_steps` are of a second try."""

    def ask(sql: str, **given: Any) -> list[tuple[Any, ...]]:
        return connection.execute(sql, given or None).fetchall()

    reasons: dict[tuple[str, str], dict[str, int]] = {}
    for model, operator, reason, count in ask(_REASONS):
        reasons.setdefault((model, operator), {})[reason] = count
    smallest = {}
    for model, operator, fooled, failed, skipped, silent, *figures in ask(_SMALLEST, most=most_steps):
        value, deviation, again, first, first_deviation, median, seconds, queries, gradients, steps = figures
        smallest[model, operator] = Invariance(
            model=model,
            operator=operator,
            fooled=fooled,
            failed=failed,
            skipped=skipped,
            silent=silent,
            score=mean(math.nan if value is None else value, deviation, fooled),
            again=again,
            first=mean(math.nan if first is None else first, first_deviation, fooled - again),
            median=median,
            seconds=seconds,
            queries=queries,
            gradients=gradients,
            steps=steps,
            reasons=reasons.get((model, operator), {}),
        )
    worst = {tuple(key): proportion(some, total) for *key, total, some in ask(_WORST)}
    spread = {tuple(key): (deviation, images) for *key, deviation, images in ask(_RATE_DEVIATION)}
    rates: dict[tuple[str, str], list[Rate]] = {}
    for model, operator, wanted, answered, broken, rejected, asked in ask(_RATES):
        at = (model, operator, wanted)
        deviation, images = spread.get(at, (None, 0))
        # draws of one image are no independent images: the interval is over images
        changed = mean(broken / answered, deviation, images, most=1) if answered else proportion(0, 0)
        rate = Rate(model, operator, wanted, changed, worst.get(at, proportion(0, 0)), answered, rejected / max(1, asked))
        rates.setdefault((model, operator), []).append(rate)
    if not smallest and not rates:
        raise RunError("the run has no rows yet; finish it with the command that began it")
    shares = [
        Share(model, operator, GROUP_FACTS[operator.partition(":")[0]].parts[place - 1], share, size)
        for model, operator, place, share, size in ask(_SHARES)
    ]
    return Motions(smallest, rates, shares, _falls(ask(_FALLS)), threshold, against)


def _falls(found: list[tuple[Any, ...]]) -> list[dict[str, Any]]:
    """The commonest changes of label."""
    kept: dict[tuple[str, str], int] = {}
    records = []
    for model, operator, before, after, count in found:
        kept[model, operator] = kept.get((model, operator), 0) + 1
        if kept[model, operator] <= _MOST_FALLS:
            records.append({"model": model, "operator": operator, "from": before, "to": after, "images": count})
    return records


def smallest_motions(connection: duckdb.DuckDBPyConnection, most: int) -> list[Smallest]:
    """For each model, group and method the images that the smallest motions fool."""
    found = connection.execute(_LEAST, {"most": most}).fetchall()
    return [
        Smallest(model, operator, image, label, clean, prediction, score, tuple(motion), sure)
        for model, operator, image, label, clean, prediction, score, motion, sure in found
    ]
