"""The package from Python: run a test, wrap a module, curate failures, corrupt a dataset, harden a model."""

from __future__ import annotations

import copy
import os
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from torch import nn

from brinell.classes import Classes
from brinell.comparison.gates import GateResult
from brinell.comparison.rules import Gate, read_gate
from brinell.comparison.sequential import MARGIN, check_sequentially, describe_state, is_decided, require_sequential
from brinell.config.data import DataOptions
from brinell.config.detection import Decoding
from brinell.config.execution import Execution
from brinell.config.lens import LensOptions
from brinell.config.model import ModelOptions
from brinell.corruption.corrupt import Corrupted
from brinell.corruption.corrupt import corrupt as write_copy
from brinell.corruption.options import CorruptOptions
from brinell.curation.curate import Curated
from brinell.curation.curate import curate as curate_runs
from brinell.curation.options import CurateOptions
from brinell.datasets.sources import open_dataset
from brinell.engine.checks import check_config
from brinell.engine.early_stop import Check, Sampled
from brinell.engine.estimates.text import describe_cost
from brinell.engine.messages import log_to
from brinell.engine.progress import Reporter, reporter
from brinell.engine.setup import RunSetup, assemble
from brinell.errors import ConfigError
from brinell.executing import execute_setup
from brinell.hardening.cost import HardeningCost
from brinell.hardening.harden import Hardened
from brinell.hardening.harden import harden as run_hardening
from brinell.hardening.options import HardenConfig, load_harden_config
from brinell.lenses.lens import default_lens
from brinell.models.model import Description, Model
from brinell.models.modules import from_module, segmenter_from_module
from brinell.models.preprocess import Preprocess
from brinell.results import Run
from brinell.run_config import RunConfig, load_config, name_data
from brinell.runs.store import Store
from brinell.types import Interpolation
from brinell.validation import read_config, validate

ModelLike = str | Mapping[str, Any] | ModelOptions | Model
RunLike = str | os.PathLike[str] | Run
Rules = str | os.PathLike[str] | Mapping[str, Any] | Gate


def run(
    model: ModelLike | Sequence[ModelLike],
    data: Any,
    *,
    lens: Any = None,
    preset: str | None = None,
    select: str = "all",
    seed: int = 0,
    budget: str | float | None = None,
    saliency: bool | Mapping[str, Any] = False,
    out: str | os.PathLike[str] | None = None,
    execution: Execution | None = None,
    quiet: bool = False,
) -> Run:
    """Test models on data, or resume a test that was interrupted, and return the run.

    Models are strings ("timm:resnet50", "onnx:FILE"), or modules wrapped by `wrap`. Data is a path, a mapping with a
    `source` and options (limit, shuffle, labels), or any sequence of (image, label). `lens` is a name, a mapping with a
    `name` and options, or a list of them (default: profile). `preset` names options that are not given: "quick", "full" or
    a paper's (`brinell ls presets`). `budget` is a share of the queries (0.1), their number (20000) or how narrow the
    headline interval has to be ("±1%"); a larger one adds to the same run. `saliency` (True, or options) also compares
    where torch models look. With a part in `execution`, the run is finished once all parts are.
    """
    options = {"lens": lens, "preset": preset, "select": select, "seed": seed, "budget": budget}
    options |= {"saliency": saliency, "out": out}
    with (
        reporter(quiet) as progress,
        log_to(progress),
        closing(open_setup(model, data, options, execution or Execution())) as setup,
    ):
        if not quiet:
            _announce_cost(setup, progress, options)
        return execute_setup(setup, progress)


def _announce_cost(setup: RunSetup, progress: Reporter, options: Mapping[str, Any]) -> None:
    """Print what a run costs, and how one of more than an hour can be made cheaper. Never asks."""
    config = setup.config
    models, data = ([one.model_dump(mode="json") for one in config.models], config.data.model_dump(mode="json"))

    def quick() -> RunConfig:
        return _make_config(models, data, {**options, "preset": "quick"}, config.execution)

    words = {"preset": 'preset="quick"', "limit": "limit {} of the data"}
    for line in describe_cost(setup, quick, words).lines:
        progress.say(line)


