"""What a slider shows, as a command and as Python. Imports torch."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from brinell.perturb.change import Change
from brinell.viewer.search import find_lens

PHOTO = "photo.jpg"  # the page puts the photograph's own name in its place

_PYTHON = """\
from pathlib import Path

import torch

import brinell
from brinell.datasets.decode import read_image
from brinell.engine.renderer import Renderer
from brinell.perturb.find import find_turnable
from brinell.types import id_number, image_id

model = brinell.open_model({source!r})
photo = read_image(Path({photo!r}))
preprocess, ids = model.preprocess, torch.tensor([id_number(image_id(photo))])
originals = [preprocess.convert_channels(photo)]
renderer = Renderer(preprocess, preprocess.model_input(photo)[None], ids, seed=0, originals=originals)
parameters = torch.tensor([{parameters}], dtype=torch.float64)  # {names}
changed = renderer.images(find_turnable({change!r}), torch.tensor([0]), parameters)
for probability, index in zip(*(each[0] for each in model.predict(changed).topk(5))):
    print(f"{{probability:.1%}} {{model.classes.names[index] if model.classes else int(index)}}")
"""


def write_recipe(change: Change, parameters: Sequence[float], source: str) -> dict[str, str]:
    """Return the command and the Python that make the same image."""
    python = _PYTHON.format(
        source=source,
        photo=PHOTO,
        parameters=list(parameters),
        names=", ".join(change.parameters[: len(parameters)]),
        change=change.id,
    )
    return {"command": _command(change, parameters, source), "python": python}


def _command(change: Change, parameters: Sequence[float], source: str) -> str:
    """Return a command that draws the image; where `show` can't, one that searches the breaking point."""
    show = ["brinell", "show", PHOTO, "--model", source]
    if change.parameters == ("level",):
        level = str(round(parameters[0]))
        return shlex.join([*show, "--operator", change.id, "--level", level, "--out", "changed.png"])
    if len(parameters) == 4 and change.parameters[0] == "spot_x":
        spot = ",".join(f"{value:g}" for value in parameters)
        return shlex.join([*show, "--spot", spot, "--out", "changed.png"])
    found = find_lens(change)
    if found is None:
        return "# no command draws this change at one point; copy it as Python"
    lens, _, own = found
    run = ["brinell", "run", "--model", source, "--data", PHOTO, "--labels", "prediction"]
    return shlex.join([*run, "--lens", lens.name, "--operator", own.id, "--out", "runs/photo"])
