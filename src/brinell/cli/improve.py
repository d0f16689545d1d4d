"""Commands that improve models: curate, harden and export-moved."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from brinell.cli.ask import ask_to_start
from brinell.cli.console import out, print_json, say
from brinell.cli.flags import flags_of, unique, with_flags
from brinell.cli.interrupt import resuming
from brinell.config.execution import Execution
from brinell.curation.options import CurateOptions
from brinell.hardening.options import (
    AugmentOptions,
    ExcitationOptions,
    HardenConfig,
    PartOptions,
    TrainingOptions,
    load_harden_config,
)
from brinell.report.grid import Grid
from brinell.units import format_amount

#: sections of a config that have flags of their own, or hold lists that only a file can give
HARDEN_SECTIONS = (
    "model",
    "data",
    "test",
    "failures",
    "augment",
    "excitation",
    "parts",
    "training",
    "measure",
    "execution",
)


def _curate(
    given: Mapping[str, Any],
    runs: Annotated[list[str], typer.Argument(metavar="RUN...", help="Folders of finished runs.")],
    folder: Annotated[str, typer.Option("--out", "-o", help="Folder or URL of the dataset.")],
    data: Annotated[str | None, typer.Option(help="Current location of the runs' images, if they have moved.")] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.")] = "auto",
    trust: Annotated[bool, typer.Option("--trust", help="Allow model files to run code when they are loaded.")] = False,
) -> None:
    """Collect the images that models fail on as a dataset, pixel by pixel as the models saw them.

    Example: [bold]brinell curate runs/first runs/second -o failures --fail all --per-class 20[/]
    """
    from brinell.api import curate as curate_runs
    from brinell.curation.curate import UNFINISHED
    from brinell.runs.store import Store

    options = {path[-1]: value for path, value in ((_CURATE_PATHS[name], value) for name, value in given.items())}
    with resuming(lambda: Store(folder).exists(UNFINISHED)):
        found = curate_runs(runs, folder, options, data=data, execution=Execution(device=device, trust=trust))
    models = ", ".join(f"{model} fails on {count:,}" for model, count in found.models.items())
    images, originals = format_amount(found.images, "images"), format_amount(found.originals, "originals")
    operators, classes = format_amount(len(found.operators), "operators"), format_amount(len(found.classes), "classes")
    say(
        f"{images} of {originals}, {operators} and {classes}: {models}",
        f"dataset: {found.folder}",
    )


_CURATE = flags_of(CurateOptions, panel="Selection and format", names={"every": "all"})
_CURATE_PATHS = {flag.name: flag.path for flag in _CURATE}
curate = with_flags(_curate, _CURATE)


def _harden(
    given: Mapping[str, Any],
    config: Annotated[Path, typer.Argument(metavar="CONFIG", help="YAML file with a model, data, and what to train on.")],
    set: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=VALUE", help="Set any option, as key.sub=value (training.epochs=3); may be repeated."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the effect as JSON.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Start without asking if it takes more than an hour.")] = False,
) -> None:
    """Fine-tune a model on failures and operators, and measure it before and after on held-out images.

    Prints a time estimate, and asks if it is more than an hour. Rerun to resume.

    Example: [bold]brinell harden harden.yaml --epochs 3[/]
    """
    from brinell.engine.progress import reporter
    from brinell.hardening.checkpoints import LAST
    from brinell.hardening.cost import HardeningCost
    from brinell.hardening.harden import harden as run_hardening
    from brinell.models.hardened import WEIGHTS_FILE
    from brinell.runs.store import Store
    from brinell.validation import read_config

    flags = [f"{'.'.join(_HARDEN_PATHS[name])}={json.dumps(value)}" for name, value in given.items()]
    content = read_config(config, "a model and data")
    loaded = load_harden_config(content, [*flags, *(set or ())])
    folder = Store(loaded.folder())
    with resuming(lambda: folder.exists(WEIGHTS_FILE) or folder.exists(*LAST)), reporter() as progress:

        def confirm(cost: HardeningCost) -> None:
            for line in cost.lines():
                progress.say(line)
            if cost.long:
                ask_to_start(progress, yes=yes)

        found = run_hardening(loaded, reporter=progress, confirm=confirm)
    if as_json:
        print_json({"version": 1, **found.effect.to_json()})
        return
    out.print(Grid(("", "before", "after", "change [95 %]", "images"), tuple(found.effect.rows())))
    store = Store(found.folder)
    sentence = found.effect.sentence
    say(
        f"{sentence[0].upper()}{sentence[1:]}.",
        f"model: hardened:{store.place()}",
        f"summary: {store.place('summary.html')}",
    )


_HARDEN = unique(
    [
        *flags_of(HardenConfig, panel="Options", skip=HARDEN_SECTIONS),
        *flags_of(TrainingOptions, ("training",), panel="Training"),
        *flags_of(AugmentOptions, ("augment",), panel="Augmentation", prefix="augment-", skip=("operators",)),
        *flags_of(PartOptions, ("parts",), panel="Parts"),
        *flags_of(ExcitationOptions, ("excitation",), panel="Squeeze and excitation", prefix="excitation-"),
        *flags_of(Execution, ("execution",), panel="Execution", prefix="execution-", names={"device": "device"}),
    ]
)
_HARDEN_PATHS = {flag.name: flag.path for flag in _HARDEN}
harden = with_flags(_harden, _HARDEN)


def export_moved(
    folder: Annotated[str, typer.Argument(metavar="RUN", help="Folder of a run whose lens moves images.")],
    file: Annotated[Path, typer.Argument(help="File (.npz) or folder to write.")],
    operator: Annotated[str, typer.Option(metavar="NAME", help="GROUP:METHOD, such as affine:manifool or affine:random.")],
    score: Annotated[
        float | None,
        typer.Option(min=0, metavar="X", help="Score of random motions (default: the median of the smallest motions)."),
    ] = None,
    data: Annotated[
        str | None, typer.Option(help="Current location of the run's images, if they have moved or were a Python object.")
    ] = None,
) -> None:
    """Export a run's images after their motions, with their true labels, to train on.

    Example: [bold]brinell export-moved runs/first train.npz --operator affine:manifool[/]
    """
    from brinell.results import Run

    written = Run(folder).export_moved(file, operator, score=score, data=data)
    scored = "" if written.score is None else f" by random motions of score {written.score:.3g}"
    say(f"wrote {written.images} images moved{scored}, left out {written.left_out}: {file}")
