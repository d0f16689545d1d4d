"""Where models look before and after a change: trials of any lens are made again from their rows, and heat maps compared.

For each model and operator some changed images that fail are looked at and, as a control, as many that don't; only images
that the model gets right when clean. Windows are compared with the right ones beside them, everything else with the clean
image. The pairs go to attention.parquet, and the most telling ones are drawn.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from typing import Any
from urllib.parse import quote

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor

from brinell.config.criterion import DEFAULT_CRITERION
from brinell.config.saliency import SaliencyOptions
from brinell.criteria.criterion import find_criterion
from brinell.draws import permutation
from brinell.engine.clean import readable
from brinell.engine.evaluator import Bench
from brinell.engine.exhibits import webp
from brinell.engine.progress import Reporter
from brinell.engine.shards import Entry, id_numbers, load_images
from brinell.engine.threads import halving, one_each_core
from brinell.lenses.lens import LENSES, Lens, LensOptions, Trials
from brinell.lenses.reader import FAILURES, parameters
from brinell.models.model import Model
from brinell.perturb.operator import Operator
from brinell.run_config import RunConfig
from brinell.runs.schema import ATTENTION
from brinell.runs.store import Store
from brinell.saliency.layers import NoAttention
from brinell.saliency.mapper import Eyes, open_eyes
from brinell.saliency.overlays import sheet
from brinell.saliency.shift import Drift, drift, hot
from brinell.types import Dataset

TOGETHER = 64  # images that are loaded at once
BATCH = 16
SHOWN = 2  # pairs that are drawn for each model and operator
TOLD = ("level", "severity", "spot_x", "spot_y", "sigma")  # of a row, beside its drift
_ROWS = {  # those that tell one changed image each
    "geometry": "motion is not null",
    "fragility": "fall is not null and operator like 'windows:%'",
}
_USUAL_ROWS = "coalesce(level, 1) > 0 and (status is null or status = 'broken')"
_CHANGED = """
    with known as (
        select model, image, bool_or(clean.correct) as is_right from clean join samples using (index) group by all),
    pairs as (  -- what an image is compared with: itself before the change, or the original that it is a variant of
        select own.image, any_value(case when $lens = 'photographs' then base.image else own.image end) as clean_image
        from samples own left join samples base
             on base.original = own.original and base.variant is null and own.variant is not null
        where own.image is not null group by all)
    select rows.image, pairs.clean_image, rows.label, rows.prediction::double as prediction,
           coalesce(not rows.correct, true) as failed, {parameters} as parameters, {told}
    from rows join pairs using (image) join known on known.model = rows.model and known.image = pairs.clean_image
    where lens = $lens and rows.model = $model and operator = $operator and is_right and {which}
    order by all
"""


@dataclass(frozen=True)
class Glance:
    """A drawn pair: a changed image, what the model said of both, and how far its attention moved."""

    lens: str
    model: str
    operator: str
    image: str
    label: int
    prediction: int
    overlap: float
    moved: bool
    file: str


@dataclass(frozen=True)
class Look:
    """One lens's changes of one operator, to be looked at through one model's eyes."""

    lens: Lens
    options: LensOptions
    operator: str
    eyes: Eyes
    how: SaliencyOptions
    seed: int

    @property
    def answered(self) -> bool:
        """Whether rows have the answers to the very images; otherwise the model is asked again."""
        return self.lens.name not in FAILURES or FAILURES[self.lens.name].answers

    @property
    def pairs(self) -> bool:
        """Whether images are compared with others than the clean ones."""
        return self.lens.name in FAILURES and FAILURES[self.lens.name].pairs


def attend(
    store: Store,
    config: RunConfig,
    models: Sequence[Model],
    dataset: Dataset,
    how: SaliencyOptions,
    pool: ThreadPoolExecutor,
    reporter: Reporter,
) -> None:
    """Compare attention for all lenses and models of a run, unless that was done before."""
    manifest = store.manifest()
    asked = how.model_dump(mode="json")
    if manifest.get("attention", {}).get("options") == asked and store.exists("attention.parquet"):
        return
    connection = store.connect()
    entries = {entry.image: entry for entry in reversed(readable(store.table("samples")))}  # the first of equal images
    layers, without, tables, glances = {}, {}, [ATTENTION.empty_table()], []
    for model in models:
        try:
            eyes = open_eyes(model, how.method, how.layer_of(model.name))
        except NoAttention as reason:
            without[model.name] = str(reason)
            reporter.say(f"attention of {model.name} can't be told: {reason}")
            continue
        layers[model.name] = eyes.layer.name
        looks = [
            (Look(LENSES[options.name], options, operator, eyes, how, config.seed), found)
            for options in config.lenses
            for operator in _operators(connection, options.name, model.name)
            for found in [_chosen(connection, options.name, model.name, operator, how.pairs, config.seed)]
        ]
        advance = reporter.stage(f"attention of {model.name}", sum(len(found["image"]) for _, found in looks), "pairs")
        with eyes:
            for look, found in looks:
                table, places = _looked(look, found, entries, dataset, pool, advance)
                tables.append(table)
                glances += _drawn(store, look, table, places, found, entries, dataset, pool)
    store.write_table("attention", pa.concat_tables(tables).unify_dictionaries())
    store.write(json.dumps([asdict(glance) for glance in glances]).encode(), "attention", "pairs.json")
    manifest = store.manifest()
    manifest["attention"] = {"options": asked, "layers": layers, "without": without}
    store.write_manifest(manifest)


def read_glances(store: Store) -> list[Glance]:
    """The drawn pairs, or none."""
    if not store.exists("attention", "pairs.json"):
        return []
    return [Glance(**record) for record in json.loads(store.read("attention", "pairs.json"))]


def _operators(connection: Any, lens: str, model: str) -> list[str]:
    found = connection.execute(
        "select distinct operator from rows where lens = ? and model = ? order by all", [lens, model]
    ).fetchall()
    return [operator for (operator,) in found]


def _chosen(connection: Any, lens: str, model: str, operator: str, most: int, seed: int) -> dict[str, np.ndarray]:
    """Rows to look at, by column: as many as asked that fail, and as many that don't, by an order that the seed names."""
    told = ", ".join(f"rows.{name}::double as {name}" for name in TOLD)
    sql = _CHANGED.format(parameters=parameters(lens), told=told, which=_ROWS.get(lens, _USUAL_ROWS))
    given = {"lens": lens, "model": model, "operator": operator}
    found = {name: _filled(values) for name, values in connection.execute(sql, given).fetchnumpy().items()}
    failed = found["failed"].astype(bool)
    kept = []
    for kind in (failed, ~failed):
        places = np.flatnonzero(kind)
        kept.append(places[permutation(len(places), seed)[:most]])
    order = np.sort(np.concatenate(kept))  # by image
    return {name: values[order] for name, values in found.items()}


