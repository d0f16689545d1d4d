"""Pictures of the fragility lens for the report: photographs under their maps, and pairs of windows with what was said.

They are made again from what the rows say, and stored with the run.
"""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any
from urllib.parse import quote

import duckdb
import numpy as np
import torch
from PIL import Image, ImageDraw
from torch import Tensor

from brinell.boxes import Detections
from brinell.classes import Classes
from brinell.engine.clean import readable
from brinell.lenses.fragility.findings import FallingPair, fragility
from brinell.models.activations import activations
from brinell.models.model import Model
from brinell.perturb.windows import window_view
from brinell.runs.store import Store
from brinell.types import Dataset

PHOTOS, PAIRS = 4, 4  # photographs a model; pairs a model, size and change
SHOWN = (160, 160)  # of activations
ACTIVATED = 1  # pairs a model whose activations are shown
LONGEST = 640  # pixels of a photograph's longer side
YELLOW = (255, 210, 0)
FILE = "fragility/exhibits.json"


@dataclass(frozen=True)
class Photo:
    """A photograph that maps are laid over."""

    image: str
    name: str
    file: str
    height: int
    width: int


@dataclass(frozen=True)
class WindowPicture:
    """A window as the model saw it, and its answer: the prediction, how sure it is, and the true class's probability."""

    file: str
    prediction: int
    confidence: float | None
    probability: float | None


@dataclass(frozen=True)
class PairPicture:
    """Two windows a small change apart. `layers` are pictures of activations: (layer, first, second)."""

    model: str
    operator: str
    change: str
    image: str
    label: int
    told: str
    first: WindowPicture
    second: WindowPicture
    layers: tuple[tuple[str, str, str], ...] = ()


@dataclass(frozen=True)
class WindowExhibits:
    """All pictures of the lens: photographs by model, and pairs."""

    photos: dict[str, list[Photo]]
    pairs: list[PairPicture]


def write_window_exhibits(store: Store, dataset: Dataset, models: Sequence[Model], options: dict[str, Any]) -> None:
    """Choose, make and store the pictures of a finished run."""
    connection = store.connect()
    entries = {entry.image: entry for entry in reversed(readable(store.table("samples")))}
    pairs = fragility(connection).pairs
    photos: dict[str, list[Photo]] = {}
    made: list[PairPicture] = []
    for model in models:
        maker = _Maker(store, model, options, lambda image: dataset[entries[image].index].image)
        photos[model.name] = [maker.photo(image, entries[image].name) for image in _shown(connection, model.name)]
        groups: dict[tuple[str, str], int] = {}
        for pair in pairs:
            group = pair.operator, pair.change
            if pair.model == model.name and groups.get(group, 0) < PAIRS:
                groups[group] = groups.get(group, 0) + 1
                made.append(maker.pair(pair, with_layers=sum(groups.values()) <= ACTIVATED))
    content = {
        "photos": {model: [asdict(photo) for photo in own] for model, own in photos.items()},
        "pairs": [asdict(pair) for pair in made],
    }
    store.write(json.dumps(content).encode(), *FILE.split("/"))


def read_window_exhibits(store: Store) -> WindowExhibits:
    """The stored pictures, or none."""
    if not store.exists(*FILE.split("/")):
        return WindowExhibits({}, [])
    content = json.loads(store.read(*FILE.split("/")))
    photos = {model: [Photo(**photo) for photo in own] for model, own in content["photos"].items()}
    pairs = []
    for record in content["pairs"]:
        first, second = (WindowPicture(**record.pop(name)) for name in ("first", "second"))
        pairs.append(PairPicture(**record | {"layers": tuple(map(tuple, record["layers"]))}, first=first, second=second))
    return WindowExhibits(photos, pairs)


def _shown(connection: duckdb.DuckDBPyConnection, model: str) -> list[str]:
    """The images that maps are shown of: those with the most fragile windows."""
    rows = connection.execute(
        """select image from rows where lens = 'fragility' and model = ? group by image
           order by coalesce(avg(fragile / windows) filter (judged_by = 'correct' and windows > 0), 0) desc, image
           limit ?""",
        [model, PHOTOS],
    ).fetchall()
    return [image for (image,) in rows]


