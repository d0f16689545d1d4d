"""The package from Python: run a test, or open one that was run, and look at what it found."""

from __future__ import annotations

import copy
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import duckdb
from torch import nn

from brinell.classes import Classes
from brinell.comparison.contrasts import Contrasts, contrasts
from brinell.comparison.gates import Gate, Judgement, judge, load_gate
from brinell.comparison.leaderboard import Leaderboard
from brinell.comparison.leaderboard import leaderboard as ranked
from brinell.config.data import DataOptions
from brinell.config.detection import Decoding
from brinell.config.execution import Execution
from brinell.config.model import ModelOptions
from brinell.config.saliency import AttentionOptions
from brinell.curation.curate import Curated
from brinell.curation.curate import curate as curate_stores
from brinell.curation.moved import Written, write_moved
from brinell.curation.options import CurateOptions
from brinell.engine.progress import reporter
from brinell.engine.runner import Parts, assemble, execute, look
from brinell.errors import ConfigError, RunError
from brinell.hardening.harden import Hardened
from brinell.hardening.harden import harden as carried_out
from brinell.hardening.options import HardenConfig, load_harden_config
from brinell.lenses.analysis import Findings, findings
from brinell.lenses.fragility.findings import read_maps
from brinell.lenses.fragility.fragile import KINDS
from brinell.lenses.fragility.human import Comparison, compared, read_human
from brinell.lenses.fragility.maps import Maps
from brinell.lenses.lens import LensOptions
from brinell.lenses.profile.charts import Figure
from brinell.lenses.profile.findings import METRICS, THRESHOLDS, Profiles
from brinell.models.model import Description, Model
from brinell.models.modules import from_module
from brinell.models.preprocess import Preprocess
from brinell.models.sources import open_model
from brinell.registry import nearest
from brinell.report.page import write_figures, write_report
from brinell.report.parts import PARTS
from brinell.run_config import RunConfig, load_config
from brinell.runs.store import Store
from brinell.saliency.findings import Attention
from brinell.tracking.server import Server
from brinell.tracking.track import Tracked
from brinell.tracking.track import track as track_store
from brinell.types import Interpolation
from brinell.validation import read_yaml, validate

ModelLike = str | Mapping[str, Any] | ModelOptions | Model