def decide(
    model: Sequence[ModelLike], data: Any, rules: Rules, *, margin: float = MARGIN, quiet: bool = False, **options: Any
) -> GateResult:
    """Measure models on data until rules are decided, and return the result: a file of rules, or the same as a mapping.

    The first model is the old one. Images come in a random order, a tenth of the levels of each, so that few of them
    decide. A drop that exceeds what a rule allows by less than `margin` percentage points may pass. `options` are those of
    `run`; a rerun resumes.
    """
    gate = read_gate(rules if isinstance(rules, (Mapping, Gate)) else Path(rules))
    execution = options.pop("execution", None) or Execution()
    with reporter(quiet) as progress, log_to(progress), closing(open_setup(model, data, options, execution)) as setup:
        return decide_setup(setup, gate, margin, progress)[1]


def decide_setup(setup: RunSetup, gate: Gate, margin: float, progress: Reporter) -> tuple[Run, GateResult]:
    """Measure until rules are decided, and return the run and the result."""
    require_sequential(gate, [model.name for model in setup.models])
    results: list[GateResult] = []

    def check(sampled: Sampled) -> Check:
        results.append(check_sequentially(gate, sampled.run, sampled.images, sampled.total, margin=margin))
        return Check(is_decided(results[-1]), describe_state(results[-1]))

    run = execute_setup(setup, progress, early=check)
    if not results:
        raise ConfigError(f"{run.folder} holds a full run already; check it with brinell gate or brinell compare --gate")
    return run, results[-1]


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
    segmentation: bool = False,
    execution: Execution | None = None,
) -> Model:
    """Wrap a torch module as a model: it gets images as (x/255 - mean) / std at `size` and returns class scores (N, K).

    `short_side` resizes the shorter side to that and crops the centre; without it images are stretched, in either case by
    `interpolation`. `detection` makes it a detector and says how its boxes and scores are decoded (see `Decoding`): {} for
    the defaults. With `segmentation` it is a segmenter, which returns scores (N, K, h, w) or classes (N, h, w) of pixels.
    """
    height, width = (size, size) if isinstance(size, int) else size
    own = copy.deepcopy(module)  # it is frozen, moved and cast, and the caller's may still be trained
    description = Description(
        name=name or type(module).__name__,
        preprocess=Preprocess(height, width, channels, short_side, interpolation, tuple(mean), tuple(std)),
        classes=classes if classes is None or isinstance(classes, Classes) else Classes(tuple(classes)),
        source=f"object:{type(module).__qualname__}",
    )
    if segmentation:
        return segmenter_from_module(own, description, execution or Execution())
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
    """Make a dataset of what models fail on in finished runs: the images as the models saw them, metadata and a card.

    `options` select the failures and how they are written (see `CurateOptions`): {"fail": "all", "per_class": 20}. `data`
    is where the runs' images are now, if they moved or were an object; `models` are those that were given as objects, in
    case they have to be queried.
    """
    given = [runs] if isinstance(runs, (str, os.PathLike, Run)) else list(runs)
    opened = [one if isinstance(one, Run) else Run(one) for one in given]
    chosen = options if isinstance(options, CurateOptions) else validate(CurateOptions, dict(options or {}))
    source = os.fspath(data) if isinstance(data, os.PathLike) else data
    with reporter(quiet) as progress:
        return curate_runs(opened, Store(out), chosen, data=source, models=models, execution=execution, reporter=progress)


