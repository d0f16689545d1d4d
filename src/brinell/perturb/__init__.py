"""Changes to images. Importing this package registers the built-in operators and properties."""

from brinell.perturb import (
    blur,
    codec,
    colour,
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

__all__ = [
    "blur",
    "codec",
    "colour",
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
