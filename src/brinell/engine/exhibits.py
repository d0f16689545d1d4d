"""Pictures for the report, made again from what the rows say: failure points, and the images that break first.

They are stored with the run, so that the report needs neither the model nor the dataset.
"""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from typing import Any
from urllib.parse import quote

import duckdb
import torch
from PIL import Image, ImageDraw
from torch import Tensor

from brinell.config.criterion import DEFAULT_CRITERION
from brinell.criteria.criterion import find_criterion
from brinell.engine.clean import readable
from brinell.engine.evaluator import Bench
from brinell.engine.replay import Version, remade
from brinell.engine.shards import Entry, id_numbers, load_images
from brinell.lenses.fragility.pictures import write_window_exhibits
from brinell.lenses.geometry.findings import smallest_motions
from brinell.lenses.highlights.findings import Spotted, spotted
from brinell.lenses.knob.findings import Least, least
from brinell.lenses.profile.findings import Breaker, breakers, profiles
from brinell.models.model import Model
from brinell.motion.groups import GROUPS
from brinell.perturb.highlight import highlight_view
from brinell.perturb.operator import find_operator
from brinell.perturb.property import find_property
from brinell.runs.store import Store
from brinell.types import Dataset

BREAKERS = 3  # images shown for each model and operator


@dataclass(frozen=True)
class Exhibit:
    """One picture: an image under an operator at a level, and what the model said of it.

    `threshold` is the accuracy whose failure point it shows; None: the image is one of those that break first. A
    confidence of None: the model gives labels alone.
    """

    model: str
    operator: str
    image: str
    level: int
    threshold: float | None
    label: int
    prediction: int
    confidence: float | None
    correct: bool
    clean_confidence: float | None
    severities: tuple[float, ...] = ()
    field: int = 0
    told: str = ""
    colour: tuple[float, ...] = ()  # of a spot of light, whose numbers are then the severities
    clean_prediction: int | None = None
    motion: tuple[float, ...] = ()  # coordinates in the operator's group

    @property
    def version(self) -> Version:
        """How the picture is made."""
        if self.colour:
            red, green, blue = self.colour
            return Version(self.image, highlight_view("exact", (red, green, blue)), self.severities)
        if self.severities:
            return Version(self.image, find_property(self.operator), self.severities, self.field)
        return Version(self.image, find_operator(self.operator), (self.level,))

    @property
    def file(self) -> str:
        """Where the picture lies in the run's folder."""
        return f"{self._folder}/{quote(self.operator, safe='')}/{self.image}-{self.level}.webp"

    @property
    def clean_file(self) -> str:
        """Where the clean image lies; of one that moves, with the outline of what the moved one shows."""
        if self.motion:
            return f"{self._folder}/{quote(self.operator, safe='')}/{self.image}-clean.webp"
        return f"{self._folder}/clean/{self.image}.webp"

    @property
    def _folder(self) -> str:
        return f"exhibits/{quote(self.model, safe='')}"


def write_exhibits(store: Store, dataset: Dataset, models: Sequence[Model], seed: int, pool: ThreadPoolExecutor) -> None:
    """Choose, make and store the pictures of a finished run, once."""
    if store.exists("exhibits.json"):
        return
    connection, wanted = store.connect(), []
    for lens in store.manifest()["identity"]["config"]["lenses"]:
        if lens["name"] == "profile":
            wanted += _failure_points(connection) + _breaks_first(connection)
        elif lens["name"] == "knob":
            wanted += _least_changes(connection, lens["distance"], lens["resample"])
        elif lens["name"] == "fragility":
            write_window_exhibits(store, dataset, models, lens)
        elif lens["name"] == "highlights":
            wanted += _spots_that_break(connection, lens)
        elif lens["name"] == "geometry":
            wanted += _smallest_motions(connection)
    entries = {entry.image: entry for entry in reversed(readable(store.table("samples")))}  # the first of equal images
    for model in models:
        mine = [exhibit for exhibit in wanted if exhibit.model == model.name]
        if mine:
            _make(store, dataset, model, mine, entries, seed, pool)
    store.write(json.dumps([asdict(exhibit) for exhibit in wanted]).encode(), "exhibits.json")


