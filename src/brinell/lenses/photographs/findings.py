"""What the photographs lens found: how many scenes a model loses in a photographed variant."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from brinell.errors import RunError
from brinell.lenses.reader import Figures, PrintedFindings, Reader, parameter_list
from brinell.report.exhibits import Exhibit
from brinell.runs.hardness import Scale
from brinell.runs.plain import to_plain
from brinell.runs.run import Run
from brinell.runs.statistics import Estimate, mean, proportion
from brinell.runs.words import format_share, note_few

AT_LEAST = (1, 2)  # the paper's S ≥ 1 and S ≥ 2: it has five photographs of a scene
OPERATOR = "photograph:given"
SHOWN = 6  # scenes in the report for each model


@dataclass(frozen=True)
class Scenes:
    """One model on scenes with an original and variants.

    `top1` is the accuracy on originals, `average` the mean accuracy on a scene's variants. `at_least[k]` is the accuracy if
    a scene counts as failed once k of its variants fail, or its original does; `over_right[k]` is the same over the `right`
    scenes, those whose original is right. Failures are counted over the `right` scenes: `failing` variants of
    `failing_scenes` scenes, `failing_per_scene` of those.
    """

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
    failing_per_scene: Estimate


@dataclass(frozen=True, repr=False)
class PhotographFindings(PrintedFindings):
    """Everything that the photographs lens found, by model. `unpaired` photographs have no original, or no variant."""

    scenes: dict[str, Scenes]
    unpaired: int

    @property
    def models(self) -> list[str]:
        """Models, the most robust first."""
        return sorted(self.scenes, key=lambda model: -round(self.scenes[model].average.value, 9))

    @property
    def operators(self) -> list[str]:
        """The only operator."""
        return [OPERATOR]

    def verdict(self, model: str) -> str:
        """Return the finding about a model in a sentence or two."""
        one = self.scenes[model]
        originals = "1 original" if one.scenes == 1 else f"{one.scenes} originals"
        right = f"{format_share(one.top1)} of {originals} and on {format_share(one.average)} of the variants"
        few = note_few(one.scenes, "scene")
        if not one.right:
            return f"{model} is right on {right}.{few}"
        lost = f"{format_share(proportion(one.failing_scenes, one.right))} of the scenes whose original is right"
        return f"{model} is right on {right}; it loses {lost} in at least one variant.{few}"

    def table(self) -> list[dict[str, Any]]:
        """Return one record per model."""
        return [to_plain(one) for one in self.scenes.values()]

    def figures(self) -> Iterator[Figures]:
        """Yield the figures of each model."""
        for model, one in self.scenes.items():
            yield model, OPERATOR, 0, one

    def to_json(self) -> dict[str, Any]:
        """Return everything as plain data."""
        verdicts = {model: self.verdict(model) for model in self.models}
        return {"verdicts": verdicts, "scenes": self.table(), "unpaired": self.unpaired}


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
_UNPAIRED = """
    select count(*) from samples where problem is null and (original is null or original not in (
        select original from samples where problem is null and original is not null group by all
        having count(variant) > 0 and count(*) > count(variant)))
"""


def find(run: Run, options: Mapping[str, Any], summary: Mapping[str, Any]) -> PhotographFindings:
    """Compute the findings from a run's rows. `summary["at_least"]` are the k of S ≥ k."""
    at_least = tuple(summary.get("at_least") or AT_LEAST)
    found = {row[0]: _scenes(row, at_least) for row in run.query(_FIGURES)}
    if not found:
        raise RunError(
            "no original has variants; say which photographs belong together with data.pattern, or with the columns "
            "original and variant of a manifest"
        )
    return PhotographFindings(found, run.query(_UNPAIRED)[0][0])


def _scenes(row: tuple[Any, ...], at_least: tuple[int, ...]) -> Scenes:
    model, scenes, right, variants, average, spread, failing, failing_scenes, per_scene, deviation, counts = row
    kept = {k: sum(count is not None and count < k for count in counts) for k in at_least}
    return Scenes(
        model=model,
        scenes=scenes,
        right=right,
        variants=variants,
        top1=proportion(right, scenes),
        average=mean(average, spread, scenes, most=1),
        at_least={k: proportion(kept[k], scenes) for k in at_least},
        over_right={k: proportion(kept[k], right) for k in at_least},
        failing=failing or 0,
        failing_scenes=failing_scenes,
        failing_per_scene=mean(math.nan if per_scene is None else per_scene, deviation, failing_scenes),
    )


# of each scene whose original is right, the variant that is wrong with the most confidence
_FAILING = """
    with photographs as (
        select model, samples.original, samples.variant, image, rows.correct, rows.label, prediction, confidence
        from rows join samples using (image) where lens = 'photographs' and samples.original is not null),
    scenes as (
        select model, original, changed.variant, changed.image, base.image as base, changed.label, changed.prediction,
               changed.confidence, base.confidence as clean_confidence
        from photographs changed join photographs base using (model, original)
        where changed.variant is not null and not changed.correct and base.variant is null and base.correct
        qualify row_number() over (partition by model, original order by changed.confidence desc, changed.image) = 1)
    select * from scenes qualify row_number() over (partition by model order by confidence desc, image) <= $most
    order by model, confidence desc, image
"""


def find_exhibits(run: Run, options: Mapping[str, Any]) -> list[Exhibit]:
    """Return, per model, variants that are wrong, of scenes whose original is right: the most confident answers first."""
    return [
        Exhibit(
            lens="photographs",
            model=model,
            operator=OPERATOR,
            image=image,
            parameters=(0.0,),
            label=label,
            prediction=prediction,
            confidence=confidence,
            clean_confidence=clean_confidence,
            caption=f"{original}, variant {variant}",
            original=base,
        )
        for model, original, variant, image, base, label, prediction, confidence, clean_confidence in run.query(
            _FAILING, {"most": SHOWN}
        )
    ]


HARDNESS = Scale(
    what="photographed variants",
    meaning="Of the scenes whose original the model gets right: the share of variants that it gets right, too.",
    sql=f"select model, '{OPERATOR}' as operator, original as image, kept as value from {_SCENES} where is_right",
)

READER = Reader(
    columns={},
    find=find,
    changed="true",
    parameters=parameter_list(),
    hardness=HARDNESS,
    compare_with_original=True,
    exhibits=find_exhibits,
)
