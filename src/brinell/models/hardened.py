"""Hardened models, stored as a folder.

model.safetensors    the weights
hardened.json        the model it was made from, the blocks that were added, and the normalisation of its input
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict
from safetensors.torch import load_file
from torch import Tensor, nn

from brinell.config.execution import Execution
from brinell.config.model import ModelOptions
from brinell.errors import ModelError
from brinell.models.excitation import REDUCTION, add_excitation
from brinell.models.model import Model
from brinell.models.modules import model_from_module
from brinell.models.sources import open_stored_model
from brinell.validation import validate

WEIGHTS_FILE, FACTS_FILE = "model.safetensors", "hardened.json"


class Excitation(BaseModel):
    """The blocks that are followed by squeeze-and-excitation, with their channels."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    blocks: dict[str, int]
    reduction: int = REDUCTION


class HardenedFacts(BaseModel):
    """The content of hardened.json. `base` are the options of the original model, None if that was a Python object."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    format: int = 1
    base: dict[str, Any] | None
    mean: tuple[float, ...]
    std: tuple[float, ...]
    excitation: Excitation | None = None


def open_hardened(rest: str, options: ModelOptions, execution: Execution) -> Model:
    """Open the model in a folder that `brinell harden` wrote."""
    folder = Path(rest).expanduser()
    facts = read_facts(folder)
    if facts.base is None:
        raise ModelError(
            f"the model in {folder} was hardened as a Python object, which can't be opened by name; harden "
            "torch:package.module:factory to get one that can"
        )
    plain = Execution(device="cpu", runtime="torch", channels_last=False, trust=execution.trust)
    base = open_stored_model(facts.base, plain, file=str(folder / FACTS_FILE))
    assert base.internals is not None
    module = restore(base.internals.module, facts, folder)
    known = replace(base.preprocess, mean=facts.mean, std=facts.std)
    return model_from_module(module, options, execution, known=known, classes=base.classes)


def read_facts(folder: Path) -> HardenedFacts:
    """Read hardened.json in a folder."""
    file = folder / FACTS_FILE
    if not file.is_file():
        raise ModelError(
            f"{folder} is not a hardened model: it has no {FACTS_FILE}; give the folder that `brinell harden` wrote"
        )
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ModelError(f"{file} can't be read: {error}") from None
    return validate(HardenedFacts, content)


def restore(module: nn.Module, facts: HardenedFacts, folder: Path) -> nn.Module:
    """Return the original module with the blocks and weights of the hardened one."""
    if facts.excitation is not None:
        add_excitation(module, facts.excitation.blocks, facts.excitation.reduction)
    file = folder / WEIGHTS_FILE
    if not file.is_file():
        raise ModelError(f"{folder} has no {WEIGHTS_FILE}; rerun the command that started it to finish it")
    try:
        state = load_file(file)
    except Exception as error:  # safetensors' errors have no common base
        raise ModelError(f"{file} can't be read as safetensors: {error}") from error
    require_fit(module, state, str(file), "give the folder that was made from this model")
    module.load_state_dict(state)
    return module


def require_fit(module: nn.Module, state: dict[str, Tensor], file: str, fix: str) -> None:
    """Raise if weights don't fit a module, naming the first that is missing, unknown or of another shape."""
    own = module.state_dict()
    for name in [*own, *state]:
        shapes = [None if one.get(name) is None else tuple(one[name].shape) for one in (state, own)]
        if shapes[0] != shapes[1]:
            there, here = ("nothing" if shape is None else "×".join(map(str, shape)) or "one number" for shape in shapes)
            raise ModelError(f"{file} doesn't fit the model: {name} is {there} there and {here} here; {fix}")
