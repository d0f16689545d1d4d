"""Changes to images. Importing this package registers the built-in operators and properties."""

from brinell.perturb import (
    blur,
    codec,
    colour,
    corruptions,
    exchange,
    frost,
    gradient,
    luminance,
    noise,
    occlusion,
    smear,
    spatial,
    weather,
)
from brinell.perturb.perturbation import Perturbation, apply

__all__ = [
    "Perturbation",
    "apply",
    "blur",
    "codec",
    "colour",
    "corruptions",
    "exchange",
    "frost",
    "gradient",
    "luminance",
    "noise",
    "occlusion",
    "smear",
    "spatial",
    "weather",
]
