"""The walk of logging a run: the parent, a nested run for each lens, model and operator, and the files.

A run is known by what was measured and when. What was logged before and is the same stays; what changed since, or was left
unfinished, is logged anew.
"""

from __future__ import annotations

import hashlib
import json
import math
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from brinell.engine.manifest import package_version
from brinell.engine.progress import Reporter, Silent
from brinell.errors import RunError, UnknownName
from brinell.lenses.analysis import Findings, findings
from brinell.report.page import write_figures, write_report
from brinell.runs.names import title
from brinell.runs.store import Store
from brinell.tracking.figures import Number, Part, figures, summary, word
from brinell.tracking.server import Server

RUN, PART, CONTENT = "brinell.run", "brinell.part", "brinell.content"
PARENT = "mlflow.parentRunId"


@dataclass(frozen=True)
class Tracked:
    """A run on a tracking server: where it is shown, and how many of its nested runs were logged now or stood there."""

    link: str
    run: str
    experiment: str
    logged: int
    kept: int


def track(store: Store, server: Server, reporter: Reporter | None = None) -> Tracked:
    """Log a finished run, or what is missing of it there."""
    reporter = reporter or Silent()
    manifest = store.manifest()
    if not manifest.get("finished"):
        raise RunError(f"the run in {store.url} is not finished; finish it with the command that began it")
    connection = store.connect()
    found = findings(connection, manifest)
    lenses = {lens["name"]: lens for lens in manifest["identity"]["config"]["lenses"]}
    started = round(1000 * time.mktime(time.strptime(manifest["created"], "%Y-%m-%d %H:%M:%S")))
    ended = started + round(1000 * manifest["seconds"])
    numbers, parts = summary(connection, found, lenses), figures(found)
    # rows stay as they are, and sums of them may differ in the last digit: what tells is what was computed, by which code
    code = [package_version("brinell"), manifest.get("attention")]
    contents = {
        part: _digest([code, _params_of(part, manifest), [(one.name, one.step) for one in of]])
        for part, of in parts.items()
    }
    content = _digest([code, manifest, list(contents.values())])

    key = _digest([manifest["identity"], manifest["created"]])
    there = server.find(RUN, key)
    tags = {"mlflow.note.content": _note(found), **_versions(manifest, store)}
    parent = there[0].info.run_id if there else server.begin(_name(store), {RUN: key, **tags}, started)
    if there and there[0].data.tags.get(CONTENT) == content:
        return Tracked(server.link(parent), parent, server.experiment, 0, len(parts))

    standing = _standing(server, parent, contents)
    missing = [part for part in parts if part not in standing]
    advance = reporter.stage("logging", len(missing) + 1, "runs")
    several = len({part.model for part in parts}) > 1
    for part in missing:
        run = server.begin(_title(part, several), {PARENT: parent, PART: _key(part)}, started)
        server.log(run, parts[part], _params_of(part, manifest), ended)
        server.end(run, ended)
        server.tag(run, {CONTENT: contents[part]})  # last, so that what was left unfinished is known
        advance(1)
    known, named = (there[0].data.metrics, there[0].data.params) if there else ({}, {})
    changed = {one.name for one in numbers if not math.isclose(known.get(one.name, math.nan), _last(numbers, one.name))}
    params = {key: value for key, value in _params(manifest).items() if key not in named}
    data = manifest["identity"]["data"]
    server.log(parent, [one for one in numbers if one.name in changed], params, ended)
    server.uses(parent, data["name"], data["fingerprint"], manifest["source"]["data"]["source"])
    with tempfile.TemporaryDirectory() as folder:
        _gather(store, found, Path(folder))
        server.keep(parent, Path(folder))
    server.end(parent, ended)
    server.tag(parent, {**tags, CONTENT: content})
    advance(1)
    return Tracked(server.link(parent), parent, server.experiment, len(missing), len(parts) - len(missing))