def _filled(values: Any) -> np.ndarray:
    """A column with NaN where it is empty; words as texts."""
    if isinstance(values, np.ma.MaskedArray):
        values = np.ma.filled(values.astype(np.float64), np.nan) if np.ma.is_masked(values) else values.data
    return np.asarray(values)


def _looked(
    look: Look,
    found: dict[str, np.ndarray],
    entries: dict[str, Entry],
    dataset: Dataset,
    pool: ThreadPoolExecutor,
    advance: Callable[[int], None],
) -> tuple[pa.Table, list[int]]:
    """The drift of every chosen row, and of its control where the lens has one; and which rows they are of."""
    tables, places = [ATTENTION.empty_table()], []
    for part in _by_images(found["image"]):
        desk = _Desk(look, {name: values[part] for name, values in found.items()}, entries, dataset, pool)
        for table, rows in desk.tables(controlled=not found["failed"].all()):
            tables.append(table)
            places += part[rows].tolist()
        advance(len(part))
    return pa.concat_tables(tables), places


def _by_images(images: np.ndarray) -> Iterable[np.ndarray]:
    """Places of rows, as many as are of so many images."""
    if not len(images):
        return []
    _, number = np.unique(images, return_inverse=True)
    return [
        places
        for group in range(0, int(number.max()) + 1, TOGETHER)
        if len(places := np.flatnonzero((number >= group) & (number < group + TOGETHER)))
    ]


