"""What the geometry lens found: the smallest motions that change a label, and how often random motions do."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from brinell.errors import RunError
from brinell.lenses.geometry.motions import exhibits, group_of, training_motions
from brinell.lenses.geometry.rows import COLUMNS, FAILURES, HARDNESS, MEASURES, SCORE_LIMIT
from brinell.lenses.geometry.statistics import (
    CoordinateShare,
    Invariance,
    Rate,
    find_label_changes,
    find_rates,
    find_shares,
    find_smallest,
)
from brinell.lenses.reader import Figures, PrintedFindings, Reader
from brinell.motion.names import GROUP_FACTS
from brinell.runs.plain import to_plain
from brinell.runs.run import Run
from brinell.runs.statistics import Estimate
from brinell.runs.words import NAMED, format_mean, format_share, note_few

THRESHOLD = 0.5


@dataclass(frozen=True, repr=False)
class GeometryFindings(PrintedFindings):
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

    def _fragility(self, model: str) -> tuple[bool, float]:
        """Return less for a model that needs larger motions on average, by the searches that all searched models have."""
        searched = {owner for owner, _ in self.smallest}
        names = {operator for _, operator in self.smallest}
        common = {name for name in names if all((owner, name) in self.smallest for owner in searched)} or names
        scores = [self.smallest[model, name].restricted_mean.value for name in common if (model, name) in self.smallest]
        known = [score for score in scores if not math.isnan(score)]
        if known:
            return False, -round(sum(known) / len(known), 9)
        rates = [rate.changed.value for (owner, _), own in self.rates.items() if owner == model for rate in own]
        return True, round(sum(rates) / len(rates), 9) if rates else math.inf

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
        return self._crossing(model, operator, lambda rate: rate.value)

    def threshold_interval(self, model: str, operator: str) -> tuple[float | None, float | None]:
        """Return where the rate's upper and lower bounds reach the threshold; None where they don't."""
        upper = self._crossing(model, operator, lambda rate: rate.high)
        return upper, self._crossing(model, operator, lambda rate: rate.low)

    def _crossing(self, model: str, operator: str, of: Callable[[Estimate], float]) -> float | None:
        before_score, before_rate = 0.0, 0.0
        for rate in self.rates.get((model, operator), []):
            value = of(rate.changed)
            if rate.draws and value >= self.threshold:
                rise = value - before_rate
                part = (self.threshold - before_rate) / rise if rise > 0 else 1.0
                return before_score + part * (rate.score - before_score)
            before_score, before_rate = rate.score, value if rate.draws else before_rate
        return None

    def describe_threshold(self, model: str, operator: str) -> str:
        """Return the threshold score with its interval: "0.80 [0.55–1.30]", or "[0.55 or more]"."""
        score = self.threshold_score(model, operator)
        if score is None:
            return "not reached"
        low, high = self.threshold_interval(model, operator)
        if low is None:  # one image has no interval
            return f"{score:.2f}"
        return f"{score:.2f} [{low:.2f} or more]" if high is None else f"{score:.2f} [{low:.2f}–{high:.2f}]"

    def verdict(self, model: str) -> str:
        """Return the finding about a model in a sentence."""
        mine = [one for (owner, _), one in self.smallest.items() if owner == model]
        fooled = sorted((one for one in mine if one.fooled), key=lambda one: (one.restricted_mean.value, one.operator))
        parts = []
        if fooled:
            one = fooled[0]
            parts.append(
                f"{model} changes its label on {one.fooled} of {one.images} images "
                f"({format_share(one.fooled_share)}) under {self.title(one.operator)}; the mean score of the smallest "
                f"motion, up to {SCORE_LIMIT:g}, is {format_mean(one.restricted_mean, '.2f')}"
            )
        elif mine:
            parts.append(f"No motion found changes a label of {model}")
        random = [operator for owner, operator in self.rates if owner == model]
        if random:
            parts.append(f"{'' if parts else f'{model}: '}{self._random_verdict(model, random)}")
        if not parts:
            return f"No findings for {model}."
        tested = [one.fooled + one.failed for one in mine] + [self.rates[model, name][0].images for name in random]
        few = note_few(max(tested))
        if few and not mine and any(math.isnan(self.rates[model, name][0].worst.value) for name in random):
            few = few.replace(" tested.", " tested at each score.")  # a sample has a few scores of every image
        return f"{'; '.join(parts)}.{few}"

    def _random_verdict(self, model: str, operators: Sequence[str]) -> str:
        """Return the scores at which random motions change the labels, group by group."""
        reached = [operator for operator in operators if self.threshold_score(model, operator) is not None]
        share = f"{self.threshold:.0%} of its labels"
        if not reached:
            return f"random motions change fewer than {share} at every score tried"
        scores = [f"{group_of(operator).title} {self.describe_threshold(model, operator)}" for operator in reached]
        more = f" and {len(scores) - NAMED} more groups" if len(scores) > NAMED else ""
        return f"random motions change {share} at these scores: {', '.join(scores[:NAMED])}{more}"

    def table(self) -> list[dict[str, Any]]:
        """Return one flat record per model, group and method."""
        return [
            {
                **asdict(one),
                "restricted_mean": one.restricted_mean.value,
                "low": one.restricted_mean.low,
                "high": one.restricted_mean.high,
                "rho_hat": one.rho_hat.value,
                "rho_hat_low": one.rho_hat.low,
                "rho_hat_high": one.rho_hat.high,
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
                "score_limit": SCORE_LIMIT,
                "verdicts": {model: self.verdict(model) for model in self.models},
                "smallest": self.table(),
                "rates": [rate for rates in self.rates.values() for rate in rates],
                "threshold_scores": [
                    {
                        "model": model,
                        "operator": operator,
                        "score": self.threshold_score(model, operator),
                        **dict(zip(("low", "high"), self.threshold_interval(model, operator), strict=True)),
                    }
                    for model, operator in self.rates
                ],
                "shares": self.shares,
                "label_changes": self.label_changes,
            }
        )
        return content


def find(run: Run, options: Mapping[str, Any], summary: Mapping[str, Any]) -> GeometryFindings:
    """Compute the findings from the tables `rows`, `samples` and `clean`."""
    smallest, rates = find_smallest(run, options["max_steps"]), find_rates(run)
    if not smallest and not rates:
        raise RunError(f"the run in {run.folder} has no rows yet; rerun its command to finish it")
    titles = {operator: run.title(operator) for _, operator in [*smallest, *rates]}
    return GeometryFindings(
        smallest, rates, find_shares(run), find_label_changes(run), options["threshold"], options["against"], titles
    )


READER = Reader(
    columns=COLUMNS,
    find=find,
    changed="motion is not null",
    parameters="motion",
    cells=lambda operator: "random motions" if operator.endswith(":random") else None,
    order=("image", "draw", "level"),
    measures=MEASURES,
    hardness=HARDNESS,
    failures=FAILURES,
    exhibits=exhibits,
    motions=training_motions,
)