class Run:
    """A run's folder: its rows, and what follows from them. Shows its summary in a notebook."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.store = Store(folder)
        if not self.store.exists("manifest.json"):
            raise RunError(f"{os.fspath(folder)} is not the folder of a brinell run: it has no manifest.json")
        self.store.manifest()  # is it a run's?

    @property
    def folder(self) -> str:
        """Where the run lies."""
        return self.store.url

    @property
    def manifest(self) -> dict[str, Any]:
        """What ran."""
        return self.store.manifest()

    def rows(self, sql: str = "select * from rows") -> duckdb.DuckDBPyRelation:
        """Ask the tables `rows`, `samples` and `clean` a question. The answer has .df(), .arrow(), .fetchall() and more."""
        with question():
            answer: duckdb.DuckDBPyRelation | None = self.store.connect().sql(sql)
        if answer is None:
            raise RunError("the question can't be answered: it asks for nothing; begin it with select")
        return answer

    def summary(self, thresholds: tuple[float, ...] = THRESHOLDS, lens: str | None = None) -> Findings:
        """What a lens found, the run's first one unless named: profiles and failure points, or smallest changes."""
        found = self.findings(thresholds)
        if lens is None:
            lens = next(iter(found))
        if lens not in found:
            raise ConfigError(f"this run has no lens {lens!r}; {nearest(lens, list(found))}")
        return found[lens]

    def findings(
        self, thresholds: tuple[float, ...] = THRESHOLDS, at_least: tuple[int, ...] | None = None
    ) -> dict[str, Findings]:
        """What every lens of the run found, by the lens's name."""
        return findings(self.store.connect(), self.manifest, thresholds, at_least)

    def attention(
        self,
        how: Mapping[str, Any] | AttentionOptions | None = None,
        *,
        models: Sequence[Model] | None = None,
        data: Any = None,
        quiet: bool = False,
    ) -> Attention:
        """Compare where the models look, on clean images and on changed ones, and give what is found.

        Models and data are opened again as the run named them; what was given as an object is to be given again.
        """
        config = load_config(self.manifest["source"])
        lost = [one.source for one in config.models if one.source.startswith("object:")]
        if models is None and lost:
            raise ConfigError(f"the run was given a model as an object ({lost[0]}); give it again: attention(models=[…])")
        if data is None and config.data.source.startswith("object:"):
            raise ConfigError("the run was given its data as an object; give it again: attention(data=…)")
        options = how if isinstance(how, AttentionOptions) else validate(AttentionOptions, dict(how or {}))
        with reporter(quiet) as telling:
            look(self.store, options, assemble(config, models, data), telling)
        found = self.findings()["attention"]
        assert isinstance(found, Attention)
        return found

    def maps(self, model: str, operator: str, image: str) -> Maps:
        """What a model answered to all windows of a size ("windows:0.2") of an image (its id in the rows)."""
        return read_maps(self.store, model, operator, image)

    def beside_people(self, human: str | os.PathLike[str], operator: str) -> dict[str, list[Comparison]]:
        """People's minimal images (see `read_human`) beside the strict-shrink maps of each model, at a size of windows."""
        found = self.summary(lens="fragility")
        windows = [name for name in found.operators if name.startswith("windows:")]
        if operator not in windows:
            raise ConfigError(f"this run has no {operator!r}; {nearest(operator, windows)}")
        people = read_human(Path(human))
        return {model: compared(self.store, people, model, operator) for model in found.models}

    def report(self) -> str:
        """Write the HTML report into the run's folder and give its place."""
        return write_report(self.store)

    def figures(self, folder: str = "figures") -> list[str]:
        """Write all figures as SVG and PNG into a folder of the run's."""
        return write_figures(self.store, folder)

    def figure(self, name: str | None = None, **choice: str | None) -> Figure:
        """One figure as an Altair chart.

        Of profiles: "average", "operators" or "areas" (choose model=…, metric=…); of smallest changes: "robustness",
        "fooling", "thresholds" or "sides" (choose operator=…); of fragile windows: "fragile" (choose kind=…), "recognised"
        or "location"; of highlights: "highlight-accuracy", "-sizes", "-cells" or "-place"; of attention: "attention-moved";
        of motions: "invariance", "misclassification", "random" or "generators". Without a name, the first of the run's
        first lens.
        """
        makers = {
            key: (found, *maker) for found in self.findings().values() for key, maker in PARTS[type(found)].named.items()
        }
        name = name or next(iter(makers))
        if name not in makers:
            raise ConfigError(f"there is no figure {name!r}; known: {', '.join(makers)}")
        found, maker, offered = makers[name]
        metrics = found.metrics if isinstance(found, Profiles) else METRICS
        known = {"model": found.models, "operator": found.operators, "metric": list(metrics), "kind": list(KINDS)}
        for key, asked in choice.items():
            if key not in known:
                raise ConfigError(f"a figure can't be chosen by {key!r}; {nearest(key, list(known))}")
            if key not in offered:
                raise ConfigError(f"the figure {name!r} can't be chosen by {key}")
            if asked is not None and asked not in known[key]:
                raise ConfigError(f"there is no {asked!r} in this run; {nearest(asked, known[key])}")
        return maker(found, **{key: choice[key] for key in offered if key in choice})

    def write_moved(
        self,
        file: str | os.PathLike[str],
        operator: str,
        *,
        score: float | None = None,
        model: Model | None = None,
        data: Any = None,
    ) -> Written:
        """Write the images as the run's motions left them, with their true labels: data to train on.

        `operator` is as rows have it: "affine:manifool" for the smallest motions, "affine:random" for random ones of a
        score. The file is an .npz or a folder. A model or data that was given to the run as an object is to be given again.
        """
        config = load_config(self.manifest["source"])
        dataset = None if data is None else _data(data)[1]
        parts = assemble(config, None if model is None else [model], dataset)
        return write_moved(self.store, parts, Path(file), operator, score)

    def track(self, to: str | Server | None = None, *, experiment: str | None = None, quiet: bool = False) -> Tracked:
        """Log the run to an MLflow server: a parent run with the report, and a nested one for each lens and operator.

        `to` is the server's URI, or what MLFLOW_TRACKING_URI says. What was logged before is not logged again.
        """
        server = to if isinstance(to, Server) else Server(to, experiment)
        with reporter(quiet) as telling:
            return track_store(self.store, server, telling)

    def __repr__(self) -> str:
        return f"Run({self.folder!r})"

    def _repr_html_(self) -> str:
        return self.summary()._repr_html_()