class _Desk:
    """Some images and their rows, ready to be looked at."""

    def __init__(
        self,
        look: Look,
        rows: dict[str, np.ndarray],
        entries: dict[str, Entry],
        dataset: Dataset,
        pool: ThreadPoolExecutor,
    ) -> None:
        self.look, self.rows = look, rows
        self.model = look.eyes.model
        both = np.concatenate([rows["image"].astype(str), rows["clean_image"].astype(str)])
        known, places = np.unique(both, return_inverse=True)
        self.samples, self.before = torch.from_numpy(places).chunk(2)
        own = [entries[image] for image in known]
        images = load_images(dataset, own, self.model.preprocess, pool, with_originals=look.lens.originals)
        labels = torch.zeros(len(own), dtype=torch.int64)
        labels[self.samples] = labels[self.before] = torch.from_numpy(rows["label"].astype(np.int64))
        self.bench = Bench(
            self.model,
            images.inputs,
            id_numbers(own),
            labels,
            criterion=find_criterion(DEFAULT_CRITERION, detector=self.model.detector is not None),
            seed=look.seed,
            batch=BATCH,
            originals=images.originals,
        )
        self.labels = self.bench.labels[self.samples.to(self.model.device)]  # the rows'
        if look.pairs:
            self.before = torch.arange(len(self.samples))
            right = self.trials(right=True)
            self.first, labels = self.images(right, self.before), self.labels
            self.first_said, _ = self.asked(self.first, right, self.before)
        else:
            self.first, self.first_said = self.bench.inputs, self.bench.clean.verdict.prediction
            labels = self.bench.labels
        self.clean = self.maps(self.first, self.target(self.first_said, labels))

    def tables(self, *, controlled: bool) -> Iterator[tuple[pa.Table, np.ndarray]]:
        """Drifts of the rows, and which rows they are of; unless the rows are `controlled` by some that don't fail, also of
        what stands beside them and doesn't.
        """
        trials, every = self.trials(), torch.arange(len(self.samples))
        said = torch.from_numpy(np.nan_to_num(self.rows["prediction"].astype(np.float64)).astype(np.int64))
        yield self.compared(trials, every, said if self.look.answered else None)
        again = self.look.lens.again
        if self.look.pairs:
            others = other_way(trials.levels, self.trials(right=True).levels)
            rows = self._with_room(others)
            there = replace(trials, samples=trials.samples[rows], levels=others[rows])
            yield self.compared(there, rows, None, control=True)
        elif again is not None and again.weaker is not None and not controlled:
            yield self.compared(again.weaker(trials), every, None, control=True)

    def compared(
        self, trials: Trials, rows: Tensor, said: Tensor | None, *, control: bool = False
    ) -> tuple[pa.Table, np.ndarray]:
        """Drifts of trials of these rows. Unless it is known what the model `said`, it is asked, and that tells who fails;
        of controls those that don't are kept.
        """
        own, drifts, order, kept, lost = self.labels[rows.to(self.labels.device)], [], [], [], []
        told = torch.from_numpy(self.rows["failed"].astype(bool))
        for part in _parts(trials):
            images = self.images(trials, part)
            if said is None:
                predicted, broken = self.asked(images, trials, part)
            else:
                predicted, broken = said[part].to(images.device), told[rows[part]]
            maps = self.maps(images, self.target(predicted, own[part.to(own.device)]))
            drifts.append(drift(self.clean[self.before[rows[part]].to(maps.device)], maps, self.look.how.cells))
            order.append(part)
            kept.append(predicted.cpu())
            lost.append(broken.cpu())
        if not order:
            return ATTENTION.empty_table(), np.empty(0, np.int64)
        places, predictions, failed = rows[torch.cat(order)].numpy(), torch.cat(kept).numpy(), torch.cat(lost).numpy()
        if self.look.pairs and not control:
            failed = told.numpy()[places]  # by the lens's own criterion, of these very windows
        table = self._table(drifts, places, predictions, failed, control)
        return (table.filter(pa.array(~failed)), places[~failed]) if control else (table, places)

    def asked(self, images: Tensor, trials: Trials, part: Tensor) -> tuple[Tensor, Tensor]:
        """What the model says of images of some trials, and whether that is wrong."""
        found = [
            self.bench.judged(some, trials.samples[own].to(some.device), trials.operator, trials.levels[own])
            for some, own in zip(torch.split(images, BATCH), torch.split(part, BATCH), strict=True)
        ]
        return torch.cat([read.prediction for read, *_ in found]), torch.cat([broken for _, broken, _ in found])

    def trials(self, *, right: bool = False) -> Trials:
        """The rows' trials; in pairs of what fails, or of what is `right`."""
        again, options, pre = self.look.lens.again, self.look.options, self.model.preprocess
        assert again is not None
        parameters = torch.from_numpy(np.stack([np.asarray(own, np.float64) for own in self.rows["parameters"]]))
        if self.look.pairs:
            parameters = parameters.chunk(2, 1)[int(right)]
        level = torch.from_numpy(np.nan_to_num(self.rows["level"].astype(np.float64)))
        change = again.change(options, self.look.operator, (pre.height, pre.width))
        return again.trials(options, change, self.samples, parameters, level)

    def _with_room(self, windows: Tensor) -> Tensor:
        """Which windows lie in their images."""
        sizes = torch.tensor([self.bench.originals[sample].shape[1:] for sample in self.samples.tolist()]).flip(1)
        corners, side = windows[:, :2], windows[:, 2:]
        return ((corners >= 0) & (corners + side <= sizes)).all(1).nonzero()[:, 0]

    def images(self, trials: Trials, part: Tensor) -> Tensor:
        """The inputs of some trials."""
        fields = None if trials.fields is None else trials.fields[part]
        some = Trials(trials.samples[part], trials.operator, trials.levels[part], fields)
        return self.bench.images(some, slice(0, len(part)))

    def drawn(self, one: dict[str, Any]) -> Tensor:
        """The picture of the first pair, of which this row of drift is."""
        image = self.images(self.trials(), torch.tensor([0]))
        said, label = (torch.tensor([one[name]], device=image.device) for name in ("prediction", "label"))
        before = self.before[:1].to(image.device)
        maps = torch.cat([self.clean[before], self.maps(image, self.target(said, label))]).cpu()
        images = torch.cat([self.first[before], image]).cpu()
        return sheet(images, maps, hot(maps), [one["clean_cell"], one["cell"]], self.look.how.cells)

    def target(self, predictions: Tensor, labels: Tensor) -> Tensor:
        """Which class's map is made of each image."""
        if self.look.how.target == "label" or self.model.detector is not None:
            return labels
        return predictions

    def maps(self, images: Tensor, classes: Tensor) -> Tensor:
        """Heat maps in batches."""

        def ask(part: slice) -> Tensor:
            return self.look.eyes.maps(images[part], classes[part])

        if self.model.device.type == "cpu":
            parts = [slice(start, start + BATCH) for start in range(0, len(images), BATCH)]
            return torch.cat(list(one_each_core(ask, parts)))
        return torch.cat(halving(ask, len(images), 8 * BATCH)[0])

    def _table(
        self, drifts: list[Drift], place: np.ndarray, predictions: np.ndarray, failed: np.ndarray, control: bool
    ) -> pa.Table:
        values = {name: torch.cat([getattr(one, name) for one in drifts]).cpu().numpy() for name in vars(drifts[0])}
        count = len(place)
        columns: dict[str, Any] = {
            "lens": [self.look.lens.name] * count,
            "model": [self.model.name] * count,
            "operator": [self.look.operator] * count,
            "image": self.rows["image"][place].astype(str),
            "label": self.rows["label"][place],
            "clean_prediction": self.first_said.cpu().numpy()[self.before.numpy()[place]],
            "prediction": predictions,
            "failed": failed,
            "tied": values["tied"],
        }
        for name in TOLD:
            told = self.rows[name][place].astype(np.float64)
            unknown = np.ones(count, bool) if control else np.isnan(told)  # a control has numbers of its own
            columns[name] = pa.array(np.nan_to_num(told), mask=unknown)
        empty = (values["clean_cell"] < 0) | (values["cell"] < 0)
        for kind in ("", "equal_"):
            before, after = values[f"clean_{kind}cell"], values[f"{kind}cell"]
            columns |= {f"clean_{kind}cell": pa.array(before, mask=empty), f"{kind}cell": pa.array(after, mask=empty)}
            columns[f"{kind}moved"] = pa.array(before != after, mask=empty)
        for name in ("overlap", "distance"):
            columns[name] = pa.array(values[name].astype(np.float64), mask=np.isnan(values[name]))
        return pa.table({f.name: pa.array(columns[f.name]).cast(f.type) for f in ATTENTION}, schema=ATTENTION)


