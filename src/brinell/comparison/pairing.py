"""Which models of which runs are compared, and why two runs can't be paired."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from brinell.comparison.cells import describe_sampled, share_cells
from brinell.comparison.measures import TITLES
from brinell.config.criterion import DEFAULT_CRITERION, default_criterion
from brinell.errors import ConfigError, RunError
from brinell.lenses.lens import LENSES
from brinell.registry import nearest
from brinell.runs.run import Run


@dataclass(frozen=True)
class Subject:
    """One model of one run."""

    run: Run
    model: str


@dataclass(frozen=True)
class Pair:
    """An old and a new model on the same images and lenses; `notes` describe what could not be compared."""

    old: Subject
    new: Subject
    images: tuple[str, ...]
    lenses: tuple[str, ...]
    notes: tuple[str, ...] = ()

    @property
    def title(self) -> str:
        """The pair for people: "NEW against OLD"."""
        old, new = self.old, self.new
        if old.run.folder == new.run.folder:
            return f"{new.model} against {old.model}"
        before, after = shorten_folders([old.run.folder, new.run.folder])
        if old.model == new.model:
            return f"{new.model} in {after} against {before}"
        return f"{new.model} ({after}) against {old.model} ({before})"

    def operator_title(self, operator: str) -> str:
        """Return the name for people of an operator that one of the runs has."""
        owner = self.old.run if self.old.run.facts(operator) else self.new.run
        return TITLES.get(operator) or owner.title(operator)


def shorten_folders(folders: Sequence[str]) -> list[str]:
    """Return names of runs for people: the ends of their paths that tell them apart."""
    parts = [folder.rstrip("/").split("/") for folder in folders]
    most = max(map(len, parts))
    distinct = len({tuple(each) for each in parts})
    depth = next(depth for depth in range(1, most + 1) if len({tuple(each[-depth:]) for each in parts}) == distinct)
    return ["/".join(each[-depth:]) for each in parts]


def pair_models(
    runs: Sequence[Run], named: Iterable[str] = (), *, other_draws: bool = False, common_images: bool = False
) -> list[Pair]:
    """Pair each run after the first with it, or the models of one run with its first one.

    Models are matched by `named` ("OLD=NEW"), else by their names, else the only one of each run.
    """
    if not runs:
        raise ConfigError("nothing to compare; give two runs or more, or one run of several models")
    first, *others = (run.require_finished() for run in runs)
    names = [_parse_pair(text) for text in named]
    pairs = []
    for run in others or [first]:
        images, notes = _shared_images(first, run, common_images=common_images)
        lenses, more = _shared_lenses(first, run, other_draws=other_draws)
        matched, rest = _match(first, run, names)
        sides = share_cells(first, run)
        rest += describe_sampled(first, run)
        for old, new in matched:
            _refuse_other_labels(first, run, old, new)
            _refuse_other_criterion(first, run, old, new)
            found = (*notes, *more, *rest, *_compare_sizes(first, run, old, new))
            pairs.append(Pair(Subject(sides[0], old), Subject(sides[1], new), images, lenses, found))
    return pairs


def require_pairable(first: Run, run: Run, *, other_draws: bool = False) -> None:
    """Raise if two runs of one lens did not measure the same on the same images."""
    _shared_images(first, run, common_images=False)
    _shared_lenses(first, run, other_draws=other_draws)
    _refuse_other_labels(first, run, next(iter(first.models)), next(iter(run.models)))


def _parse_pair(text: str) -> tuple[str, str]:
    old, equals, new = text.partition("=")
    if not (old and equals and new):
        raise ConfigError(f"expected a pair as OLD=NEW (the names of two models), got {text!r}")
    return old, new


def _match(first: Run, run: Run, named: list[tuple[str, str]]) -> tuple[list[tuple[str, str]], list[str]]:
    """Return the models to compare, and notes about those that are not compared."""
    for model, owner in [pair for old, new in named for pair in ((old, first), (new, run))]:
        if model not in owner.models:
            raise ConfigError(f"{owner.folder} has no model {model!r}; {nearest(model, list(owner.models))}")
    if named:
        return named, []
    before, after = list(first.models), list(run.models)
    if run is first:
        if len(after) < 2:
            raise ConfigError(f"{run.folder} has only one model, {after[0]}; give a second run to compare it with")
        return [(after[0], model) for model in after[1:]], []
    common = [model for model in before if model in after]
    if common:
        alone = [model for model in (*before, *after) if model not in common]
        notes = [f"in one run only, not compared: {', '.join(alone)}"] if alone else []
        return [(model, model) for model in common], notes
    if len(before) == len(after) == 1:
        return [(before[0], after[0])], []
    raise ConfigError(
        f"{first.folder} ({', '.join(before)}) and {run.folder} ({', '.join(after)}) have no model of the same name; "
        "select models with --pair OLD=NEW"
    )


def _shared_images(first: Run, run: Run, *, common_images: bool) -> tuple[tuple[str, ...], list[str]]:
    """Return the images of both, in the first run's order."""
    shared = tuple(image for image in first.image_names if image in run.image_names)
    for has, lacks in ((first, run), (run, first)):
        alone = [image for image in has.image_names if image not in lacks.image_names]
        if alone and not (common_images and shared):
            fix = "; or compare the images that both have with --common-images" if shared else ""
            raise RunError(
                f"{_refusal(first, run)}: {len(alone)} images are only in {has.folder}, such as "
                f"{has.image_names[alone[0]]}; run both on the same images{fix}"
            )
    if first.config["data"]["labels"] != run.config["data"]["labels"]:
        labels = (f"{each.config['data']['labels']} in {each.folder}" for each in (first, run))
        raise RunError(f"{_refusal(first, run)}: their labels differ, {' and '.join(labels)}; rerun one with the other's")
    left_out = len(first.image_names) + len(run.image_names) - 2 * len(shared)
    return shared, [f"{left_out} images are in one run only and left out"] if left_out else []


