"""The models and the data of a finished run, opened again as its manifest names them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from brinell.engine.manifest import refuse_other_settings
from brinell.engine.setup import RunSetup, assemble
from brinell.errors import ConfigError
from brinell.models.model import Model
from brinell.models.sources import open_stored_model
from brinell.run_config import load_config, overridden
from brinell.runs.run import Run


def reopen(
    run: Run, *, models: Sequence[Model] | None = None, data: Any = None, trust: bool = False, call: str
) -> RunSetup:
    """Open a run's models and data again; what was given to it as an object has to be given to this `call` again.

    Whether models may run code is for whoever opens them to say, not for the run's folder.
    """
    config = load_config(overridden(run.source, [f"execution.trust={str(trust).lower()}"]))
    objects = [one.source for one in config.models if one.source.startswith("object:")]
    if models is None and objects:
        raise ConfigError(f"the run was given a model as an object ({objects[0]}); pass it again: {call}(models=[…])")
    if data is None and config.data.source.startswith("object:"):
        raise ConfigError(f"the run was given its data as an object; pass it again: {call}(data=…)")
    file = run.store.place("manifest.json")
    opened = models or [open_stored_model(one, config.execution, file=file) for one in config.models]
    setup = assemble(config, opened, data)
    refuse_other_settings(run.store, config, setup.models)
    return setup
