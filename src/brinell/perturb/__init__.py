"""What is done to an image. Importing this package registers every operator."""

from brinell.perturb import blur, codec, colour, exchange, gradient, occlusion
from brinell.perturb.difference import Difference, colours, difference, mean_grey
from brinell.perturb.operator import OPERATORS, Facts, Kind, Operator, find_operator, operator_names, pixels, step

__all__ = [
    "OPERATORS",
    "Difference",
    "Facts",
    "Kind",
    "Operator",
    "blur",
    "codec",
    "colour",
    "colours",
    "difference",
    "exchange",
    "find_operator",
    "gradient",
    "mean_grey",
    "occlusion",
    "operator_names",
    "pixels",
    "step",
]
