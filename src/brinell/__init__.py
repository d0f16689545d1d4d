"""brinell: hardness testing for vision models.

import brinell

run = brinell.run("timm:resnet50", "photos/", lens="profile")
run.summary()   # profiles, areas and failure points
run.report()    # one HTML page
run.rows("select operator, avg(correct::int) from rows group by 1")

Names are imported on first use, so that `import brinell` takes no time.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from brinell import perturb as perturb
    from brinell.api import corrupt, curate, decide, harden, run, wrap
    from brinell.config.data import DataOptions
    from brinell.config.execution import Execution
    from brinell.config.model import ModelOptions
    from brinell.corruption.corrupt import Corrupted
    from brinell.corruption.options import CorruptOptions
    from brinell.curation.curate import Curated
    from brinell.curation.options import CurateOptions
    from brinell.datasets.sources import open_dataset
    from brinell.decisions import compare, gate, leaderboard
    from brinell.errors import (
        BrinellError,
        BudgetSpent,
        ConfigError,
        DataError,
        LabelError,
        MissingExtra,
        ModelError,
        PluginError,
        RunError,
        ServiceError,
        UnknownName,
        UnreadableImage,
    )
    from brinell.hardening.harden import Hardened
    from brinell.hardening.options import HardenConfig
    from brinell.lenses.profile.options import ProfileOptions
    from brinell.models.model import Model
    from brinell.models.preprocess import Preprocess
    from brinell.models.sources import open_model
    from brinell.perturb.operator import OPERATORS, Operator, find_operator
    from brinell.results import Run, merge
    from brinell.run_config import RunConfig
    from brinell.types import Dataset, Sample

__version__ = "0.1.0"

__all__ = [
    "OPERATORS",
    "BrinellError",
    "BudgetSpent",
    "ConfigError",
    "CorruptOptions",
    "Corrupted",
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
    "PluginError",
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
    "corrupt",
    "curate",
    "decide",
    "find_operator",
    "gate",
    "harden",
    "leaderboard",
    "merge",
    "open_dataset",
    "open_model",
    "run",
    "wrap",
]

#: the module that each public name comes from (the imports above, for the interpreter)
_MODULES = {
    "brinell.api": ("corrupt", "curate", "decide", "harden", "run", "wrap"),
    "brinell.decisions": ("compare", "gate", "leaderboard"),
    "brinell.config.data": ("DataOptions",),
    "brinell.config.execution": ("Execution",),
    "brinell.config.model": ("ModelOptions",),
    "brinell.corruption.corrupt": ("Corrupted",),
    "brinell.corruption.options": ("CorruptOptions",),
    "brinell.curation.curate": ("Curated",),
    "brinell.curation.options": ("CurateOptions",),
    "brinell.datasets.sources": ("open_dataset",),
    "brinell.errors": (
        "BrinellError",
        "BudgetSpent",
        "ConfigError",
        "DataError",
        "LabelError",
        "MissingExtra",
        "ModelError",
        "PluginError",
        "RunError",
        "ServiceError",
        "UnknownName",
        "UnreadableImage",
    ),
    "brinell.hardening.harden": ("Hardened",),
    "brinell.hardening.options": ("HardenConfig",),
    "brinell.lenses.profile.options": ("ProfileOptions",),
    "brinell.models.model": ("Model",),
    "brinell.models.preprocess": ("Preprocess",),
    "brinell.models.sources": ("open_model",),
    "brinell.perturb.operator": ("OPERATORS", "Operator", "find_operator"),
    "brinell.results": ("Run", "merge"),
    "brinell.run_config": ("RunConfig",),
    "brinell.types": ("Dataset", "Sample"),
}
_PACKAGES = ("perturb",)  # whose own names are public
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names}

if not TYPE_CHECKING:  # type checkers see the imports above, and report names that don't exist

    def __getattr__(name: str) -> Any:
        if name in _PACKAGES:
            return import_module(f"{__name__}.{name}")
        if name not in _MODULE_OF:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = globals()[name] = getattr(import_module(_MODULE_OF[name]), name)
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_PACKAGES})