def read_exhibits(store: Store) -> list[Exhibit]:
    """The stored pictures, or none."""
    if not store.exists("exhibits.json"):
        return []
    return [Exhibit(**record) for record in json.loads(store.read("exhibits.json"))]


def _failure_points(connection: duckdb.DuckDBPyConnection) -> list[Exhibit]:
    """One example image at each failure point of each model: the first one that all models get right when clean."""
    example = connection.execute(
        """select image from rows join samples using (image) where lens = 'profile' and level = 0 group by image
           order by bool_and(correct) desc, min(index) limit 1"""
    ).fetchone()
    if example is None:
        return []
    points = [failure for failure in profiles(connection).failures if failure.level]
    answers = {
        (model, operator, level): rest
        for model, operator, level, *rest in connection.execute(
            """select model, operator, level, label, prediction, confidence, correct from rows
               where lens = 'profile' and image = ?""",
            example,
        ).fetchall()
    }
    made = []
    for point in points:
        assert point.level is not None
        sure = answers[point.model, point.operator, 0][2]
        label, prediction, confidence, correct = answers[point.model, point.operator, point.level]
        at = (point.model, point.operator, example[0], point.level, point.threshold)
        made.append(Exhibit(*at, label, prediction, confidence, correct, sure))
    return made


def _breaks_first(connection: duckdb.DuckDBPyConnection) -> list[Exhibit]:
    return [_broken(found, found.clean_confidence) for found in breakers(connection, BREAKERS)]


def _broken(found: Breaker | Least | Spotted, clean_confidence: float | None) -> Exhibit:
    """A picture of an image that a model loses."""
    return Exhibit(
        model=found.model,
        operator=found.operator,
        image=found.image,
        level=found.level,
        threshold=None,
        label=found.label,
        prediction=found.prediction,
        confidence=found.confidence,
        correct=False,
        clean_confidence=clean_confidence,
    )


def _least_changes(connection: duckdb.DuckDBPyConnection, distance: str, resample: bool) -> list[Exhibit]:
    """For each model and property the images that the smallest changes break."""
    sure = _clean_confidences(connection)
    return [
        replace(
            _broken(found, sure[found.model, found.image]),
            severities=found.severities,
            field=found.level if resample else 0,
            told=f"{find_property(found.operator).facts.tell(abs(found.amount))}, {distance} {found.distance:.2g}",
        )
        for found in least(connection, BREAKERS, distance)
    ]


def _spots_that_break(connection: duckdb.DuckDBPyConnection, options: Mapping[str, Any]) -> list[Exhibit]:
    """For each model the images that the least light breaks, with the spot on the object and beside it."""
    sure = _clean_confidences(connection)
    made = []
    for found in spotted(connection, BREAKERS, options):
        where = "" if found.inside is None else ", on the object" if found.inside else ", beside the object"
        told = f"σ {found.spot[2]:.3g} px{where}: {found.light:.2g} grey levels"
        exhibit = _broken(found, sure[found.model, found.image])
        made.append(replace(exhibit, severities=found.spot, told=told, colour=tuple(options["colour"])))
    return made


def _clean_confidences(connection: duckdb.DuckDBPyConnection) -> dict[tuple[str, str], float | None]:
    return {
        (model, image): confidence
        for model, image, confidence in connection.execute(
            "select model, image, any_value(clean.confidence) from clean join samples using (index) group by all"
        ).fetchall()
    }


