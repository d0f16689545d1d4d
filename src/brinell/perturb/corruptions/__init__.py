"""The corruptions of ImageNet-C and -C-bar, each as an operator (levels 1 to 5) and as a property (severity 0 to 1)."""

# isort: off
from brinell.perturb import luminance  # registered before, so that `contrast` alone means its property there
from brinell.perturb.corruptions import noise, blur, glass, motion, weather, ice, spatter, digital, elastic  # as published
from brinell.perturb.corruptions import textures, patterns

__all__ = [
    "blur",
    "digital",
    "elastic",
    "glass",
    "ice",
    "luminance",
    "motion",
    "noise",
    "patterns",
    "spatter",
    "textures",
    "weather",
]
