"""Which models of which runs are compared, and the refusal of runs that can't be paired."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from brinell.config.criterion import DEFAULT_CRITERION, default_criterion
from brinell.errors import ConfigError, RunError
from brinell.registry import nearest
from brinell.runs.store import Store


@dataclass(frozen=True)
class Opened:
    """A run as it is compared: its store, its manifest and its images."""

    store: Store
    manifest: dict[str, Any] = field(repr=False)
    names: dict[str, str] = field(repr=False)  # of its images, by their ids

    @staticmethod
    def of(folder: str | os.PathLike[str]) -> Opened:
        """Open a finished run."""
        store = Store(folder)
        if not store.exists("manifest.json"):
            raise RunError(f"{store.url} is not the folder of a brinell run: it has no manifest.json")
        manifest = store.manifest()
        if not manifest.get("finished"):
            raise RunError(f"the run in {store.url} is not finished; finish it with the command that began it")
        found = store.connect().execute("select image, name from samples where problem is null").fetchall()
        return Opened(store, manifest, dict(found))

    @property
    def folder(self) -> str:
        """Where it lies."""
        return self.store.url

    @property
    def config(self) -> dict[str, Any]:
        """What was measured."""
        config: dict[str, Any] = self.manifest["identity"]["config"]
        return config

    @property
    def models(self) -> list[str]:
        """Its models, in their order."""
        return list(self.manifest["models"])

    def lens(self, name: str | None) -> dict[str, Any]:
        """A lens's options."""
        return next((lens for lens in self.config["lenses"] if lens["name"] == name), {})

    def truth(self, model: str) -> dict[str, int]:
        """The output of a model that counts as right, by image."""
        sql = "select image, clean.label from clean join samples using (index) where model = $model"
        return dict(self.store.connect().execute(sql, {"model": model}).fetchall())

    @property
    def lenses(self) -> list[str]:
        """Its lenses' names."""
        return [lens["name"] for lens in self.config["lenses"]]


@dataclass(frozen=True)
class Subject:
    """One model of one run."""

    run: Opened
    model: str


@dataclass(frozen=True)
class Pair:
    """What is compared: `new` against `old`, on these images, by the lenses that both have; `notes` say what is not."""

    old: Subject
    new: Subject
    images: tuple[str, ...]
    lenses: tuple[str, ...]
    notes: tuple[str, ...] = ()

    @property
    def told(self) -> str:
        """The pair in words."""
        old, new = self.old, self.new
        if old.run.folder == new.run.folder:
            return f"{new.model} against {old.model}"
        if old.model == new.model:
            return f"{new.model} in {new.run.folder} against {old.run.folder}"
        return f"{new.model} ({new.run.folder}) against {old.model} ({old.run.folder})"


def pairs_of(
    runs: Sequence[Opened], asked: Iterable[str] = (), *, other_draws: bool = False, common_images: bool = False
) -> list[Pair]:
    """Each run after the first against it, or the models of one run against its first one.

    Models are matched by `asked` ("OLD=NEW"), else by their names, else the only one of each run.
    """
    if not runs:
        raise ConfigError("say what to compare: two runs or more, or one of several models")
    first, *others = runs
    named = [_named(text) for text in asked]
    pairs = []
    for run in others or [first]:
        images, notes = _shared_images(first, run, common_images=common_images)
        lenses, more = _shared_lenses(first, run, other_draws=other_draws)
        matched, rest = _matched(first, run, named)
        for old, new in matched:
            _refuse_other_labels(first, run, old, new)
            _refuse_other_criterion(first, run, old, new)
            found = (*notes, *more, *rest, *_sizes(first, run, old, new))
            pairs.append(Pair(Subject(first, old), Subject(run, new), images, lenses, found))
    return pairs


def refuse_unpaired(first: Opened, run: Opened, *, other_draws: bool = False) -> None:
    """Raise if two runs of one lens did not ask the same about the same images."""
    _shared_images(first, run, common_images=False)
    _shared_lenses(first, run, other_draws=other_draws)
    _refuse_other_labels(first, run, first.models[0], run.models[0])


def _named(text: str) -> tuple[str, str]:
    old, equals, new = text.partition("=")
    if not (old and equals and new):
        raise ConfigError(f"expected a pair as OLD=NEW (the names of two models), got {text!r}")
    return old, new


def _matched(first: Opened, run: Opened, named: list[tuple[str, str]]) -> tuple[list[tuple[str, str]], list[str]]:
    """The models that are compared, and notes about those that are not."""
    for model, owner in [pair for old, new in named for pair in ((old, first), (new, run))]:
        if model not in owner.models:
            raise ConfigError(f"{owner.folder} has no model {model!r}; {nearest(model, owner.models)}")
    if named:
        return named, []
    if run is first:
        if len(run.models) < 2:
            raise ConfigError(f"{run.folder} has one model alone, {run.models[0]}; give a second run to compare it with")
        return [(run.models[0], model) for model in run.models[1:]], []
    common = [model for model in first.models if model in run.models]
    if common:
        alone = [model for model in (*first.models, *run.models) if model not in common]
        notes = [f"in one run alone, and not compared: {', '.join(alone)}"] if alone else []
        return [(model, model) for model in common], notes
    if len(first.models) == len(run.models) == 1:
        return [(first.models[0], run.models[0])], []
    raise ConfigError(
        f"{first.folder} ({', '.join(first.models)}) and {run.folder} ({', '.join(run.models)}) have no model of the same "
        "name; say which to compare with --pair OLD=NEW"
    )


