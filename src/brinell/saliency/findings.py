"""How far models' attention moved, from the table of pairs: for changed images that fail, and for those that don't."""

from __future__ import annotations

import html
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import duckdb

from brinell.lenses.highlights.findings import plain
from brinell.runs.names import title
from brinell.runs.statistics import Estimate, mean, ratio


@dataclass(frozen=True)
class Moved:
    """One model under one operator of a lens: changed images that `failed`, or the control, those that did not.

    `moved` is the share of pairs whose fullest cells differ, by the paper's rule; `equal_moved` with cells of one size;
    `tied` the share in which the rule had to choose among several. `overlap` and `distance` are means over images.
    """

    lens: str
    model: str
    operator: str
    failed: bool
    pairs: int
    images: int
    moved: Estimate
    equal_moved: Estimate
    tied: float
    overlap: Estimate
    distance: Estimate


@dataclass(frozen=True)
class Attention:
    """All that is known of attention: the figures, which layers were looked at, and which models have none and why."""

    moves: list[Moved]
    options: Mapping[str, Any]
    layers: dict[str, str]
    without: dict[str, str]

    @property
    def models(self) -> list[str]:
        """The models, in the order of the run."""
        return [*self.layers, *self.without]

    @property
    def operators(self) -> list[str]:
        """What they were looked at under."""
        return list(dict.fromkeys(one.operator for one in self.moves))

    def of(self, model: str) -> list[Moved]:
        """What is known of one model."""
        return [one for one in self.moves if one.model == model]

    def verdict(self, model: str) -> str:
        """The finding about a model in a sentence."""
        if model in self.without:
            return f"Nothing is known of where {model} looks: {self.without[model]}."
        mine = self.of(model)
        failing = [one for one in mine if one.failed]
        if not failing:
            return f"No change made {model} fail, so there is nothing to compare."
        one = max(failing, key=lambda one: one.pairs)
        told = f"When {title(one.operator)} makes {model} fail, it looks elsewhere in {one.equal_moved.value:.0%} of cases"
        control = [each for each in mine if not each.failed and (each.lens, each.operator) == (one.lens, one.operator)]
        if control:
            told += f"; where it does not fail, in {control[0].equal_moved.value:.0%}"
        return told + "."

    def table(self) -> list[dict[str, Any]]:
        """One record a model, operator and kind of pair."""
        return [plain(asdict(one)) for one in self.moves]

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain data."""
        return {
            "options": dict(self.options),
            "layers": self.layers,
            "without": self.without,
            "verdicts": {model: self.verdict(model) for model in self.models},
            "moves": self.table(),
        }

    def _repr_html_(self) -> str:
        """The verdicts, for notebooks."""
        return "".join(f"<p>{html.escape(self.verdict(model))}</p>" for model in self.models)


_IMAGES = """
    select lens, model, operator, failed, image, count(*) as pairs, count(moved) as b, count(*) filter (moved) as a,
           count(*) filter (equal_moved) as e, count(*) filter (tied) as tied, avg(overlap) as overlap,
           avg(distance) as distance
    from attention group by all
"""
_MOVES = f"""
    select lens, model, operator, failed, sum(pairs), count(*), sum(tied) / sum(pairs),
           sum(a), sum(b), sum(a * a), sum(a * b), sum(b * b), sum(e), sum(e * e), sum(e * b),
           avg(overlap), stddev_samp(overlap), avg(distance), stddev_samp(distance)
    from ({_IMAGES}) group by all order by lens, model, operator, failed desc
"""


def attention(connection: duckdb.DuckDBPyConnection, told: Mapping[str, Any]) -> Attention:
    """Compute everything from the table `attention`; `told` is what the manifest says of it."""
    moves = []
    for lens, model, operator, failed, pairs, images, tied, *rest in connection.execute(_MOVES).fetchall():
        a, b, aa, ab, bb, e, ee, eb, overlap, spread, distance, deviation = rest
        moves.append(
            Moved(
                lens=lens,
                model=model,
                operator=operator,
                failed=failed,
                pairs=pairs,
                images=images,
                moved=ratio(a, b, aa, ab, bb, images),
                equal_moved=ratio(e, b, ee, eb, bb, images),
                tied=tied,
                overlap=mean(float("nan") if overlap is None else overlap, spread, images, most=1),
                distance=mean(float("nan") if distance is None else distance, deviation, images),
            )
        )
    return Attention(moves, told["options"], told["layers"], told["without"])