def _options_of(run: Run, lens: str) -> dict[str, Any]:
    """Return a lens's options in a run; those that are newer than the run have their defaults."""
    fields = LENSES[lens].options.model_fields if lens in LENSES else {}
    return {**{name: one.default for name, one in fields.items() if not one.is_required()}, **run.lens(lens)}


def _shared_lenses(first: Run, run: Run, *, other_draws: bool) -> tuple[tuple[str, ...], list[str]]:
    """Return the lenses of both, which must have the same options."""
    notes = []
    if first.seed != run.seed:
        if not other_draws:
            raise RunError(
                f"{_refusal(first, run)}: their random draws differ (seed {first.seed} and {run.seed}); run both with one "
                "--seed, or pair by image only with --other-draws"
            )
        notes.append("paired by image only: the seeds differ, so the random draws of each image differ between the runs")
    selections = [each.config["select"] for each in (first, run)]
    if selections[0].partition(":")[0] != selections[1].partition(":")[0]:
        raise RunError(
            f"{_refusal(first, run)}: images were selected by {' and by '.join(selections)}; run both with one --select"
        )
    shared = tuple(lens for lens in first.lenses if lens in run.lenses)
    if not shared:
        raise RunError(
            f"{_refusal(first, run)}: one has the lens {' and '.join(first.lenses)}, the other {' and '.join(run.lenses)}; "
            "run both with one --lens"
        )
    for lens in shared:
        here, there = (_options_of(each, lens) for each in (first, run))
        other = next((key for key in {**here, **there} if key != "operators" and here.get(key) != there.get(key)), None)
        if other is not None:
            raise RunError(
                f"{_refusal(first, run)}: the {lens} lens has {other} {here.get(other)} in one and {there.get(other)} in "
                f"the other; run both with the same {other}"
            )
    alone = sorted({*first.lenses, *run.lenses} - {*shared})
    return shared, notes + ([f"in one run only, not compared: the lens {', '.join(alone)}"] if alone else [])


def _refuse_other_labels(first: Run, run: Run, old: str, new: str) -> None:
    """Compare labels by the names of their classes; where the lists name classes differently, by output index."""
    if first.config["data"]["labels"] == "prediction":
        return
    before, after = first.labels(old), run.labels(new)
    classes = [first.models[old].classes, run.models[new].classes]
    by_index = classes[0] is None or classes[1] is None or set(classes[0]) != set(classes[1])
    for image in (one for one in before if one in after):
        labels = (before[image], after[image])
        words = [str(label if names is None else names[label]) for label, names in zip(labels, classes, strict=True)]
        if words[0] != words[1] and not (by_index and labels[0] == labels[1]):
            raise RunError(
                f"{_refusal(first, run)}: {first.image_names[image]} is labelled {words[0]!r} in {first.folder} and "
                f"{words[1]!r} in {run.folder}; run both with the same labels"
            )


def _refuse_other_criterion(first: Run, run: Run, old: str, new: str) -> None:
    """Raise for models of different tasks without a common criterion: their default criteria differ."""
    kinds = [first.models[old].task, run.models[new].task]
    by_default = any(options["criterion"] == DEFAULT_CRITERION for options in first.lenses.values())
    if kinds[0] != kinds[1] and by_default:
        rules = " and ".join(f"{name} by {default_criterion(kind)}" for name, kind in zip((old, new), kinds, strict=True))
        raise RunError(f"{_refusal(first, run)}: {rules} count as broken; run both with one --criterion")


def _compare_sizes(first: Run, run: Run, old: str, new: str) -> list[str]:
    """Return a note if the models' inputs have different sizes."""
    sizes = ["×".join(map(str, model.input[1:])) for model in (first.models[old], run.models[new])]
    same = sizes[0] == sizes[1]
    return [] if same else [f"input sizes differ ({sizes[0]} and {sizes[1]}): the same levels, on different inputs"]


def _refusal(first: Run, run: Run) -> str:
    return f"{first.folder} and {run.folder} can't be paired"