def other_way(windows: Tensor, beside: Tensor) -> Tensor:
    """Windows (left, top, side) that lie on the other side of those `beside` them: shifted or shrunk as much."""
    shrunk = beside[:, 2:] - windows[:, 2:]
    return torch.cat([2 * beside[:, :2] + shrunk - windows[:, :2], windows[:, 2:]], 1)


def _parts(trials: Trials) -> list[Tensor]:
    """Places of trials that can be made together: those of an operator level by level, so that each image is there once."""
    if not isinstance(trials.operator, Operator):
        return list(torch.split(torch.arange(len(trials.samples)), 4 * BATCH))
    return [(trials.levels == level).nonzero()[:, 0] for level in sorted(set(trials.levels.tolist()))]


def _drawn(
    store: Store,
    look: Look,
    table: pa.Table,
    places: Sequence[int],
    found: dict[str, np.ndarray],
    entries: dict[str, Entry],
    dataset: Dataset,
    pool: ThreadPoolExecutor,
) -> list[Glance]:
    """Draw the failing pairs whose maps have the least in common, each of another image."""
    records = [
        one | {"place": place}
        for one, place in zip(table.to_pylist(), places, strict=True)
        if one["failed"] and one["overlap"] is not None and one["moved"] is not None
    ]
    records.sort(key=lambda one: (not one["moved"], one["overlap"]))
    shown = list({one["image"]: one for one in reversed(records)}.values())[::-1][:SHOWN]
    glances = []
    for number, one in enumerate(shown):
        place = one["place"]
        desk = _Desk(look, {name: values[place : place + 1] for name, values in found.items()}, entries, dataset, pool)
        folder, operator = quote(desk.model.name, safe=""), quote(look.operator, safe="")
        file = f"attention/{folder}/{look.lens.name}-{operator}-{number}.webp"
        store.write(webp(desk.drawn(one)), file)
        facts = (look.lens.name, desk.model.name, look.operator, one["image"], one["label"], one["prediction"])
        glances.append(Glance(*facts, one["overlap"], one["moved"], file))
    return glances
