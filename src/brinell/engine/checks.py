"""Checks a config before torch is imported or anything is loaded: a wrong name or folder is reported within a second."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from brinell.config.model import ModelOptions
from brinell.criteria.criterion import check_criterion
from brinell.datasets.sources import find_source
from brinell.errors import RunError
from brinell.models.sources import check_model
from brinell.run_config import RunConfig
from brinell.runs.store import Store

OBJECT = "object:"  # how the source of a Python object begins


def check_config(config: RunConfig, models: Sequence[ModelOptions]) -> None:
    """Raise if one of the models, the dataset or a criterion doesn't exist, or if the folder can't be written to."""
    for model in models:
        check_model(model)
    if not config.data.source.startswith(OBJECT):
        find_source(config.data)
    for lens in config.lenses:
        check_criterion(lens.criterion)
    _check_folder(Store(config.folder()))


def _check_folder(store: Store) -> None:
    """Raise if a local folder can't be made or written to. Makes nothing."""
    if not store.is_local:
        return
    place = Path(store.root)
    existing = next(path for path in (place, *place.parents) if path.exists())
    if not existing.is_dir():
        raise RunError(f"can't write to {store.url}: {existing} is not a folder; choose another one with --out")
    if not os.access(existing, os.W_OK | os.X_OK):
        raise RunError(f"can't write to {store.url}: {existing} is read-only; choose another folder with --out")
