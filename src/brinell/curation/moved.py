"""Training data from motions: a run's images as its motions left them, with their true labels.

The minimal motion of an image is the one that a search found; random motions all have one score, by default the median of
the minimal ones, as in the paper (ManiFool, CVPR 2018). Images without a motion are left out. Pixels are those of the whole
image, before the model's crop.
"""

from __future__ import annotations

import io
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from brinell.curation.runs import SourceRun, preprocess_of
from brinell.engine.moving import MovingImages
from brinell.engine.shards import Entry
from brinell.errors import ConfigError, DataError, RunError
from brinell.lenses.lens import LENSES
from brinell.models.preprocess import Preprocess
from brinell.perturb.motion import as_motion
from brinell.pictures import to_picture
from brinell.runs.run import Run
from brinell.runs.store import Store
from brinell.types import Label, Sample, image_id

_BATCH = 64


@dataclass(frozen=True)
class ExportedMotions:
    """What was exported: the number of images, how many were left out, and the score of random motions."""

    path: str
    images: int
    left_out: int
    score: float | None


def export_moved(
    run: Run, file: str | Path, operator: str, *, score: float | None = None, data: Any = None
) -> ExportedMotions:
    """Write the images of a run as its motions left them: an .npz of images and labels, or a folder of PNG files.

    `operator` is as in the rows: "affine:manifool" or "affine:random". `data` is where the images are now, or the object
    that the run was given. No model is needed: the manifest says how images were resized.
    """
    lens = _moving_lens(run)
    read_motions = LENSES[lens].reader.motions
    assert read_motions is not None
    motions, score = read_motions(run, operator, score)
    source = SourceRun(0, run, os.fspath(data) if isinstance(data, os.PathLike) else data)
    preprocess = preprocess_of(run.models[_owner(run, operator)])
    change = source.change(lens, operator, preprocess)
    entries = [original.entry for image, original in source.originals.items() if image in motions]
    images: list[Tensor] = []
    labels: list[Label | None] = []
    for start in range(0, len(entries), _BATCH):
        part = entries[start : start + _BATCH]
        found = [_sample(source, entry) for entry in part]
        labels += [sample.label for sample in found]
        coordinates = torch.tensor([motions[entry.image] for entry in part], dtype=torch.float64)
        images += _move(preprocess, found, as_motion(change).group.exp(coordinates))
    if not images:
        raise RunError(f"the run has no motions of {operator}: no image was broken, or none has a motion of this score")
    _write(Path(file), images, labels, entries, operator)
    return ExportedMotions(str(file), len(images), len(source.originals) - len(images), score)


def _sample(source: SourceRun, entry: Entry) -> Sample:
    """Return an image of the run's dataset, and raise if it is not the one that was measured."""
    with source.explain_missing_images():
        try:
            sample = source.dataset[entry.index]
        except IndexError:
            raise DataError(f"there is no image {entry.name}") from None
        if image_id(sample.image) != entry.image:
            raise DataError(f"{entry.name} is another image")
    return sample


def _moving_lens(run: Run) -> str:
    """Return the run's lens that moves images."""
    movers = [name for name, lens in zip(LENSES, LENSES.values(), strict=True) if lens.reader.motions is not None]
    found = next((name for name in run.lenses if name in movers), None)
    if found is None:
        raise ConfigError(f"the run has no motions to export; run it with --lens {' or '.join(movers)}")
    return found


def _owner(run: Run, operator: str) -> str:
    """Return the model whose rows the motions are from."""
    [(owner,)] = run.query("select any_value(model) from rows where operator = $operator", {"operator": operator})
    return str(owner)


def _move(preprocess: Preprocess, samples: list[Sample], matrices: Tensor) -> list[Tensor]:
    """Return whole images under motions, each at its own size."""
    wholes = [preprocess.resize(sample.image[None])[0] for sample in samples]
    moving = MovingImages(preprocess, wholes, torch.device("cpu"))
    return [moving.moved(index, matrix) for index, matrix in enumerate(matrices)]


def _write(file: Path, images: list[Tensor], labels: list[Label | None], entries: list[Entry], operator: str) -> None:
    """Write images with their labels and the ids of their originals."""
    if file.suffix == ".npz":
        if len({tuple(image.shape) for image in images}) > 1:
            raise ConfigError(
                f"the images have several sizes, but an .npz file holds one; write to a folder instead of {file}"
            )
        pixels = np.stack([image.permute(1, 2, 0).numpy() for image in images])
        sink = io.BytesIO()
        originals, operators = np.array([entry.image for entry in entries]), np.full(len(entries), operator)
        np.savez_compressed(sink, images=pixels, labels=np.array(labels), originals=originals, operators=operators)
        Store(file.parent).write(sink.getvalue(), file.name)
        return
    folder, records = Store(file), []
    for number, (image, label, entry) in enumerate(zip(images, labels, entries, strict=True)):
        name = f"{number:06}.png"
        sink = io.BytesIO()
        to_picture(image).save(sink, "png")
        folder.write(sink.getvalue(), name)
        record = {"file_name": name, "label": label, "source": entry.name, "original_id": entry.image, "operator": operator}
        records.append(json.dumps(record))
    folder.write(("\n".join(records) + "\n").encode(), "metadata.jsonl")
