"""brinell: hardness testing for vision models.

import brinell

run = brinell.run("timm:resnet50", "photos/", lens="profile")
run.summary()   # profiles, areas and failure points
run.report()    # one HTML page
run.rows("select operator, avg(correct::int) from rows group by 1")
"""

from brinell.api import Run, compare, curate, gate, harden, leaderboard, run, wrap
from brinell.config import RunConfig
from brinell.curation import Curated, CurateOptions
from brinell.datasets import DataOptions, open_dataset
from brinell.errors import (
    BrinellError,
    BudgetSpent,
    ConfigError,
    DataError,
    LabelError,
    MissingExtra,
    ModelError,
    RunError,
    ServiceError,
    UnknownName,
    UnreadableImage,
)
from brinell.execution import Execution
from brinell.hardening import HardenConfig, Hardened
from brinell.lenses import ProfileOptions
from brinell.models import Model, ModelOptions, Preprocess, open_model
from brinell.perturb import OPERATORS, Operator, find_operator
from brinell.types import Dataset, Sample

__version__ = "0.1.0"

__all__ = [
    "OPERATORS",
    "BrinellError",
    "BudgetSpent",
    "ConfigError",
    "CurateOptions",
    "Curated",
    "DataError",
    "DataOptions",
    "Dataset",
    "Execution",
    "HardenConfig",
    "Hardened",
    "LabelError",
    "MissingExtra",
    "Model",
    "ModelError",
    "ModelOptions",
    "Operator",
    "Preprocess",
    "ProfileOptions",
    "Run",
    "RunConfig",
    "RunError",
    "Sample",
    "ServiceError",
    "UnknownName",
    "UnreadableImage",
    "compare",
    "curate",
    "find_operator",
    "gate",
    "harden",
    "leaderboard",
    "open_dataset",
    "open_model",
    "run",
    "wrap",
]