def _standing(server: Server, parent: str, contents: Mapping[Part, str]) -> set[Part]:
    """The parts that are there as they should be; others are deleted."""
    wanted = {_key(part): part for part in contents}
    standing: set[Part] = set()
    for run in server.find(PARENT, parent):
        part = wanted.get(run.data.tags.get(PART, ""))
        if part is None or part in standing or run.data.tags.get(CONTENT) != contents[part]:
            server.drop(run.info.run_id)
        else:
            standing.add(part)
    return standing


def _gather(store: Store, found: Mapping[str, Findings], folder: Path) -> None:
    """Write the report and the figures, and put them into a folder with what ran and what was found."""
    write_report(store)
    names = ["report.html", "manifest.json", *(f"figures/{name}" for name in write_figures(store))]
    for name in names:
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(store.read(*name.split("/")))
    told = {lens: one.to_dict() for lens, one in found.items()}
    (folder / "summary.json").write_text(json.dumps(told, ensure_ascii=False, indent=1), encoding="utf-8")


def _params(manifest: Mapping[str, Any]) -> dict[str, str]:
    """What was measured: the config, and what models and data are known by."""
    config = manifest["identity"]["config"]
    named = {
        **config,
        "lenses": {lens["name"]: {key: value for key, value in lens.items() if key != "name"} for lens in config["lenses"]},
        "models": manifest["identity"]["models"],
        "data": {**config["data"], **manifest["identity"]["data"]},
    }
    sources = dict(zip(named["models"], config["models"], strict=True))
    named["models"] = {
        name: {"source": sources[name]["source"], "fingerprint": one["fingerprint"], "input": one["input"]}
        for name, one in named["models"].items()
    }
    return dict(_words(named))


def _params_of(part: Part, manifest: Mapping[str, Any]) -> dict[str, str]:
    """What a nested run is of, and the lens's options."""
    config, models = manifest["identity"]["config"], manifest["identity"]["models"]
    lens = next(lens for lens in config["lenses"] if lens["name"] == part.lens)
    options = {key: value for key, value in lens.items() if key not in ("name", "operators", "methods")}
    own = {"lens": part.lens, "model": part.model, "operator": part.operator}
    data = manifest["identity"]["data"]
    return dict(
        _words({**own, "fingerprint": models[part.model]["fingerprint"], "data": data, "seed": config["seed"], **options})
    )


def _words(told: Any, name: str = "") -> list[tuple[str, str]]:
    """Settings as words by their paths: data.limit; lists are told in one."""
    if isinstance(told, Mapping):
        return [pair for key, value in told.items() for pair in _words(value, f"{name}.{key}" if name else str(key))]
    if told is None:
        return []
    if isinstance(told, list):
        told = ", ".join(map(str, told))
    return [(word(name), str(told))] if told != "" else []


def _versions(manifest: Mapping[str, Any], store: Store) -> dict[str, str]:
    versions = {f"version.{name}": value for name, value in manifest["versions"].items() if value is not None}
    machine = {f"machine.{name}": value for name, value in manifest["machine"].items()}
    return {**versions, **machine, "brinell.folder": store.place(), "mlflow.source.name": "brinell"}


def _note(found: Mapping[str, Findings]) -> str:
    """What was found, in sentences: MLflow shows them on the run's page."""
    lines = []
    for lens, one in found.items():
        lines += [f"**{lens}**", *(f"- {one.verdict(model)}" for model in one.models), ""]
    return "\n".join(lines)[:5000]


def _name(store: Store) -> str:
    return store.root.rpartition("/")[2] or store.url


def _title(part: Part, several: bool) -> str:
    try:
        named = title(part.operator)
    except UnknownName:
        named = part.operator
    return f"{part.lens}: {named}" + (f" ({part.model})" if several else "")


def _key(part: Part) -> str:
    return f"{part.lens}|{part.model}|{part.operator}"


def _last(numbers: list[Number], name: str) -> float:
    """What a server takes for a figure's value: that of its last step."""
    return max((one for one in numbers if one.name == name), key=lambda one: one.step).value


def _digest(told: Any) -> str:
    """32 hex digits of plain data."""
    return hashlib.blake2b(json.dumps(told, sort_keys=True).encode(), digest_size=16).hexdigest()
