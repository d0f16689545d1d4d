"""How robust a model is over all operators: the figures that benchmarks of corruptions report, with their intervals.

The corruption error CE of ImageNet-C (Hendrycks and Dietterich, ICLR 2019) is a model's error, summed over the five
severities of a corruption, relative to AlexNet's; mCE is its mean over 15 corruptions. The relative CE counts what is lost
against clean images. Both are means over images of one number per image, and so have intervals like any mean.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from brinell.lenses.profile.calibration import Calibration
from brinell.lenses.profile.replicates import UNBOUNDED, replicate
from brinell.lenses.reader import AVERAGE, Figures, Measure
from brinell.runs.quantiles import normal_quantile
from brinell.runs.run import Run
from brinell.runs.statistics import CONFIDENCE, Estimate, mean

SEVERITIES = 5
# AlexNet's top-1 error on ImageNet-C, the mean over five severities
ALEXNET = {
    "gaussian_noise:imagenet_c": 0.886428,
    "shot_noise:imagenet_c": 0.894468,
    "impulse_noise:imagenet_c": 0.922640,
    "defocus_blur:imagenet_c": 0.819880,
    "glass_blur:imagenet_c": 0.826268,
    "motion_blur:imagenet_c": 0.785948,
    "zoom_blur:imagenet_c": 0.798360,
    "snow:imagenet_c": 0.866816,
    "frost:imagenet_c": 0.826572,
    "fog:imagenet_c": 0.819324,
    "brightness:imagenet_c": 0.564592,
    "contrast:imagenet_c": 0.853204,
    "elastic_transform:imagenet_c": 0.646056,
    "pixelate:imagenet_c": 0.717840,
    "jpeg_compression:imagenet_c": 0.606500,
}
ALEXNET_CLEAN = 0.435  # its published error on clean images
# figures whose intervals come from the folds of the images
REPLICATED = ("ece_clean", "ece", "brier", "nll", "map_clean", "mpc", "rpc", "miou_clean", "miou")

_ERRORS = f"""
    select model, operator, image, sum((not correct)::int) filter (level > 0) / ({SEVERITIES} * error) as value,
           (sum((not correct)::int) filter (level > 0) - {SEVERITIES} * sum((not correct)::int) filter (level = 0))
           / ({SEVERITIES} * (error - {ALEXNET_CLEAN})) as relative
    from rows join (values {", ".join(f"('{name}', {error})" for name, error in ALEXNET.items())}) as alexnet(operator,
    error)
         using (operator)
    where lens = 'profile' and level <= {SEVERITIES} group by model, operator, image, error
    having count(*) = {SEVERITIES + 1}
"""
_CORRUPTION_ERRORS = f"select model, operator, avg(value), stddev_samp(value), count(*) from ({_ERRORS}) group by all"
_MEAN_ERRORS = f"""
    select model, avg(value), stddev_samp(value), avg(relative), stddev_samp(relative), count(*)
    from (select model, image, avg(value) as value, avg(relative) as relative from ({_ERRORS}) group by all
          having count(*) = {len(ALEXNET)})
    group by all
"""
_CHANGED = """
    select model, operator, image, avg(correct::int) filter (level > 0) as kept, min(correct::int) as always,
           avg(correct::int) filter (level = 0) as clean
    from rows where lens = 'profile' and list_contains($operators, operator) group by all
"""
_MEANS = f"""
    select model, avg(kept), stddev_samp(kept), avg(always), stddev_samp(always), count(*)
    from (select model, image, avg(kept) as kept, min(always) as always from ({_CHANGED}) group by all) group by all
"""
_BY_OPERATOR = f"select model, operator, avg(kept), stddev_samp(kept), count(*) from ({_CHANGED}) group by all"
_BY_IMAGE = f"""
    select model, image, avg(kept) as kept, avg(clean) as clean from ({_CHANGED}) group by all order by image, model
