"""Training data from motions: a run's images as its motions left them, with their true labels.

The minimal motion of an image is the one that a search found; random motions all have one score, by default the median of
the minimal ones, as in the paper (ManiFool, CVPR 2018). Images without a motion are left out. Pixels are those of the whole
image, before the model's crop.
"""

from __future__ import annotations

import io
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from brinell.engine.moving import MovingImages
from brinell.engine.setup import RunSetup, assemble
from brinell.engine.shards import Entry
from brinell.errors import ConfigError, RunError
from brinell.lenses.lens import LENSES
from brinell.models.model import Model
from brinell.perturb.motion import as_motion
from brinell.pictures import to_picture
from brinell.run_config import load_config, name_data
from brinell.runs.run import Run
from brinell.types import Label, Sample

_BATCH = 64


@dataclass(frozen=True)
class ExportedMotions:
    """What was exported: the number of images, how many were left out, and the score of random motions."""

    path: str
    images: int
    left_out: int
    score: float | None


def export_moved(run: Run, setup: RunSetup, file: str | Path, operator: str, score: float | None = None) -> ExportedMotions:
    """Write the images of a run as its motions left them: an .npz of images and labels, or a folder of PNG files.

    `operator` is as in the rows: "affine:manifool" or "affine:random".
    """
    lens = _moving_lens(run)
    read_motions = LENSES[lens].reader.motions
    assert read_motions is not None
    motions, score = read_motions(run, operator, score)
    options = next(options for options in setup.config.lenses if options.name == lens)
    model = _model(run, setup, operator)
    change = LENSES[lens].method.replay(options, operator, (model.preprocess.height, model.preprocess.width))
    samples = run.store.table("samples").to_pylist()
    known = {row["image"]: Entry(row["index"], row["image"], row["name"]) for row in samples if row["problem"] is None}
    entries = [entry for image, entry in known.items() if image in motions]
    images: list[Tensor] = []
    labels: list[Label | None] = []
    for start in range(0, len(entries), _BATCH):
        part = entries[start : start + _BATCH]
        found: list[Sample] = [setup.dataset[entry.index] for entry in part]
        labels += [sample.label for sample in found]
        coordinates = torch.tensor([motions[entry.image] for entry in part], dtype=torch.float64)
        images += _move(model, found, as_motion(change).group.exp(coordinates))
    if not images:
        raise RunError(f"the run has no motions of {operator}: no image was broken, or none has a motion of this score")
    _write(Path(file), images, labels, entries, operator)
    return ExportedMotions(str(file), len(images), len(known) - len(images), score)


def reopen_and_export(
    run: Run, file: Path, operator: str, *, score: float | None, model: Model | None, data: Any
) -> ExportedMotions:
    """Open a run's models and data again and export its images; see `export_moved`."""
    dataset = None if data is None else name_data(data)[1]
    setup = assemble(load_config(run.source), None if model is None else [model], dataset)
    return export_moved(run, setup, file, operator, score)


def _moving_lens(run: Run) -> str:
    """Return the run's lens that moves images."""
    movers = [name for name, lens in zip(LENSES, LENSES.values(), strict=True) if lens.reader.motions is not None]
    found = next((name for name in run.lenses if name in movers), None)
    if found is None:
        raise ConfigError(f"the run has no motions to export; run it with --lens {' or '.join(movers)}")
    return found


def _model(run: Run, setup: RunSetup, operator: str) -> Model:
    """Return the model whose rows the motions are from."""
    [(owner,)] = run.query("select any_value(model) from rows where operator = $operator", {"operator": operator})
    return next((model for model in setup.models if model.name == owner), setup.models[0])


def _move(model: Model, samples: list[Sample], matrices: Tensor) -> list[Tensor]:
    """Return whole images under motions, each at its own size."""
    wholes = [model.preprocess.resize(sample.image[None])[0] for sample in samples]
    moving = MovingImages(model.preprocess, wholes, model.device)
    return [moving.moved(index, matrix).cpu() for index, matrix in enumerate(matrices)]


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
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(sink.getvalue())
        return
    file.mkdir(parents=True, exist_ok=True)
    records = []
    for number, (image, label, entry) in enumerate(zip(images, labels, entries, strict=True)):
        name = f"{number:06}.png"
        to_picture(image).save(file / name)
        record = {"file_name": name, "label": label, "source": entry.name, "original_id": entry.image, "operator": operator}
        records.append(json.dumps(record))
    (file / "metadata.jsonl").write_text("\n".join(records) + "\n", encoding="utf-8")
