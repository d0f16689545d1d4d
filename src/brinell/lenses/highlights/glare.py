"""What a grid of spots does to each model, from rows: accuracy, failures by size of the spot, and where they lie."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from brinell.lenses.highlights.sizes import SHORT_SIDE, is_scaled
from brinell.runs.names import MEDIAN
from brinell.runs.ranking import find_extremes
from brinell.runs.run import Run
from brinell.runs.statistics import Estimate, mean, proportion, ratio
from brinell.runs.weights import WEIGHT, weighted_mean

LEAST = "highlight:least"  # the search; every other operator is a grid
Key = tuple[str, str]  # model and operator


@dataclass(frozen=True)
class BySize:
    """Spots of one sigma: their share of all failures, and the share of them that breaks an image (`rate`)."""

    sigma: str
    failures: int
    share: Estimate
    rate: Estimate


@dataclass(frozen=True)
class ByLocation:
    """Spots inside and outside the object's box, for images that are right when clean and have a box.

    `failing` is the share of failures whose spot lies inside, `all` the share of all spots that do: if the position did not
    matter, both would be equal. `inside` and `outside` are the shares of spots there that break the model.
    """

    images: int
    failing: Estimate
    all: Estimate
    inside: Estimate
    outside: Estimate


@dataclass(frozen=True)
class Glare:
    """One model under a grid of spots.

    `top1` is the accuracy on originals, `average` the accuracy on all variants. `at_least[k]` is the accuracy if an image
    counts as failed once k of its variants fail, or the original does; `over_right[k]` is the same over the `right` images,
    those whose original is right. Failures are counted over the `right` images: `failing` variants of `failing_images`
    images, `failing_per_image` of those; `broken` is the share of these images that some spot breaks, `breaking` the
    share of spots that do. `cells` holds, row by row, the share of spots in a cell that break the model; `worst_cell` is
    the index of the cell that clearly breaks it most often, if there is one. Where only a sample of each image's spots was
    queried (`sampled`), what depends on all of an image's spots is NaN: `at_least`, `over_right`, `failing_per_image` and
    `broken`.
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
    failing_per_image: Estimate
    sizes: list[BySize]
    cells: list[float]
    location: ByLocation | None
    breaking: Estimate
    worst_cell: int | None = None
    sampled: bool = False

    @property
    def broken(self) -> Estimate:
        """Share of the right images that some spot breaks."""
        return proportion(0, 0) if self.sampled else proportion(self.failing_images, self.right)

    def describe_worst_cell(self) -> str:
        """Return the position of the worst cell for people; empty if there is none."""
        if self.worst_cell is None:
            return ""
        cells = math.isqrt(len(self.cells))
        row, column = divmod(self.worst_cell, cells)
        if cells % 2 and (row, column) == (cells // 2, cells // 2):
            return "the centre"
        return f"row {row + 1}, column {column + 1} of {cells}"


@dataclass(frozen=True)
class AnyModel:
    """The variants that break at least one of the models, as the paper's collection has them, and their sizes."""

    variants: int
    share_by_sigma: dict[str, float]


_SPOTS = f"(select * from rows where lens = 'highlights' and operator != '{LEAST}')"
# per image: whether its original is right, and how many of its variants fail
_IMAGES = f"""
    (select model, operator, image, bool_or(correct) filter (level = 0) as is_right,
            count(*) filter (level > 0) as variants, avg(correct::int) filter (level > 0) as kept,
            count(*) filter (level > 0 and not correct) as failing
     from {_SPOTS} group by all)
"""
_GLARE = f"""
    select model, operator, count(*), count(*) filter (is_right), max(variants), avg(kept), stddev_samp(kept),
           sum(failing) filter (is_right), count(*) filter (is_right and failing > 0),
           avg(failing) filter (is_right and failing > 0), stddev_samp(failing) filter (is_right and failing > 0),
           avg(1 - kept) filter (is_right), stddev_samp(1 - kept) filter (is_right), count(kept),
           count(kept) filter (is_right)
    from {_IMAGES} group by all order by all
"""
_AT_LEAST = f"""
    select model, operator, k, count(*) filter (is_right and failing < k) from {_IMAGES}, (select unnest($ks) as k)
    group by all
"""
# the variants of images whose original is right, and whether the spot's centre lies in a box of the object's class
_VARIANTS = f"""
    (select model, operator, image, level, cell, inclusion, not correct as failed, (level - 1) // $cells as size,
            list_bool_or(list_transform(own_boxes, lambda box:
                spot_x + 0.5 between box[1] and box[3] and spot_y + 0.5 between box[2] and box[4])) as in_box
     from {_SPOTS} join {_IMAGES} using (model, operator, image)
     left join (
        select image, any_value(case when object is null then boxes else list_filter(
            boxes, lambda box, place: box_labels[place] = label) end) as own_boxes
        from samples where boxes is not null and len(boxes) > 0 group by all) using (image)
     where level > 0 and is_right)
"""
_BOXED = "select bool_or(boxes is not null and len(boxes) > 0) from samples"
_SIDES = "select distinct least(height, width) from samples where problem is null"
_MOMENTS = """sum(a), sum(b), sum(a * a), sum(a * b), sum(b * b), count(*)"""
_SIZES = f"""
    select model, operator, size, sum(failures), {_MOMENTS}, avg(rate), stddev_samp(rate), count(rate) from (
        select *, sum(a) over (partition by model, operator, image) as b from (
            select model, operator, image, size, count(*) filter (failed) as failures,
                   coalesce(sum({WEIGHT}) filter (failed), 0) as a, avg(failed::int) as rate
            from (select distinct model, operator, image from {_VARIANTS})
            join (select distinct size from {_VARIANTS}) on true
            left join {_VARIANTS} using (model, operator, image, size) group by all))
    group by all order by all
"""
_CELLS = f"select model, operator, cell, {weighted_mean('failed::int')} from {_VARIANTS} group by all order by all"
_LOCATIONS = f"""
    select model, operator, what, {_MOMENTS} from (
        select model, operator, image, what, coalesce(sum({WEIGHT}) filter (part and whole), 0) as a,
               coalesce(sum({WEIGHT}) filter (whole), 0) as b
        from (select *, unnest([
                  {{'what': 'failing', 'part': in_box, 'whole': failed}}, {{'what': 'all', 'part': in_box, 'whole': true}},
                  {{'what': 'inside', 'part': failed, 'whole': in_box}},
                  {{'what': 'outside', 'part': failed, 'whole': not in_box}}], recursive := true)
              from {_VARIANTS} where in_box is not null)
        group by all)
    group by all
"""
_ANY_MODEL = f"""
    select operator, size, count(*) from (
        select distinct operator, image, level, size from {_VARIANTS} where failed)
    group by all order by all
"""
# per image the failing variant with the least light, then the images that need the least, and the median one
_FAINTEST = f"""
    select model, operator, image, level, spot_x, spot_y, sigma, strength, 255 * mae, label, prediction, confidence, in_box,
           case when number > $most then '{MEDIAN}' else '' end
    from (select *, row_number() over (partition by model, operator, in_box order by mae, image) as number,
                 row_number() over (partition by model, operator order by mae, image, in_box) as place,
                 count(*) over (partition by model, operator) as failures
          from (select *, row_number() over (partition by model, operator, image, in_box order by mae, level) as turn
                from {_SPOTS} join (select model, operator, image, level, in_box from {_VARIANTS} where failed)
                     using (model, operator, image, level))
          where turn = 1)
    where number <= $most or place = (failures + 1) // 2
    order by model, operator, mae, image, in_box
"""
_CELLS_BY_IMAGE = f"""
    select model || chr(10) || operator as owner, cell as name, image, avg(failed::int) as value
    from {_VARIANTS} group by all
"""


def read_glare(run: Run, options: Mapping[str, Any], at_least: tuple[int, ...]) -> dict[Key, Glare]:
    """Return the results of each model under each grid."""
    kept = {tuple(key): count for *key, count in run.query(_AT_LEAST, {"ks": list(at_least)})}
    sizes, cells, locations = _read_sizes(run, options), _read_cells(run, options), _read_locations(run, options)
    worst = _find_worst_cells(run, options)
    found = {}
    for model, operator, images, right, variants, average, spread, failing, *rest in run.query(_GLARE):
        key, (failing_images, per_image, deviation, breaking, breaking_spread, *queried) = (model, operator), rest
        nothing = proportion(0, 0)
        found[key] = Glare(
            model=model,
            operator=operator,
            images=images,
            right=right,
            variants=variants,
            top1=proportion(right, images),
            average=mean(math.nan if average is None else average, spread, queried[0], most=1),
            at_least={k: nothing if run.sampled else proportion(kept[model, operator, k], images) for k in at_least},
            over_right={k: nothing if run.sampled else proportion(kept[model, operator, k], right) for k in at_least},
            failing=failing or 0,
            failing_images=failing_images,
            failing_per_image=nothing
            if run.sampled
            else mean(math.nan if per_image is None else per_image, deviation, failing_images),
            sizes=sizes.get(key, []),
            cells=cells.get(key, []),
            location=locations.get(key),
            breaking=mean(math.nan if breaking is None else breaking, breaking_spread, queried[1], most=1),
            worst_cell=worst.get(key),
            sampled=run.sampled,
        )
    return found


def read_any_model(run: Run, options: Mapping[str, Any]) -> dict[str, AnyModel]:
    """Return, by grid, the variants that break at least one of the models; a sample doesn't give their number."""
    if run.sampled:
        return {}
    names, counts = sigma_names(run, options), dict[str, dict[str, int]]()
    for operator, size, count in run.query(_ANY_MODEL, _cells_of(options)):
        counts.setdefault(operator, {})[names[size]] = count
    return {
        operator: AnyModel(sum(own.values()), {name: count / sum(own.values()) for name, count in own.items()})
        for operator, own in counts.items()
    }


def read_faintest_failures(run: Run, options: Mapping[str, Any], most: int) -> list[tuple[Any, ...]]:
    """Return, per model and grid, the images that break with the least light, inside and outside of boxes.

    Columns: model, operator, image, level, the spot's four parameters, light, label, prediction, confidence, in_box, tag.
    """
    return run.query(_FAINTEST, {**_cells_of(options), "most": most})


def _read_sizes(run: Run, options: Mapping[str, Any]) -> dict[Key, list[BySize]]:
    names, sizes = sigma_names(run, options), dict[Key, list[BySize]]()
    for model, operator, size, failures, *moments, rate, spread, count in run.query(_SIZES, _cells_of(options)):
        one = BySize(
            names[size], failures, ratio(*moments[:5]), mean(math.nan if rate is None else rate, spread, count, most=1)
        )
        sizes.setdefault((model, operator), []).append(one)
    return sizes


def _read_cells(run: Run, options: Mapping[str, Any]) -> dict[Key, list[float]]:
    cells: dict[Key, list[float]] = {}
    for model, operator, _, rate in run.query(_CELLS, _cells_of(options)):
        cells.setdefault((model, operator), []).append(rate)
    return cells


def _find_worst_cells(run: Run, options: Mapping[str, Any]) -> dict[Key, int]:
    """Return the cell whose spots clearly break the model more often than those of any other cell, where there is one."""
    found = find_extremes(run, _CELLS_BY_IMAGE, _cells_of(options))
    worst = {}
    for owner, ends in found.items():
        model, operator = owner.split("\n")
        if len(ends.highest) == 1:
            worst[model, operator] = int(ends.highest[0])
    return worst


def _read_locations(run: Run, options: Mapping[str, Any]) -> dict[Key, ByLocation]:
    shares: dict[Key, dict[str, Any]] = {}
    if not run.query(_BOXED)[0][0]:
        return {}
    for model, operator, what, *moments in run.query(_LOCATIONS, _cells_of(options)):
        shares.setdefault((model, operator), {"images": moments[5]})[what] = ratio(*moments[:5])
    return {key: ByLocation(**own) for key, own in shares.items()}


def _cells_of(options: Mapping[str, Any]) -> dict[str, Any]:
    return {"cells": options["cells"] ** 2}


def sigma_names(run: Run, options: Mapping[str, Any]) -> list[str]:
    """Return the sizes of spots for people; on small images the default sizes are shares of the shorter side."""
    sigmas, relative = options["sigmas"], options["relative"]
    scaled = {is_scaled(sigmas, relative, side) for (side,) in run.query(_SIDES)}
    given = [f"{100 * sigma:g} %" if relative else f"{sigma:g} px" for sigma in sigmas]
    shares = [f"{100 * sigma / SHORT_SIDE:.2g} %" for sigma in sigmas]
    if scaled == {False, True}:
        return [f"{pixels} or {share}" for pixels, share in zip(given, shares, strict=True)]
    return shares if True in scaled else given