def _shared_images(first: Opened, run: Opened, *, common_images: bool) -> tuple[tuple[str, ...], list[str]]:
    """The images of both, in the first run's order."""
    shared = tuple(image for image in first.names if image in run.names)
    for has, lacks in ((first, run), (run, first)):
        alone = [image for image in has.names if image not in lacks.names]
        if alone and not (common_images and shared):
            few = "; or pair those that both have with --common-images" if shared else ""
            raise RunError(
                f"{_both(first, run)}: {len(alone)} images are in {has.folder} alone, such as {has.names[alone[0]]}; "
                f"make both on the same images{few}"
            )
    if first.config["data"]["labels"] != run.config["data"]["labels"]:
        ways = (f"{each.folder} takes {each.config['data']['labels']}" for each in (first, run))
        raise RunError(f"{_both(first, run)}: their labels differ, {' and '.join(ways)}; run one of them with the other's")
    left = len(first.names) + len(run.names) - 2 * len(shared)
    return shared, [f"{left} images are in one run alone, and are left out"] if left else []


def _shared_lenses(first: Opened, run: Opened, *, other_draws: bool) -> tuple[tuple[str, ...], list[str]]:
    """The lenses of both, which must have asked the same."""
    notes = []
    if first.config["seed"] != run.config["seed"]:
        if not other_draws:
            raise RunError(
                f"{_both(first, run)}: their random draws are others (seed {first.config['seed']} and "
                f"{run.config['seed']}); make both with one --seed, or pair by image alone with --other-draws"
            )
        notes.append("paired by image alone: the runs' seeds differ, so each image met other random draws in either")
    if first.config["select"].partition(":")[0] != run.config["select"].partition(":")[0]:
        raise RunError(
            f"{_both(first, run)}: images were selected by {first.config['select']} and by {run.config['select']}; make "
            "both with one --select"
        )
    shared = tuple(lens for lens in first.lenses if lens in run.lenses)
    if not shared:
        raise RunError(
            f"{_both(first, run)}: one has the lens {' and '.join(first.lenses)}, the other {' and '.join(run.lenses)}; "
            "run both with one --lens"
        )
    for lens in shared:
        here, there = first.lens(lens), run.lens(lens)
        other = next((key for key in {**here, **there} if key != "operators" and here.get(key) != there.get(key)), None)
        if other is not None:
            raise RunError(
                f"{_both(first, run)}: the {lens} lens has {other} {here.get(other)} in one and {there.get(other)} in the "
                f"other; make both with the same {other}"
            )
    alone = sorted({*first.lenses, *run.lenses} - {*shared})
    return shared, notes + ([f"in one run alone, and not compared: the lens {', '.join(alone)}"] if alone else [])


def _refuse_other_labels(first: Opened, run: Opened, old: str, new: str) -> None:
    """Labels are the same by the name of their class; where lists name classes differently, by the output's number."""
    if first.config["data"]["labels"] == "prediction":
        return
    before, after = first.truth(old), run.truth(new)
    classes = [owner.manifest["models"][name]["classes"] for owner, name in ((first, old), (run, new))]
    numbered = None in classes or set(classes[0]) != set(classes[1])
    for image in (one for one in before if one in after):
        labels = (before[image], after[image])
        words = [str(label if names is None else names[label]) for label, names in zip(labels, classes, strict=True)]
        if words[0] != words[1] and not (numbered and labels[0] == labels[1]):
            raise RunError(
                f"{_both(first, run)}: {first.names[image]} is labelled {words[0]!r} in {first.folder} and {words[1]!r} "
                f"in {run.folder}; make both with the same labels"
            )


def _refuse_other_criterion(first: Opened, run: Opened, old: str, new: str) -> None:
    """A detector and a classifier break by different rules, unless one was given."""
    kinds = ["detection" in owner.manifest["models"][name] for owner, name in ((first, old), (run, new))]
    usuals = any(lens["criterion"] == DEFAULT_CRITERION for lens in first.config["lenses"])
    if kinds[0] != kinds[1] and usuals:
        rules = " and ".join(f"{name} by {default_criterion(kind)}" for name, kind in zip((old, new), kinds, strict=True))
        raise RunError(f"{_both(first, run)}: {rules} is what breaks them; give both one --criterion")


def _sizes(first: Opened, run: Opened, old: str, new: str) -> list[str]:
    sizes = ["×".join(map(str, owner.manifest["models"][name]["input"][1:])) for owner, name in ((first, old), (run, new))]
    same = sizes[0] == sizes[1]
    return [] if same else [f"inputs of other sizes ({sizes[0]} and {sizes[1]}): the same levels, on other inputs"]


def _both(first: Opened, run: Opened) -> str:
    return f"{first.folder} and {run.folder} can't be paired"
