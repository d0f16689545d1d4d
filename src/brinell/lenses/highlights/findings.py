"""What the highlight lens found, from rows: how many images a spot of light breaks, of which size, and where."""

from __future__ import annotations

import html
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import duckdb

from brinell.errors import RunError
from brinell.runs.statistics import Estimate, mean, proportion, ratio

AT_LEAST = (1, 5)  # the paper's S ≥ 1 and S ≥ 5


@dataclass(frozen=True)
class BySize:
    """Spots of one sigma: their share of all failures, and how many of them break an image that was right."""

    sigma: str
    failures: int
    share: Estimate
    rate: Estimate


@dataclass(frozen=True)
class ByPlace:
    """Spots inside the object's box and outside of it, of images that were right and have one.

    `failing` is the share of failures that lie inside, `all` that of all spots: where the light doesn't matter, they are
    alike. `inside` and `outside` are the shares of spots there that break the model.
    """

    images: int
    failing: Estimate
    all: Estimate
    inside: Estimate
    outside: Estimate


@dataclass(frozen=True)
class Glare:
    """One model under a grid of spots.

    `top1` is the accuracy on originals, `average` that on all variants. `at_least[k]` is the accuracy if an image counts
    as failed once k of its variants fail, or the original does; `over_right[k]` the same over images whose original is
    right. `failing` are failures of such images, `failing_images` the images that have any, `each` how many those have.
    `cells` are, row by row, the shares of spots in a cell that break the model.
    """

    model: str
    operator: str
    images: int
    right: int
    variants: int
    top1: Estimate
    average: Estimate
    at_least: dict[int, Estimate]
    over_right: dict[int, Estimate]
    failing: int
    failing_images: int
    each: Estimate
    sizes: list[BySize]
    cells: list[float]
    place: ByPlace | None

    @property
    def worst_cell(self) -> int:
        """Where spots break the most."""
        return max(range(len(self.cells)), key=self.cells.__getitem__)


@dataclass(frozen=True)
class LeastLight:
    """One model under the search for the faintest spot that breaks: over images that broke, `light` is the mean of the grey
    levels that it adds to the image, and `middle` its median; `sigma` is the median size, in pixels of the original.
    """

    model: str
    broken: int
    survived: int
    skipped: int
    failed: int
    light: Estimate
    middle: float | None
    sigma: float | None
    queries: float
    survived_share: Estimate


@dataclass(frozen=True)
class Spotted:
    """An image that a spot makes a model lose. `inside`: whether the spot's centre lies in the object's box, if known."""

    model: str
    operator: str
    image: str
    level: int
    spot: tuple[float, float, float, float]
    light: float
    label: int
    prediction: int
    confidence: float | None
    inside: bool | None