RunLike = str | os.PathLike[str] | Run


@contextmanager
def question() -> Iterator[None]:
    """Turn DuckDB's errors, which can come as late as the answer is read, into ours."""
    try:
        yield
    except duckdb.Error as error:
        raise RunError(f"the question can't be answered: {str(error).strip()}") from None


def run(
    model: ModelLike | Sequence[ModelLike],
    data: Any,
    *,
    lens: str | Mapping[str, Any] | LensOptions = "profile",
    select: str = "all",
    seed: int = 0,
    attention: bool | Mapping[str, Any] = False,
    out: str | os.PathLike[str] | None = None,
    execution: Execution | None = None,
    quiet: bool = False,
) -> Run:
    """Test models on data, or go on with a test that was stopped, and give the run.

    Models are strings ("timm:resnet50", "onnx:FILE"), or modules wrapped by `wrap`. Data is a path, a mapping with a
    `source` and options (limit, shuffle, labels), or any sequence of (image, label). With `attention` (True, or options) it
    is compared where torch models look, too.
    """
    parts = assembled(
        model,
        data,
        lens=lens,
        select=select,
        seed=seed,
        attention=attention,
        out=out,
        execution=execution or Execution(),
    )
    with reporter(quiet) as telling:
        store = execute(parts, telling)
    return Run(store.url)


def compare(
    *runs: Run | str | os.PathLike[str],
    pairs: Sequence[str] = (),
    other_draws: bool = False,
    common_images: bool = False,
    alpha: float = 0.05,
) -> Contrasts:
    """Compare runs with the first of them, or the models of one run with its first, image by image.

    Models are matched by `pairs` ("OLD=NEW"), else by name, else the only one of each. Runs must have asked the same about
    the same images; `other_draws` lets their seeds differ, `common_images` compares the images that both have.
    """
    folders = [one.folder if isinstance(one, Run) else one for one in runs]
    return contrasts(folders, pairs, other_draws=other_draws, common_images=common_images, alpha=alpha)


def gate(found: Contrasts, rules: str | os.PathLike[str] | Mapping[str, Any] | Gate) -> Judgement:
    """Judge what was compared by rules: a YAML file, or the same as a mapping."""
    if isinstance(rules, (str, os.PathLike)):
        rules = load_gate(Path(rules))
    return judge(rules if isinstance(rules, Gate) else validate(Gate, dict(rules)), found)


def leaderboard(*runs: Run | str | os.PathLike[str], other_draws: bool = False) -> Leaderboard:
    """Rank the models of some runs over all that they were measured by."""
    return ranked([one.folder if isinstance(one, Run) else one for one in runs], other_draws=other_draws)


def wrap(
    module: nn.Module,
    *,
    size: int | tuple[int, int] = 224,
    mean: Sequence[float] = (0.0,),
    std: Sequence[float] = (1.0,),
    classes: Sequence[str] | Classes | None = None,
    name: str | None = None,
    channels: int = 3,
    short_side: int | None = None,
    interpolation: Interpolation = "bicubic",
    detection: Mapping[str, Any] | Decoding | None = None,
    execution: Execution | None = None,
) -> Model:
    """A torch module as a model: it gets images as (x/255 - mean) / std at `size` and gives class scores (N, K).

    `short_side` resizes the shorter side to that and cuts out the middle; without it images are stretched, in either case
    by `interpolation`. `detection` makes it a detector, and says how its boxes and scores are read (see `Decoding`): {} if
    there is nothing to say.
    """
    height, width = (size, size) if isinstance(size, int) else size
    own = copy.deepcopy(module)  # it is frozen, moved and cast, and the caller's may still be trained
    description = Description(
        name=name or type(module).__name__,
        source=f"object:{type(module).__qualname__}",
        preprocess=Preprocess(height, width, channels, short_side, interpolation, tuple(mean), tuple(std)),
        classes=classes if classes is None or isinstance(classes, Classes) else Classes(tuple(classes)),
    )
    decoding = detection if isinstance(detection, Decoding | None) else validate(Decoding, dict(detection))
    return from_module(own, description, execution or Execution(), decoding)


