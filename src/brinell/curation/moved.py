"""Training data from a geometry run: its images as its motions left them, with their true labels.

The minimal version of an image is the one that ManiFool (or another search) found; the random version has one random motion
of a given score, by default the median score of the smallest motions, as the paper has it. Images that no motion was found
for are left out. Pixels are the whole image's, at the size before the model's crop.
"""

from __future__ import annotations

import io
import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from brinell.engine.runner import Parts
from brinell.engine.shards import Entry
from brinell.engine.stage import Stage
from brinell.errors import ConfigError, RunError
from brinell.motion.groups import GROUPS
from brinell.registry import nearest
from brinell.runs.store import Store
from brinell.types import Label, Sample

_BATCH = 64
_CLOSE = 0.05  # scores that count as the same


@dataclass(frozen=True)
class Written:
    """What was written: how many images, how many were left out, and the score of random motions."""

    place: str
    images: int
    left_out: int
    score: float | None


def write_moved(store: Store, parts: Parts, file: str | Path, operator: str, score: float | None = None) -> Written:
    """Write the images of a run as its motions left them: an .npz of images and labels, or a folder of PNG files.

    `operator` is as rows have it, as in "affine:manifool" or "affine:random".
    """
    motions, wanted = _motions(store, operator, score)
    model = parts.models[0]
    names = [found.name for found in parts.models]
    owner = store.connect().execute("select any_value(model) from rows where operator = ?", [operator]).fetchone()
    if owner is not None and owner[0] in names:
        model = parts.models[names.index(owner[0])]
    samples = store.table("samples").to_pylist()
    known = {row["image"]: Entry(row["index"], row["image"], row["name"]) for row in samples if row["problem"] is None}
    group = GROUPS[operator.partition(":")[0]]
    images: list[Tensor] = []
    entries = [entry for image, entry in known.items() if image in motions]
    truths = []
    for start in range(0, len(entries), _BATCH):
        part = entries[start : start + _BATCH]
        found: list[Sample] = [parts.dataset[entry.index] for entry in part]
        truths += [sample.label for sample in found]
        wholes = [model.preprocess.resize(sample.image[None])[0] for sample in found]
        numbers = torch.arange(len(part))
        stage = Stage(model, wholes, numbers, numbers, 0)
        own = torch.tensor([motions[entry.image] for entry in part], dtype=torch.float64)
        moved = stage.moved(numbers, group.exp(own)).cpu()
        for place, image in enumerate(moved):
            height, width = stage.shape(place)
            images.append(image[:, :height, :width])
    if not images:
        raise RunError(f"the run has no motions of {operator}; no image was fooled, or none has a motion of this score")
    _write(Path(file), images, truths, entries, operator)
    return Written(str(file), len(images), len(known) - len(images), wanted)


def _motions(store: Store, operator: str, score: float | None) -> tuple[dict[str, list[float]], float | None]:
    """Each image's motion."""
    connection = store.connect()
    every = connection.execute("select distinct operator from rows where lens = 'geometry'").fetchall()
    there = [name for (name,) in every]
    if operator not in there:
        if not there:
            raise ConfigError("the run has no motions; make them with the geometry lens: brinell run --lens geometry")
        raise ConfigError(f"the run has no {operator!r}; {nearest(operator, sorted(there))}")
    if not operator.endswith(":random"):
        found = connection.execute(
            "select image, any_value(motion) from rows where operator = ? and status = 'broken' group by image", [operator]
        ).fetchall()
        return dict(found), None
    asked = connection.execute("select distinct amount from rows where operator = ? order by 1", [operator]).fetchall()
    radii = [radius for (radius,) in asked]
    if score is None:
        middle = connection.execute("select median(score) from rows where draw is null and status = 'broken'").fetchone()
        if middle is None or middle[0] is None:
            raise ConfigError("say which score the random motions should have: --score 1.04")
        score = float(middle[0])
    near = min(radii, key=lambda r: abs(r - score))
    if abs(near - score) > _CLOSE:
        raise ConfigError(
            f"the run has no random motions of score {score:.3g}; run it with --set lens.radii=[{score:.3g}], or take "
            f"--score {near:g}"
        )
    found = connection.execute(
        """select image, any_value(motion) from rows
           where operator = ? and amount = ? and draw = 0 and motion is not null group by image""",
        [operator, near],
    ).fetchall()
    return dict(found), float(near)


def _write(file: Path, images: list[Tensor], labels: list[Label | None], entries: list[Entry], operator: str) -> None:
    """Write images with their labels, and of which originals they are."""
    if file.suffix == ".npz":
        if len({tuple(image.shape) for image in images}) > 1:
            raise ConfigError(f"the images have several sizes, which an .npz can't hold; name a folder instead of {file}")
        pixels = np.stack([image.permute(1, 2, 0).numpy() for image in images])
        sink = io.BytesIO()
        originals, operators = np.array([entry.image for entry in entries]), np.full(len(entries), operator)
        np.savez_compressed(sink, images=pixels, labels=np.array(labels), originals=originals, operators=operators)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(sink.getvalue())
        return
    file.mkdir(parents=True, exist_ok=True)
    records = []
    for place, (image, label, entry) in enumerate(zip(images, labels, entries, strict=True)):
        own = f"{place:06}.png"
        array = image[0].numpy() if len(image) == 1 else image.permute(1, 2, 0).numpy()
        Image.fromarray(array).save(file / own)
        told = {"file_name": own, "label": label, "source": entry.name, "original_id": entry.image, "operator": operator}
        records.append(json.dumps(told))
    (file / "metadata.jsonl").write_text("\n".join(records) + "\n", encoding="utf-8")