class _Maker:
    """Makes and stores pictures of one model's."""

    def __init__(self, store: Store, model: Model, options: dict[str, Any], original: Any) -> None:
        self.store, self.model, self.options, self.original = store, model, options, original
        self.folder = f"exhibits/{quote(model.name, safe='')}/fragility"

    def photo(self, image: str, name: str) -> Photo:
        """Store a photograph."""
        pixels = self.original(image)
        picture = _picture(pixels)
        picture.thumbnail((LONGEST, LONGEST))
        file = self._write(picture, image)
        return Photo(image, name, file, pixels.shape[1], pixels.shape[2])

    def pair(self, pair: FallingPair, *, with_layers: bool) -> PairPicture:
        """Ask about both windows again, and store them."""
        pre = self.model.preprocess
        view = window_view("", self.options["fit"], pre.height, pre.width)
        original = pre.convert_channels(self.original(pair.image)).to(self.model.device)
        parameters = torch.tensor([[*pair.corner, pair.side], [*pair.to_corner, pair.to_side]], dtype=torch.float64)
        inputs = view.inputs(original, parameters, pre.inputs)
        probabilities, detections = self.model.answer(inputs)
        name = f"{pair.image}-{quote(pair.operator, safe='')}-{pair.change}"
        first, second = (
            self._window(inputs[place].cpu(), probabilities[place].cpu(), detections, place, pair.label, name)
            for place in (0, 1)
        )
        layers = self._layers(inputs, name) if with_layers and self.model.internals is not None else ()
        left, top = pair.corner
        way = f"{pair.to_corner[0] - left:+d}, {pair.to_corner[1] - top:+d}"
        told = f"{pair.side} px at {left}, {top}" + (f"; moved by {way}" if pair.change == "shift" else "; two pixels less")
        return PairPicture(pair.model, pair.operator, pair.change, pair.image, pair.label, told, first, second, layers)

    def _window(
        self, model_input: Tensor, scores: Tensor, found: Detections | None, place: int, label: int, name: str
    ) -> WindowPicture:
        picture, prediction = _picture(model_input), int(scores.argmax())
        if found is not None and self.model.detector is not None:
            picture = _boxed(picture, self.model.detector.found(found).at(slice(place, place + 1)), self.model.classes)
            prediction = prediction if float(scores.max()) > 0 else -1
        file = self._write(picture, f"{name}-{place}")
        sure = (float(scores.max()), float(scores[label])) if self.model.scores else (None, None)
        return WindowPicture(file, prediction, *sure)

    def _layers(self, inputs: Tensor, name: str) -> tuple[tuple[str, str, str], ...]:
        """The mean strength of a layer's channels, as pictures."""
        found = []
        for number, (layer, output) in enumerate(activations(self.model, inputs, tuple(self.options["layers"])).items()):
            strength = output.abs().mean(1)
            strength = (strength / strength.max().clamp(min=1e-9) * 255).to(torch.uint8)
            first, second = (
                self._write(_picture(each[None]).resize(SHOWN, Image.Resampling.NEAREST), f"{name}-layer{number}-{place}")
                for place, each in enumerate(strength)
            )
            found.append((layer, first, second))
        return tuple(found)

    def _write(self, picture: Image.Image, name: str) -> str:
        sink = io.BytesIO()
        picture.save(sink, "webp", quality=88)
        file = f"{self.folder}/{name}.webp"
        self.store.write(sink.getvalue(), *file.split("/"))
        return file


def _picture(pixels: Tensor) -> Image.Image:
    return Image.fromarray(np.ascontiguousarray(pixels[0] if len(pixels) == 1 else pixels.permute(1, 2, 0)))


def _boxed(picture: Image.Image, found: Detections, classes: Classes | None) -> Image.Image:
    """A window with what a detector found drawn on it."""
    picture = picture.convert("RGB")
    draw = ImageDraw.Draw(picture)
    for box, label, score in zip(found.boxes[0].tolist(), found.labels[0].tolist(), found.scores[0].tolist(), strict=True):
        if label >= 0:
            draw.rectangle(box, outline=YELLOW, width=3)
            told = f"{classes.short_name(label) if classes is not None else label} {score:.0%}"
            place = max(0, box[0]) + 5, max(0, box[1]) + 4
            draw.rectangle(draw.textbbox(place, told, font_size=15), fill=YELLOW)
            draw.text(place, told, fill=(0, 0, 0), font_size=15)
    return picture
