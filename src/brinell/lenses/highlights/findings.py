"""What the highlights lens found: how many images a spot of light breaks, which sizes do, and where."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from brinell.errors import RunError
from brinell.lenses.highlights.glare import (
    LEAST,
    AnyModel,
    Glare,
    read_any_model,
    read_faintest_failures,
    read_glare,
)
from brinell.lenses.highlights.light import LeastLight, read_faintest_breaks, read_least_light
from brinell.lenses.reader import ANSWER, Failures, Figures, Measure, PrintedFindings, Reader, parameter_list
from brinell.report.exhibits import Exhibit, clean_confidences
from brinell.runs.hardness import Scale
from brinell.runs.plain import to_plain
from brinell.runs.run import Run
from brinell.runs.schema import Schema
from brinell.runs.weights import weighted_mean
from brinell.runs.words import format_mean, format_share, note_few

AT_LEAST = (1, 5)  # the paper's S ≥ 1 and S ≥ 5
SHOWN = 3  # images in the report for each model and operator, inside and outside of boxes
COLUMNS: Schema = {
    # centre of the spot, in pixels of the original
    "spot_x": "float64",
    "spot_y": "float64",
    "sigma": "float64",  # size of the spot, in pixels of the original
    "strength": "float64",  # peak, as a multiple of the colour
    "cell": "int16",  # of the grid, row by row from 0
}
PARAMETERS = parameter_list("spot_x", "spot_y", "sigma", "strength")


@dataclass(frozen=True, repr=False)
class HighlightFindings(PrintedFindings):
    """Everything that the highlights lens found.

    `glare` holds the results on grids by model and operator, `least` those of the search by model; `any_model` counts, by
    grid, the variants that break at least one model.
    """

    glare: dict[tuple[str, str], Glare]
    least: dict[str, LeastLight]
    any_model: dict[str, AnyModel]
    titles: Mapping[str, str] = field(default_factory=dict)

    @property
    def models(self) -> list[str]:
        """Models, the most robust first."""
        scores: dict[str, float] = {model: -one.survived_share.value for model, one in self.least.items()}
        scores |= {model: 1 - one.average.value for (model, _), one in self.glare.items()}
        return sorted(scores, key=lambda model: (math.isnan(scores[model]), round(scores[model], 9)))

    @property
    def operators(self) -> list[str]:
        """The grids, then the search if it was part of the run."""
        return self.grids + ([LEAST] if self.least else [])

    @property
    def grids(self) -> list[str]:
        """The grids alone."""
        return list(dict.fromkeys(operator for _, operator in self.glare))

    def of_grid(self, operator: str | None = None) -> list[Glare]:
        """Return every model's results on a grid (default: the first), the most robust model first."""
        operator = operator or next(iter(self.grids), "")
        return [self.glare[model, operator] for model in self.models if (model, operator) in self.glare]

    def verdict(self, model: str) -> str:
        """Return the finding about a model in a sentence or two."""
        sentences = []
        one = next((glare for (owner, _), glare in self.glare.items() if owner == model), None)
        if one is not None and not one.right:
            sentences.append(f"{model} gets no original right, so spots of light can't break it.")
        elif one is not None:
            where = f", most often in {one.describe_worst_cell()}" if one.describe_worst_cell() else ""
            right = f"{model} is right on {format_share(one.top1)} of the originals"
            if one.sampled:
                sentences.append(f"{right}; {format_share(one.breaking)} of all spots of light break those{where}.")
            else:
                sentences.append(
                    f"{right}; a spot of light can break {format_share(one.broken)} of those. "
                    f"{format_share(one.breaking)} of all spots do{where}."
                )
        least = self.least.get(model)
        if least is not None and least.broken:
            sentences.append(
                f"{'The' if sentences else f'{model}: the'} faintest spot that breaks an image adds "
                f"{format_mean(least.light)} grey levels per pixel on average (median σ {_format_sigma(least.sigma)} px)."
            )
        tested = max(0 if one is None else one.images, 0 if least is None else least.broken + least.survived)
        return " ".join(sentences) + note_few(tested) if sentences else f"No spot of light broke {model}."

    def table(self) -> list[dict[str, Any]]:
        """Return one flat record per model and grid."""
        records = []
        for one in self.glare.values():
            figures = {"top1": one.top1, "average": one.average, "failing_per_image": one.failing_per_image}
            figures |= {f"at_least_{k}": value for k, value in one.at_least.items()}
            figures |= {f"over_right_{k}": value for k, value in one.over_right.items()}
            counts = ("model", "operator", "images", "right", "failing", "failing_images")
            record = {name: getattr(one, name) for name in counts}
            record |= {f"{name}_{key}": value for name, each in figures.items() for key, value in asdict(each).items()}
            records.append(record)
        return records

    def figures(self) -> Iterator[Figures]:
        """Yield the figures of each grid and of the search."""
        for one in self.glare.values():
            yield one.model, one.operator, 0, one
            yield one.model, one.operator, 0, {"size": {size.sigma: size for size in one.sizes}}
        for least in self.least.values():
            yield least.model, LEAST, 0, least

    def to_json(self) -> dict[str, Any]:
        """Return everything as plain data."""
        plain: dict[str, Any] = to_plain(
            {
                "verdicts": {model: self.verdict(model) for model in self.models},
                "grids": list(self.glare.values()),
                "least": list(self.least.values()),
                "any_model": self.any_model,
            }
        )
        return plain


