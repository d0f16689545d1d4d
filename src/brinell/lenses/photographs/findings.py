"""What photographed variants show, from rows: how many scenes a model loses under something real."""

from __future__ import annotations

import html
import math
from dataclasses import asdict, dataclass
from typing import Any

import duckdb

from brinell.errors import RunError
from brinell.lenses.highlights.findings import plain
from brinell.runs.statistics import Estimate, mean, proportion

AT_LEAST = (1, 2)  # the paper's S ≥ 1 and S ≥ 2: it has five photographs of a scene


@dataclass(frozen=True)
class Scenes:
    """One model on scenes that have an original and variants; figures as those of `Glare`."""

    model: str
    scenes: int
    right: int
    variants: int
    top1: Estimate
    average: Estimate
    at_least: dict[int, Estimate]
    over_right: dict[int, Estimate]
    failing: int
    failing_scenes: int
    each: Estimate


@dataclass(frozen=True)
class Photographs:
    """All that photographed variants show, by model. `lonely` photographs have no original, or no variant."""

    scenes: dict[str, Scenes]
    lonely: int

    @property
    def models(self) -> list[str]:
        """The models, those that lose the least first."""
        return sorted(self.scenes, key=lambda model: -self.scenes[model].average.value)

    @property
    def operators(self) -> list[str]:
        """What is asked about."""
        return ["photograph:given"]

    def verdict(self, model: str) -> str:
        """The finding about a model in a sentence."""
        one = self.scenes[model]
        lost = f"loses {one.failing_scenes / one.right:.0%} of those in some variant" if one.right else "has none to lose"
        return (
            f"{model} is right on {one.top1.value:.1%} of {one.scenes} originals and {lost}; of all variants it is right "
            f"on {one.average.value:.1%}."
        )

    def table(self) -> list[dict[str, Any]]:
        """One record a model."""
        return [plain(asdict(one)) for one in self.scenes.values()]

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain data."""
        verdicts = {model: self.verdict(model) for model in self.models}
        return {"verdicts": verdicts, "scenes": self.table(), "lonely": self.lonely}

    def _repr_html_(self) -> str:
        """The verdicts, for notebooks."""
        return "".join(f"<p>{html.escape(self.verdict(model))}</p>" for model in self.models)


_PHOTOGRAPHS = """
    (select model, samples.original, samples.variant, rows.correct from rows join samples using (image)
     where lens = 'photographs' and samples.original is not null)
"""
_SCENES = f"""
    (select model, original, bool_or(correct) filter (variant is null) as is_right, count(variant) as variants,
            avg(correct::int) filter (variant is not null) as kept, count(*) filter (variant is not null and not correct)
            as failing from {_PHOTOGRAPHS} group by all having count(variant) > 0 and count(*) > count(variant))
"""
_FIGURES = f"""
    select model, count(*), count(*) filter (is_right), sum(variants), avg(kept), stddev_samp(kept),
           sum(failing) filter (is_right), count(*) filter (is_right and failing > 0),
           avg(failing) filter (is_right and failing > 0), stddev_samp(failing) filter (is_right and failing > 0),
           list(case when is_right then failing end)
    from {_SCENES} group by all order by all
"""
_LONELY = """
    select count(*) from samples where problem is null and (original is null or original not in (
        select original from samples where problem is null and original is not null group by all
        having count(variant) > 0 and count(*) > count(variant)))
"""


def photographs(connection: duckdb.DuckDBPyConnection, at_least: tuple[int, ...] = AT_LEAST) -> Photographs:
    """Compute everything from the tables `rows` and `samples`."""
    found = {}
    for model, scenes, right, variants, kept, spread, failing, lost, each, deviation, counts in connection.execute(
        _FIGURES
    ).fetchall():
        whole = {k: sum(count is not None and count < k for count in counts) for k in at_least}
        found[model] = Scenes(
            model=model,
            scenes=scenes,
            right=right,
            variants=variants,
            top1=proportion(right, scenes),
            average=mean(kept, spread, scenes, most=1),
            at_least={k: proportion(whole[k], scenes) for k in at_least},
            over_right={k: proportion(whole[k], right) for k in at_least},
            failing=failing or 0,
            failing_scenes=lost,
            each=mean(math.nan if each is None else each, deviation, lost),
        )
    if not found:
        raise RunError(
            "no original with variants is known; say which belong together with data.pattern, or with columns original and "
            "variant of a manifest"
        )
    return Photographs(found, connection.execute(_LONELY).fetchall()[0][0])