@dataclass(frozen=True)
class Highlights:
    """All that the highlight lens found. `glare` goes by (model, operator), `least` by model; `together` counts, by
    operator, the variants that break at least one of the models, as the paper's collection has them, with their shares by
    size.
    """

    glare: dict[tuple[str, str], Glare]
    least: dict[str, LeastLight]
    together: dict[str, tuple[int, dict[str, float]]]
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def models(self) -> list[str]:
        """The models, those that light harms the least first."""
        scores: dict[str, float] = {model: -one.survived_share.value for model, one in self.least.items()}
        scores |= {model: 1 - one.average.value for (model, _), one in self.glare.items()}
        return sorted(scores, key=lambda model: (math.isnan(scores[model]), scores[model]))

    @property
    def operators(self) -> list[str]:
        """The grids, and the search where there was one."""
        grids = list(dict.fromkeys(operator for _, operator in self.glare))
        return grids + (["highlight:least"] if self.least else [])

    @property
    def grids(self) -> list[str]:
        """The grids alone."""
        return [operator for operator in self.operators if operator != "highlight:least"]

    def verdict(self, model: str) -> str:
        """The finding about a model in a sentence."""
        mine = [one for (owner, _), one in self.glare.items() if owner == model]
        told = ""
        if mine and not mine[0].right:
            told = f"Nothing is known of {model}: it gets no original right."
        elif mine:
            one = mine[0]
            broken = one.failing_images / one.right
            told = (
                f"{model} is right on {one.top1.value:.1%} of the originals and loses {broken:.0%} of those to a spot of "
                f"light somewhere; of all spots {one.failing / (one.right * one.variants):.1%} break it"
            )
            if one.failing:
                told += f", most often in {self.told_cell(one)}"
            told += "."
        least = self.least.get(model)
        if least is not None and least.broken:
            faint = f"{least.middle:.2g} grey levels added on average ({least.sigma:.0f} px wide) are enough to break half"
            told += f" {faint} of the images that the faintest spot breaks." if told else f"{model}: {faint}."
        return told.strip() or f"{model} was never broken by a spot of light."

    def told_cell(self, one: Glare) -> str:
        """A grid's worst cell for people."""
        cells = math.isqrt(len(one.cells))
        row, column = divmod(one.worst_cell, cells)
        if cells % 2 and (row, column) == (cells // 2, cells // 2):
            return "the middle"
        return f"row {row + 1}, column {column + 1} of {cells}"

    def table(self) -> list[dict[str, Any]]:
        """One flat record a model and grid."""
        records = []
        for one in self.glare.values():
            figures = {"top1": one.top1, "average": one.average, "failing_variants": one.each}
            figures |= {f"at_least_{k}": value for k, value in one.at_least.items()}
            figures |= {f"over_right_{k}": value for k, value in one.over_right.items()}
            records.append(
                {
                    "model": one.model,
                    "operator": one.operator,
                    "images": one.images,
                    "right": one.right,
                    "failing": one.failing,
                    "failing_images": one.failing_images,
                    **{f"{name}_{key}": value for name, each in figures.items() for key, value in asdict(each).items()},
                }
            )
        return records

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain data."""
        told: dict[str, Any] = plain(
            {
                "verdicts": {model: self.verdict(model) for model in self.models},
                "grids": [asdict(one) for one in self.glare.values()],
                "least": [asdict(one) for one in self.least.values()],
                "together": {
                    operator: {"variants": count, "share_by_sigma": shares}
                    for operator, (count, shares) in self.together.items()
                },
            }
        )
        return told

    def _repr_html_(self) -> str:
        """The verdicts and the table of accuracies, for notebooks."""
        verdicts = "".join(f"<p>{html.escape(self.verdict(model))}</p>" for model in self.models)
        rows = ""
        for one in self.glare.values():
            cells = [one.top1, one.average, *one.at_least.values()]
            values = "".join(
                f"<td>{each.value:.1%} <small>[{each.low:.1%}, {each.high:.1%}]</small></td>" for each in cells
            )
            rows += f"<tr><th>{html.escape(one.model)}</th>{values}</tr>"
        ks = next(iter(self.glare.values())).at_least if self.glare else {}
        heads = "".join(f"<th>{head}</th>" for head in ("top-1", "S-average", *(f"S ≥ {k}" for k in ks)))
        return f"{verdicts}<table><caption>accuracy, with 95 % intervals</caption><tr><th></th>{heads}</tr>{rows}</table>"


def plain(value: Any) -> Any:
    """Data with None for what can't be told: NaN and infinity are no JSON."""
    if isinstance(value, Mapping):
        return {str(key): plain(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


_SPOTS = "(select * from rows where lens = 'highlights' and operator != 'highlight:least')"
# an image of a model under a grid: is its original right, and how many of its variants fail
_IMAGES = f"""
    (select model, operator, image, bool_or(correct) filter (level = 0) as is_right,
            count(*) filter (level > 0) as variants, avg(correct::int) filter (level > 0) as kept,
            count(*) filter (level > 0 and not correct) as failing
     from {_SPOTS} group by all)
"""
_GLARE = f"""
    select model, operator, count(*), count(*) filter (is_right), max(variants), avg(kept), stddev_samp(kept),
           sum(failing) filter (is_right), count(*) filter (is_right and failing > 0),
           avg(failing) filter (is_right and failing > 0), stddev_samp(failing) filter (is_right and failing > 0)
    from {_IMAGES} group by all order by all
"""
_AT_LEAST = f"""
    select model, operator, k, count(*) filter (is_right and failing < k) from {_IMAGES}, (select unnest($ks) as k)
    group by all
"""
# the variants of images whose original is right, and whether the spot's centre lies in a box of the object's class
_VARIANTS = f"""
    (select model, operator, image, level, cell, not correct as failed, (level - 1) // $cells as size,
            list_bool_or(list_transform(own_boxes, lambda box:
                spot_x + 0.5 between box[1] and box[3] and spot_y + 0.5 between box[2] and box[4])) as in_box
     from {_SPOTS} join {_IMAGES} using (model, operator, image)
     left join (
        select image, any_value(case when object is null then boxes else list_filter(
            boxes, lambda box, place: box_labels[place] = label) end) as own_boxes
        from samples where boxes is not null and len(boxes) > 0 group by all) using (image)
     where level > 0 and is_right)
"""
_MOMENTS = """sum(a), sum(b), sum(a * a), sum(a * b), sum(b * b), count(*)"""
_SIZES = f"""
    select model, operator, size, sum(a), {_MOMENTS}, avg(rate), stddev_samp(rate) from (
        select *, sum(a) over (partition by model, operator, image) as b from (
            select model, operator, image, size, count(*) filter (failed) as a, avg(failed::int) as rate
            from {_VARIANTS} group by all))
    group by all order by all
"""
_CELLS = f"select model, operator, cell, avg(failed::int) from {_VARIANTS} group by all order by all"
_PLACE = f"""
    select model, operator, what, {_MOMENTS} from (
        select model, operator, image, 'failing' as what, count(*) filter (failed and in_box) as a,
               count(*) filter (failed) as b from {_VARIANTS} where in_box is not null group by all
        union all select model, operator, image, 'all', count(*) filter (in_box), count(*)
            from {_VARIANTS} where in_box is not null group by all
        union all select model, operator, image, 'inside', count(*) filter (failed and in_box), count(*) filter (in_box)
            from {_VARIANTS} where in_box is not null group by all
        union all select model, operator, image, 'outside', count(*) filter (failed and not in_box),
            count(*) filter (not in_box) from {_VARIANTS} where in_box is not null group by all)
    group by all
"""
_TOGETHER = f"""
    select operator, size, count(*) from (
        select distinct operator, image, level, size from {_VARIANTS} where failed)
    group by all order by all
"""
_LEAST = """
    select model, count(*) filter (status = 'broken'), count(*) filter (status = 'survived'),
           count(*) filter (status = 'skipped'), count(*) filter (status = 'failed'),
           avg(255 * mae) filter (status = 'broken'), stddev_samp(255 * mae) filter (status = 'broken'),
           median(255 * mae) filter (status = 'broken'), median(sigma) filter (status = 'broken'),
           avg(queries) filter (status != 'skipped')
    from rows where lens = 'highlights' and operator = 'highlight:least' group by all order by all
"""
# of each image the failing variant with the least light, and then the images that need the least
_SPOTTED = f"""
    select model, operator, image, level, spot_x, spot_y, sigma, strength, 255 * mae, label, prediction, confidence, in_box
    from (select *, row_number() over (partition by model, operator, image, in_box order by mae, level) as turn
          from {_SPOTS} join (select model, operator, image, level, in_box from {_VARIANTS} where failed)
               using (model, operator, image, level))
    where turn = 1
    qualify row_number() over (partition by model, operator, in_box order by mae, image) <= $most
    order by model, operator, mae
"""
_FAINTEST = """
    select model, operator, image, 0, spot_x, spot_y, sigma, strength, 255 * mae, label, prediction, confidence, null
    from rows where lens = 'highlights' and operator = 'highlight:least' and status = 'broken'
    qualify row_number() over (partition by model order by mae, image) <= $most
    order by model, mae
"""


def highlights(
    connection: duckdb.DuckDBPyConnection, options: Mapping[str, Any], at_least: tuple[int, ...] = AT_LEAST
) -> Highlights:
    """Compute everything from the tables `rows` and `samples`; `options` are the lens's."""

    def ask(sql: str, **given: Any) -> list[tuple[Any, ...]]:
        used = {name: value for name, value in {"cells": options["cells"] ** 2, **given}.items() if f"${name}" in sql}
        return connection.execute(sql, used).fetchall()

    names = [_sigma(value, options) for value in options["sigmas"]]
    at = {(model, operator, k): kept for model, operator, k, kept in ask(_AT_LEAST, ks=list(at_least))}
    sizes: dict[tuple[str, str], list[BySize]] = {}
    for model, operator, size, failures, *rest in ask(_SIZES):
        share, rate = ratio(*rest[:6]), mean(rest[6], rest[7], rest[5], most=1)
        sizes.setdefault((model, operator), []).append(BySize(names[size], failures, share, rate))
    cells: dict[tuple[str, str], list[float]] = {}
    for model, operator, _, rate in ask(_CELLS):
        cells.setdefault((model, operator), []).append(rate)
    places: dict[tuple[str, str], dict[str, Any]] = {}
    for model, operator, what, *moments in ask(_PLACE):
        places.setdefault((model, operator), {"images": moments[5]})[what] = ratio(*moments)
    glare = {}
    for model, operator, images, right, variants, kept, spread, failing, failing_images, each, deviation in ask(_GLARE):
        place = places.get((model, operator))
        glare[model, operator] = Glare(
            model=model,
            operator=operator,
            images=images,
            right=right,
            variants=variants,
            top1=proportion(right, images),
            average=mean(kept, spread, images, most=1),
            at_least={k: proportion(at[model, operator, k], images) for k in at_least},
            over_right={k: proportion(at[model, operator, k], right) for k in at_least},
            failing=failing or 0,
            failing_images=failing_images,
            each=mean(math.nan if each is None else each, deviation, failing_images),
            sizes=sizes.get((model, operator), []),
            cells=cells.get((model, operator), []),
            place=None if place is None else ByPlace(**place),
        )
    least = {model: _least(model, *rest) for model, *rest in ask(_LEAST)}
    if not glare and not least:
        raise RunError("the run has no rows yet; finish it with the command that began it")
    return Highlights(glare, least, _together(ask(_TOGETHER), names), options)


def _least(
    model: str, broken: int, survived: int, skipped: int, failed: int, value: float | None, spread: float | None, *rest: Any
) -> LeastLight:
    middle, sigma, queries = rest
    return LeastLight(
        model=model,
        broken=broken,
        survived=survived,
        skipped=skipped,
        failed=failed,
        light=mean(math.nan if value is None else value, spread, broken),
        middle=middle,
        sigma=sigma,
        queries=queries or 0.0,
        survived_share=proportion(survived, broken + survived),
    )


def _together(found: list[tuple[Any, ...]], names: list[str]) -> dict[str, tuple[int, dict[str, float]]]:
    counts: dict[str, dict[str, int]] = {}
    for operator, size, count in found:
        counts.setdefault(operator, {})[names[size]] = count
    return {
        operator: (sum(own.values()), {name: count / sum(own.values()) for name, count in own.items()})
        for operator, own in counts.items()
    }


def _sigma(value: float, options: Mapping[str, Any]) -> str:
    return f"{100 * value:g} %" if options["relative"] else f"{value:g} px"


def spotted(connection: duckdb.DuckDBPyConnection, most: int, options: Mapping[str, Any]) -> list[Spotted]:
    """For each model the images that the least light breaks: of the grid, inside and outside of boxes, and of a search."""
    given = {"cells": options["cells"] ** 2, "most": most}
    found = connection.execute(_SPOTTED, given).fetchall()
    found += connection.execute(_FAINTEST, {"most": most}).fetchall()
    return [
        Spotted(model, operator, image, level, (x, y, sigma, strength), *rest)
        for model, operator, image, level, x, y, sigma, strength, *rest in found
    ]