def curate(
    runs: RunLike | Sequence[RunLike],
    out: str | os.PathLike[str],
    options: CurateOptions | Mapping[str, Any] | None = None,
    *,
    data: Any = None,
    models: Sequence[Model] = (),
    execution: Execution | None = None,
    quiet: bool = False,
) -> Curated:
    """Make a data set of what models fail on in finished runs: pictures as they saw them, metadata and a card.

    `options` say which failures are taken and how they are written (see `CurateOptions`): {"fail": "all", "per_class": 20}.
    `data` is where the runs' images lie now, if they moved or were an object; `models` are those that were objects, in
    case they have to be asked.
    """
    asked = [runs] if isinstance(runs, (str, os.PathLike, Run)) else list(runs)
    stores = [(one if isinstance(one, Run) else Run(one)).store for one in asked]
    chosen = options if isinstance(options, CurateOptions) else validate(CurateOptions, dict(options or {}))
    source = os.fspath(data) if isinstance(data, os.PathLike) else data
    with reporter(quiet) as telling:
        return curate_stores(stores, Store(out), chosen, data=source, models=models, execution=execution, reporter=telling)


def harden(
    config: Mapping[str, Any] | HardenConfig | str | os.PathLike[str],
    *,
    model: Model | None = None,
    data: Any = None,
    test: Any = None,
    quiet: bool = False,
) -> Hardened:
    """Fine-tune a torch classifier on failures and on operators, and measure it before and after on other originals.

    `config` is a YAML file or the same as a mapping (see `HardenConfig`). Objects may take the place of its `model` (a
    module, wrapped by `wrap`), `data` and `test`. The same call again goes on where it stopped.
    """
    if isinstance(config, HardenConfig):
        told = config
        if test is not None and config.test is None:
            told = config.model_copy(update={"test": DataOptions.model_validate(_data(test)[0])})
    else:
        content = dict(config) if isinstance(config, Mapping) else read_yaml(Path(config), "config", "a model and data")
        if model is not None:
            content["model"] = _named(model)
        for name, given in (("data", data), ("test", test)):
            if given is not None:
                content[name] = _data(given)[0]
        told = load_harden_config(content)
    objects = {name: None if given is None else _data(given)[1] for name, given in (("data", data), ("test", test))}
    with reporter(quiet) as telling:
        return carried_out(told, model=model, reporter=telling, **objects)


def assembled(
    model: ModelLike | Sequence[ModelLike],
    data: Any,
    *,
    lens: str | Mapping[str, Any] | LensOptions = "profile",
    select: str = "all",
    seed: int = 0,
    attention: bool | Mapping[str, Any] = False,
    out: str | os.PathLike[str] | None = None,
    execution: Execution,
) -> Parts:
    """Names and objects as a config and the objects it stands for."""
    asked = [model] if isinstance(model, (str, Mapping, ModelOptions, Model, nn.Module)) else list(model)
    for one in asked:
        if isinstance(one, nn.Module):
            raise ConfigError(
                "a torch module needs its input size, normalisation and classes: brinell.wrap(module, size=224, mean=…, "
                "std=…, classes=…)"
            )
    options, dataset = _data(data)
    config = load_config(
        {
            "models": [_named(one) for one in asked],
            "data": options,
            "lens": lens.model_dump(mode="json") if isinstance(lens, LensOptions) else lens,
            "select": select,
            "seed": seed,
            "attention": {} if attention is True else attention or None,
            "out": os.fspath(out) if out is not None else None,
            "execution": execution.model_dump(mode="json"),
        }
    )
    models = [
        one if isinstance(one, Model) else open_model(options, execution)
        for one, options in zip(asked, config.models, strict=True)
    ]
    return assemble(config, models, dataset)


def _named(model: ModelLike) -> Any:
    if isinstance(model, Model):
        return {"source": model.facts.get("source", "object:model"), "name": model.name}
    return model.model_dump(mode="json", exclude_none=True) if isinstance(model, ModelOptions) else model


def _data(data: Any) -> tuple[dict[str, Any], Any]:
    """The options that a dataset is named by, and the dataset itself where it is an object."""
    if isinstance(data, DataOptions):
        return data.model_dump(mode="json"), None
    options = data if isinstance(data, Mapping) and "source" in data else {"source": data}
    source = options["source"]
    if isinstance(source, (str, Path)):
        return {**options, "source": str(source)}, None
    return {**options, "source": f"object:{type(source).__name__}"}, source


__all__ = ["ModelLike", "Run", "RunConfig", "compare", "curate", "gate", "harden", "leaderboard", "run", "wrap"]
