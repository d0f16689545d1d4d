"""brinell: hardness testing for vision models.

import brinell

run = brinell.run("timm:resnet50", "photos/", lens="profile")
run.summary()   # profiles, areas and failure points
run.report()    # one HTML page
run.rows("select operator, avg(correct::int) from rows group by 1")
"""

from brinell.api import Run, compare, curate, gate, harden, leaderboard, run, wrap
from brinell.config.execution import Execution
from brinell.config.model import ModelOptions
from brinell.curation.curate import Curated
from brinell.curation.options import CurateOptions
from brinell.datasets.sources import DataOptions, open_dataset
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
from brinell.hardening.harden import Hardened
from brinell.hardening.options import HardenConfig
from brinell.lenses.profile.lens import ProfileOptions
from brinell.models.model import Model
from brinell.models.preprocess import Preprocess
from brinell.models.sources import open_model
from brinell.perturb.operator import OPERATORS, Operator, find_operator
from brinell.run_config import RunConfig
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