def _smallest_motions(connection: duckdb.DuckDBPyConnection) -> list[Exhibit]:
    """For each model, group and method the images that the smallest motions fool."""
    return [
        Exhibit(
            model=found.model,
            operator=found.operator,
            image=found.image,
            level=0,
            threshold=None,
            label=found.label,
            prediction=found.prediction,
            confidence=None,
            correct=False,
            clean_confidence=found.clean_confidence,
            told=f"score {found.score:.2f}: {found.told}",
            clean_prediction=found.clean_prediction,
            motion=found.motion,
        )
        for found in smallest_motions(connection, BREAKERS)
    ]


def _make(
    store: Store,
    dataset: Dataset,
    model: Model,
    wanted: list[Exhibit],
    known: dict[str, Entry],
    seed: int,
    pool: ThreadPoolExecutor,
) -> None:
    labels = {exhibit.image: exhibit.label for exhibit in wanted}
    entries = [known[image] for image in labels]
    originals = any(exhibit.colour or exhibit.motion for exhibit in wanted)
    loaded = load_images(dataset, entries, model.preprocess, pool, with_originals=originals)
    inputs = loaded.inputs
    bench = Bench(
        model,
        inputs,
        id_numbers(entries),
        torch.tensor(list(labels.values())),
        criterion=find_criterion(DEFAULT_CRITERION, detector=model.detector is not None),
        seed=seed,
        batch=8,
        originals=loaded.originals,
    )
    places = {entry.image: place for place, entry in enumerate(entries)}
    for exhibit in wanted:
        if exhibit.motion:
            clean, moved = _moved(bench, exhibit, places[exhibit.image])
            store.write(clean, exhibit.clean_file)
            store.write(moved, exhibit.file)
        else:
            store.write(webp(inputs[places[exhibit.image]]), exhibit.clean_file)
    still = [exhibit for exhibit in wanted if not exhibit.motion]
    for number, image in remade(bench, [exhibit.version for exhibit in still], places):
        store.write(webp(image), still[number].file)


def _moved(bench: Bench, exhibit: Exhibit, place: int) -> tuple[bytes, bytes]:
    """A whole image with the outline of what is seen of it after its motion, and the moved image."""
    group = GROUPS[exhibit.operator.partition(":")[0]]
    matrices = group.exp(torch.tensor([exhibit.motion], dtype=torch.float64))
    sample, still = torch.tensor([place]), torch.eye(3, dtype=torch.float64)[None]
    shape = bench.stage.shape(place)
    scale = max(1, -(-120 // min(shape)))  # small images are drawn larger
    corners = torch.tensor([[-1, -1, 1], [1, -1, 1], [1, 1, 1], [-1, 1, 1]], dtype=torch.float64)
    corners[:, :2] *= torch.tensor([(shape[1] - 1) / 2, (shape[0] - 1) / 2], dtype=torch.float64)
    seen = (matrices[0] @ corners.T).T
    outline = (seen[:, :2] / seen[:, 2:] + torch.tensor([(shape[1] - 1) / 2, (shape[0] - 1) / 2]) + 0.5) * scale
    pictures = []
    for way in (still, matrices):
        levels = bench.stage.moved(sample, way)[0, :, : shape[0], : shape[1]].cpu()
        array = levels[0].numpy() if len(levels) == 1 else levels.permute(1, 2, 0).numpy()
        picture = Image.fromarray(array).convert("RGB")
        pictures.append(picture.resize((shape[1] * scale, shape[0] * scale), Image.Resampling.NEAREST))
    ImageDraw.Draw(pictures[0]).polygon([tuple(point) for point in outline.tolist()], outline=(228, 87, 46), width=2)
    return _encoded(pictures[0]), _encoded(pictures[1])


def webp(image: Tensor) -> bytes:
    """A model input as a small picture file."""
    array = image[0].numpy() if len(image) == 1 else image.permute(1, 2, 0).numpy()
    return _encoded(Image.fromarray(array))


def _encoded(picture: Image.Image) -> bytes:
    sink = io.BytesIO()
    picture.save(sink, "webp", quality=90)
    return sink.getvalue()