"""


@dataclass(frozen=True)
class Robustness:
    """Figures of a model over all operators that are averaged; accuracies are over levels from 1 on.

    `worst` is the accuracy under the most damaging operator, `always` the share of images that are right at every level
    of every operator. `mce` and `relative_mce` are None unless all 15 corruptions were measured at all severities;
    `errors` are the corruption errors of those that were. `mpc` and `rpc` are a detector's mean average precision
    under change and its share of that on clean images, `miou` a segmenter's mean IoU under change. `ece` (also when
    `clean`), `brier` and `nll` are means over operators and levels. `effective` is the accuracy above what a baseline's
    loss lets expect at the model's clean accuracy.
    """

    accuracy: Estimate
    worst_operator: str
    worst: Estimate
    always: Estimate
    mce: Estimate | None = None
    relative_mce: Estimate | None = None
    errors: Mapping[str, Estimate] = field(default_factory=dict)
    ece_clean: Estimate | None = None
    ece: Estimate | None = None
    brier: Estimate | None = None
    nll: Estimate | None = None
    map_clean: Estimate | None = None
    mpc: Estimate | None = None
    rpc: Estimate | None = None
    miou_clean: Estimate | None = None
    miou: Estimate | None = None
    effective: Estimate | None = None
    baseline: str | None = None

    def figures(self) -> dict[str, Any]:
        """Return the figures by name, without those that are missing."""
        named = {"changed_accuracy": self.accuracy, "worst_accuracy": self.worst, "always_right": self.always}
        more = {name: getattr(self, name) for name in ("mce", "relative_mce", *REPLICATED)}
        more["effective_robustness"] = self.effective
        return {**named, **{name: value for name, value in more.items() if value is not None}}


def compute_robustness(run: Run, operators: list[str]) -> dict[str, Robustness]:
    """Return the figures of each model over some operators; the first of several models is the baseline of the others."""
    given = {"operators": operators}
    models, replicated = list(run.models), replicate(run, operators)
    worst: dict[str, tuple[str, Estimate]] = {}
    for model, operator, value, deviation, count in run.query(_BY_OPERATOR, given):
        if value is not None and (model not in worst or value < worst[model][1].value):
            worst[model] = operator, mean(value, deviation, count, most=1)
    errors = _read_errors(run)
    found = {}
    for model, value, deviation, always, spread, count in run.query(_MEANS, given):
        if model in worst:
            own: dict[str, Any] = {
                name: figure.estimate(math.inf if name in UNBOUNDED else 1)
                for name, figure in replicated[model].items()
                if name in REPLICATED
            }
            effective = compare_effective((run, models[0]), (run, model), operators)
            found[model] = Robustness(
                accuracy=mean(value, deviation, count, most=1),
                worst_operator=worst[model][0],
                worst=worst[model][1],
                always=mean(always, spread, count, most=1),
                effective=effective,
                baseline=None if effective is None else models[0],
                **errors.get(model, {}),
                **own,
            )
    return found


def list_figures(robustness: Mapping[str, Robustness], calibration: Sequence[Calibration]) -> Iterator[Figures]:
    """Yield the figures over all operators, corruption errors, and calibration at every level, for a tracking server."""
    for model, found in robustness.items():
        yield model, AVERAGE, 0, found.figures()
        for operator, error in found.errors.items():
            yield model, operator, 0, {"corruption_error": error}
    for one in calibration:
        yield one.model, one.operator, one.level, {"ece": one.ece, "brier": one.brier, "nll": one.nll}


def _read_errors(run: Run) -> dict[str, dict[str, Any]]:
    """Return mCE, relative mCE and the corruption errors of each model that has any."""
    found: dict[str, dict[str, Any]] = {}
    for model, operator, value, deviation, count in run.query(_CORRUPTION_ERRORS):
        found.setdefault(model, {"errors": {}})["errors"][operator] = mean(value, deviation, count)
    for model, value, deviation, relative, spread, count in run.query(_MEAN_ERRORS):
        found[model] |= {"mce": mean(value, deviation, count), "relative_mce": mean(relative, spread, count)}
    return found


def compare_effective(baseline: tuple[Run, str], model: tuple[Run, str], operators: list[str]) -> Estimate | None:
    """Return the effective robustness of a model against a baseline (after Taori et al. 2020); None if it is the baseline.

    A model that loses as much as the baseline, in logits, has none. The interval is over images, by the delta method.
    """
    if (baseline[0].folder, baseline[1]) == (model[0].folder, model[1]):
        return None
    sides = []
    for run, name in (baseline, model):
        found = run.query(_BY_IMAGE, {"operators": operators})
        own = {image: (kept, clean) for owner, image, kept, clean in found if owner == name}
        sides.append({image: pair for image, pair in own.items() if None not in pair})
    images = sorted(sides[0].keys() & sides[1].keys())
    return measure_effective(*([side[image] for image in images] for side in sides)) if len(images) > 1 else None


def measure_effective(baseline: Iterable[Sequence[float]], model: Iterable[Sequence[float]]) -> Estimate:
    """Return the accuracy under change above the expected one, from both models' values by image: changed and clean."""
    shares = [(*first, *second) for first, second in zip(baseline, model, strict=True)]
    count = len(shares)
    # kept away from 0 and 1, where logits are infinite
    means = [(math.fsum(column) + 0.5) / (count + 1) for column in zip(*shares, strict=True)]
    logits = [math.log(each / (1 - each)) for each in means]
    expected = 1 / (1 + math.exp(-(logits[0] + logits[3] - logits[1])))
    steps = [expected * (1 - expected) / (each * (1 - each)) for each in means]
    gradient = (-steps[0], steps[1], 1.0, -steps[3])
    along = [sum(step * value for step, value in zip(gradient, row, strict=True)) for row in shares]
    middle = math.fsum(along) / count
    variance = math.fsum((each - middle) ** 2 for each in along) / (count - 1)
    value, half = means[2] - expected, normal_quantile((1 + CONFIDENCE) / 2) * math.sqrt(variance / count)
    return Estimate(value, value - half, value + half)


ERROR_MEASURES = (
    Measure(
        name="ce",
        lens="profile",
        what="corruption error relative to AlexNet's (mCE on average)",
        better="lower",
        unit="points",
        sql=f"select model, operator, image, value from ({_ERRORS})",
    ),
    Measure(
        name="relative_ce",
        lens="profile",
        what="loss of accuracy relative to AlexNet's (relative mCE on average)",
        better="lower",
        unit="points",
        sql=f"select model, operator, image, relative as value from ({_ERRORS})",
        ranked=False,
    ),
)
