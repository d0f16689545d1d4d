"""What is done to an image. Importing this package registers every operator and every property."""

from brinell.perturb import blur, codec, colour, exchange, frost, gradient, luminance, noise, occlusion, smear, weather
from brinell.perturb import spatial as motion
from brinell.perturb.difference import Difference, colours, difference, mean_grey, no_difference
from brinell.perturb.frost import use_frost_template
from brinell.perturb.highlight import WHITE, grid, highlight, highlighted
from brinell.perturb.operator import (
    OPERATORS,
    Facts,
    Kind,
    Operator,
    find_operator,
    level_operator,
    operator_names,
    step_operator,
)
from brinell.perturb.property import (
    PROPERTIES,
    Property,
    PropertyFacts,
    PropertyKind,
    find_property,
    motion_property,
    pixel_property,
    property_facts,
    property_names,
)
from brinell.perturb.view import View
from brinell.perturb.warp import warp
from brinell.perturb.windows import location_view, window_view, windows

__all__ = [
    "OPERATORS",
    "PROPERTIES",
    "WHITE",
    "Difference",
    "Facts",
    "Kind",
    "Operator",
    "Property",
    "PropertyFacts",
    "PropertyKind",
    "View",
    "blur",
    "codec",
    "colour",
    "colours",
    "difference",
    "exchange",
    "find_operator",
    "find_property",
    "frost",
    "gradient",
    "grid",
    "highlight",
    "highlighted",
    "level_operator",
    "location_view",
    "luminance",
    "mean_grey",
    "motion",
    "motion_property",
    "no_difference",
    "noise",
    "occlusion",
    "operator_names",
    "pixel_property",
    "property_facts",
    "property_names",
    "smear",
    "step_operator",
    "use_frost_template",
    "warp",
    "weather",
    "window_view",
    "windows",
]