def _format_sigma(sigma: float | None) -> str:
    """Return a size in pixels; of small images with a second digit."""
    return "–" if sigma is None else f"{sigma:.0f}" if sigma >= 10 else f"{sigma:.2g}"


def find(run: Run, options: Mapping[str, Any], summary: Mapping[str, Any]) -> HighlightFindings:
    """Compute the findings from a run's rows. `summary["at_least"]` are the k of S ≥ k."""
    glare = read_glare(run, options, tuple(summary.get("at_least") or AT_LEAST))
    least = read_least_light(run)
    if not glare and not least:
        raise RunError(f"the run in {run.folder} has no rows of the highlights lens yet; rerun its command to finish it")
    operators = [*dict.fromkeys(operator for _, operator in glare), LEAST]
    titles = {operator: run.title(operator) for operator in operators}
    return HighlightFindings(glare, least, read_any_model(run, options), titles)


def find_exhibits(run: Run, options: Mapping[str, Any]) -> list[Exhibit]:
    """Return, per model, the images that break with the least light: on grids, on and off the object, and in the search."""
    clean = clean_confidences(run)
    found = [] if run.sampled else read_faintest_failures(run, options, SHOWN)  # a sample may lack an image's faintest
    found += read_faintest_breaks(run, SHOWN)
    exhibits = []
    for model, operator, image, level, x, y, sigma, strength, light, label, prediction, confidence, in_box, tag in found:
        where = "" if in_box is None else ", on the object" if in_box else ", off the object"
        exhibits.append(
            Exhibit(
                lens="highlights",
                model=model,
                operator=operator,
                image=image,
                parameters=(x, y, sigma, strength),
                label=label,
                prediction=prediction,
                confidence=confidence,
                clean_confidence=clean[model, image],
                caption=f"{2 * sigma:.3g} px wide{where}",
                level=level,
                detail=f"σ {sigma:.3g} px, {light:.2g} grey levels per pixel",
                tag=tag,
            )
        )
    return exhibits


def _select_failures(options: Mapping[str, Any]) -> str:
    """Return the SQL for all spots that break; a spot's intensity is its light as a share of the largest spot's.

    The light of a spot, summed over the image, is in proportion to its strength and to the square of its sigma.
    """
    largest, side = max(options["sigmas"]), "least(height, width)" if options["relative"] else "1"
    intensity = f"least(100, 100 * strength / {options['strength']} * (sigma / ({largest} * {side})) ** 2)"
    return f"""
        select model, operator, image, label, {PARAMETERS}, 0, null, {intensity}, null, {ANSWER}
        from rows join (select distinct image, height, width from clean) using (image)
        where lens = 'highlights' and spot_x is not null and (status = 'broken' or (level > 0 and not correct and
             (model, operator, image, label) in (
                 select (model, operator, image, label) from rows where lens = 'highlights' and level = 0 and correct)))
    """


_ON_GRID = f"from rows where lens = 'highlights' and operator != '{LEAST}' and level > 0"
HARDNESS = Scale(
    what="spots of light",
    among="kinds of light",
    meaning="Of the images that the model gets right when clean: the share of all spots of light under which it is still "
    "right. In a run with the search alone: the share of images that no spot broke.",
    sql=f"""
        select model, operator, image, {weighted_mean("correct::int")} as value from (select * {_ON_GRID})
        semi join (select model, operator, image from rows where lens = 'highlights' and level = 0 and correct)
             using (model, operator, image) group by all
        union all
        select model, operator, image, (status = 'survived')::int from rows
        where lens = 'highlights' and operator = '{LEAST}' and status in ('broken', 'survived')
              and not exists (select 1 {_ON_GRID})
    """,
)

READER = Reader(
    columns=COLUMNS,
    find=find,
    changed="coalesce(level, 1) > 0 and (status is null or status = 'broken')",
    parameters=PARAMETERS,
    cells=lambda operator: None if operator == LEAST else "spots of light",
    order=("changed", "image", "level"),
    measures=(
        Measure(
            name="glare",
            lens="highlights",
            what="share of spots of light under which the answer is right",
            better="higher",
            unit="points",
            sql="""select model, operator, image, avg(correct::int) as value from rows
                   where lens = 'highlights' and level > 0 group by all""",
        ),
    ),
    hardness=HARDNESS,
    # all models are queried on the same grid, but the search finds different spots for each
    failures=Failures(_select_failures, parameters="spot", complete=lambda operator: operator != LEAST),
    exhibits=find_exhibits,
    maps=f"{__package__}.answer_maps:read_answer_maps",
)