def corrupt(
    data: Any,
    out: str | os.PathLike[str],
    options: CorruptOptions | Mapping[str, Any],
    *,
    execution: Execution | None = None,
    quiet: bool = False,
) -> Corrupted:
    """Write a copy of a dataset under operators, labels and boxes included; or resume.

    `data` is a path, a mapping with a `source` and options, or any sequence of (image, label). `options` say what is
    applied and how it is written (see `CorruptOptions`): {"operators": ["fog"], "severities": [0.2, 0.4]}.
    """
    chosen = options if isinstance(options, CorruptOptions) else validate(CorruptOptions, dict(options))
    source = validate(DataOptions, dict(data)) if isinstance(data, Mapping) else data
    with reporter(quiet) as progress:
        return write_copy(open_dataset(source), Store(out), chosen, execution=execution, reporter=progress)


def harden(
    config: Mapping[str, Any] | HardenConfig | str | os.PathLike[str],
    *,
    model: Model | None = None,
    data: Any = None,
    test: Any = None,
    quiet: bool = False,
) -> Hardened:
    """Fine-tune a torch classifier on failures and operators, and measure it before and after on other originals.

    `config` is a YAML file or the same as a mapping (see `HardenConfig`). Objects may replace its `model` (a module,
    wrapped by `wrap`), `data` and `test`. Repeat the call to resume.
    """
    if isinstance(config, HardenConfig):
        loaded = config
        if test is not None and config.test is None:
            loaded = config.model_copy(update={"test": DataOptions.model_validate(name_data(test)[0])})
    else:
        content = dict(config) if isinstance(config, Mapping) else read_config(Path(config), "a model and data")
        if model is not None:
            content["model"] = _named(model)
        for name, given in (("data", data), ("test", test)):
            if given is not None:
                content[name] = name_data(given)[0]
        loaded = load_harden_config(content)
    objects = {name: None if given is None else name_data(given)[1] for name, given in (("data", data), ("test", test))}
    with reporter(quiet) as progress:

        def announce(cost: HardeningCost) -> None:
            for line in cost.lines():
                progress.say(line)

        confirm = None if quiet else announce
        return run_hardening(loaded, model=model, reporter=progress, confirm=confirm, **objects)


def open_setup(
    model: ModelLike | Sequence[ModelLike], data: Any, options: Mapping[str, Any], execution: Execution
) -> RunSetup:
    """Return the setup of a run, which has to be closed, from names and objects; `options` are those of a config."""
    given = [model] if isinstance(model, (str, Mapping, ModelOptions, Model, nn.Module)) else list(model)
    for one in given:
        if isinstance(one, nn.Module):
            raise ConfigError(
                "a torch module needs its input size, normalisation and classes: brinell.wrap(module, size=224, mean=…, "
                "std=…, classes=…)"
            )
    named, dataset = name_data(data)
    config = _make_config([_named(one) for one in given], named, options, execution)
    check_config(config, [named for one, named in zip(given, config.models, strict=True) if not isinstance(one, Model)])
    return assemble(config, [one if isinstance(one, Model) else None for one in given], dataset, read_ahead=True)


def _make_config(
    models: Sequence[Any], data: Mapping[str, Any], options: Mapping[str, Any], execution: Execution
) -> RunConfig:
    lens, saliency, out = options.get("lens") or default_lens(), options.get("saliency"), options.get("out")
    lenses = lens if isinstance(lens, (list, tuple)) else [lens]
    return load_config(
        {
            **{key: value for key, value in options.items() if key != "lens"},
            "models": models,
            "data": data,
            "lenses": [one.model_dump(mode="json") if isinstance(one, LensOptions) else one for one in lenses],
            "saliency": {} if saliency is True else saliency or None,
            "out": os.fspath(out) if out is not None else None,
            "execution": execution.model_dump(mode="json"),
        }
    )


def _named(model: ModelLike) -> Any:
    if isinstance(model, Model):
        return {"source": model.facts.get("source", "object:model"), "name": model.name}
    return model.model_dump(mode="json", exclude_none=True) if isinstance(model, ModelOptions) else model
