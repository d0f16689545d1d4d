"""Signs that a model sees clean images in another way than it was trained to, from how often it is right."""

from __future__ import annotations

from brinell.models.model import Model

FEWEST = 20  # images; fewer say nothing
NEAR_CHANCE = 0.1  # share of the way from chance to perfect below which a model has learnt nothing
FAR_BELOW = 0.3  # difference of accuracy and mean confidence


def advise_accuracy(model: Model, right: float, confidence: float | None, images: int) -> str | None:
    """Return what to try, in one line, if accuracy on clean images is near chance or far below the confidence; else None.

    `confidence` is the mean of the largest scores; None: there are no scores.
    """
    chance = 0.0 if model.task != "classification" else 1 / model.outputs
    near_chance = right - chance < NEAR_CHANCE * (1 - chance)
    sure = confidence is not None and model.task == "classification" and confidence - right > FAR_BELOW
    if images < FEWEST or not (near_chance or sure):
        return None
    what = f"{model.name} is right on {right:.0%} of {images} clean images"
    if sure:
        what += f", but {confidence:.0%} confident on average"
    elif model.task == "classification":
        what += f", which is near chance ({chance:.1%})"
    return f"{what}; {_what_to_try(model)}"


def _what_to_try(model: Model) -> str:
    """Return the options that are most often wrong for a model."""
    if model.service is not None:
        return "check its class list and the labels"
    pre = model.preprocess
    scaled = any(pre.mean) or set(pre.std) != {1.0}
    first = f"check ?mean= and ?std= (now {_numbers(pre.mean)} and {_numbers(pre.std)})"
    if model.whole_only:
        first = "check the class list"
    elif not scaled:
        first = "it gets values in [0, 1]: try ?mean=0.485,0.456,0.406&std=0.229,0.224,0.225"
    colour = "" if pre.channels == 1 else f", ?bgr={str(not pre.bgr).lower()}"
    return f"{first}{colour}, or let `brinell check MODEL DATA` try the usual settings"


def _numbers(values: tuple[float, ...]) -> str:
    return ",".join(f"{value:.3g}" for value in values)
