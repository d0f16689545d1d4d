"""Logging a run: the parent run, a nested run for each lens, model and operator, and the files.

A run is identified by what was measured and when. Logging is idempotent: what was logged before and is unchanged stays;
what changed since, or was left unfinished, is logged anew.
"""

from __future__ import annotations

import hashlib
import json
import math
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from brinell.engine.progress import Reporter, Silent
from brinell.lenses.reader import Findings
from brinell.runs.run import Run
from brinell.tracking.figures import Number, Part, collect_figures, summarise, to_word
from brinell.tracking.server import Server
from brinell.versions import package_version

RUN, PART, CONTENT = "brinell.run", "brinell.part", "brinell.content"  # tags
PARENT = "mlflow.parentRunId"
MAX_NOTE = 5000  # characters of a run's description


@dataclass(frozen=True)
class Tracked:
    """A run on a tracking server: its link, and how many nested runs were logged now or were already there."""

    link: str
    run: str
    experiment: str
    logged: int
    kept: int


@dataclass(frozen=True)
class Content:
    """What to log of a run: its findings, and the functions that write its report and its figures into its folder."""

    run: Run
    findings: Mapping[str, Findings]
    write_report: Callable[[], str]
    write_figures: Callable[[], list[str]]


def track(content: Content, server: Server, reporter: Reporter | None = None) -> Tracked:
    """Log a finished run, or the part of it that is missing on the server."""
    run = content.run.require_finished()
    started = round(1000 * time.mktime(time.strptime(run.manifest["created"], "%Y-%m-%d %H:%M:%S")))
    ended = started + round(1000 * run.manifest["seconds"])
    parts = collect_figures(content.findings)
    digests = {part: _digest_part(run, part, numbers) for part, numbers in parts.items()}
    digest = _digest([package_version("brinell"), run.manifest, list(digests.values())])

    key = _digest([run.manifest["identity"], run.manifest["created"]])
    known = next(iter(server.find(RUN, key)), None)
    tags = {"mlflow.note.content": _describe(content.findings), **_versions(run)}
    parent = server.begin(_name(run), {RUN: key, **tags}, started) if known is None else str(known.info.run_id)
    if known is not None and known.data.tags.get(CONTENT) == digest:
        return Tracked(server.link(parent), parent, server.experiment, 0, len(parts))

    kept = _drop_outdated(server, parent, digests)
    missing = [part for part in parts if part not in kept]
    advance = (reporter or Silent()).stage("logging", len(missing) + 1, "runs")
    for part in missing:
        nested = server.begin(_title(run, part), {PARENT: parent, PART: _key(part)}, started)
        server.log(nested, parts[part], _part_params(run, part), ended)
        server.end(nested, ended)
        server.tag(nested, {CONTENT: digests[part]})  # last: a run without it was left unfinished
        advance(1)
    _log_parent(content, server, parent, known, ended)
    server.tag(parent, {**tags, CONTENT: digest})
    advance(1)
    return Tracked(server.link(parent), parent, server.experiment, len(missing), len(parts) - len(missing))


def _log_parent(content: Content, server: Server, parent: str, known: Any, ended: int) -> None:
    """Log the run as a whole: figures and parameters that are not there yet, the dataset and the files."""
    run = content.run
    numbers = summarise(run, content.findings)
    metrics, named = (known.data.metrics, known.data.params) if known is not None else ({}, {})
    changed = {one.name for one in numbers if not math.isclose(metrics.get(one.name, math.nan), _last(numbers, one.name))}
    params = {key: value for key, value in _params(run).items() if key not in named}
    server.log(parent, [one for one in numbers if one.name in changed], params, ended)
    server.log_dataset(parent, run.data["name"], run.data["fingerprint"], run.source["data"]["source"])
    with tempfile.TemporaryDirectory() as folder:
        _gather(content, Path(folder))
        server.upload(parent, Path(folder))
    server.end(parent, ended)


def _drop_outdated(server: Server, parent: str, digests: Mapping[Part, str]) -> set[Part]:
    """Return the parts that are on the server and up to date; delete the other nested runs."""
    wanted = {_key(part): part for part in digests}
    kept: set[Part] = set()
    for nested in server.find(PARENT, parent):
        part = wanted.get(nested.data.tags.get(PART, ""))
        if part is None or part in kept or nested.data.tags.get(CONTENT) != digests[part]:
            server.drop(nested.info.run_id)
        else:
            kept.add(part)
    return kept


def _gather(content: Content, folder: Path) -> None:
    """Copy the report, the figures, the manifest and the findings into a folder."""
    content.write_report()
    for name in ["report.html", "manifest.json", *(f"figures/{name}" for name in content.write_figures())]:
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content.run.store.read(*name.split("/")))
    findings = {name: found.to_json() for name, found in content.findings.items()}
    (folder / "summary.json").write_text(json.dumps(findings, ensure_ascii=False, indent=1), encoding="utf-8")


# ---- parameters, tags and names ----


def _params(run: Run) -> dict[str, str]:
    """Return what was measured: the config, and the fingerprints of models and data."""
    lenses = {name: {key: value for key, value in lens.items() if key != "name"} for name, lens in run.lenses.items()}
    models = {
        name: {"source": model.options["source"], "fingerprint": model.fingerprint, "input": list(model.input)}
        for name, model in run.models.items()
    }
    return dict(_words({**run.config, "lenses": lenses, "models": models, "data": {**run.config["data"], **run.data}}))


def _part_params(run: Run, part: Part) -> dict[str, str]:
    """Return what a nested run is about, and the options of its lens."""
    options = run.lens(part.lens) or run.manifest.get(part.lens, {}).get("options", {})
    options = {key: value for key, value in options.items() if key not in ("name", "operators", "methods")}
    own = {"lens": part.lens, "model": part.model, "operator": part.operator}
    fingerprint = run.models[part.model].fingerprint
    return dict(_words({**own, "fingerprint": fingerprint, "data": run.data, "seed": run.seed, **options}))


def _words(value: Any, name: str = "") -> list[tuple[str, str]]:
    """Return settings as text by their paths, such as data.limit; lists are joined."""
    if isinstance(value, Mapping):
        return [pair for key, each in value.items() for pair in _words(each, f"{name}.{key}" if name else str(key))]
    if value is None:
        return []
    if isinstance(value, list):
        value = ", ".join(map(str, value))
    return [(to_word(name), str(value))] if value != "" else []


def _versions(run: Run) -> dict[str, str]:
    versions = {f"version.{name}": value for name, value in run.manifest["versions"].items() if value is not None}
    machine = {f"machine.{name}": value for name, value in run.manifest["machine"].items()}
    return {**versions, **machine, "brinell.folder": run.store.place(), "mlflow.source.name": "brinell"}


def _describe(findings: Mapping[str, Findings]) -> str:
    """Return the verdicts, which MLflow shows on the run's page."""
    lines = []
    for name, found in findings.items():
        lines += [f"**{name}**", *(f"- {found.verdict(model)}" for model in found.models), ""]
    return "\n".join(lines)[:MAX_NOTE]


def _name(run: Run) -> str:
    return run.store.root.rpartition("/")[2] or run.folder


def _title(run: Run, part: Part) -> str:
    model = f" ({part.model})" if len(run.models) > 1 else ""
    return f"{part.lens}: {run.title(part.operator)}{model}"


def _key(part: Part) -> str:
    return f"{part.lens}|{part.model}|{part.operator}"


def _last(numbers: list[Number], name: str) -> float:
    """Return what a server takes as a figure's value: that of its last step."""
    return max((one for one in numbers if one.name == name), key=lambda one: one.step).value


def _digest_part(run: Run, part: Part, numbers: list[Number]) -> str:
    """Return what identifies a part's content: its settings, the names of its figures and the code that computed them.

    Values are not included: rows don't change, but sums over them may differ in the last digit.
    """
    code = [package_version("brinell"), run.manifest.get(part.lens)]
    return _digest([code, _part_params(run, part), [(one.name, one.step) for one in numbers]])


def _digest(content: Any) -> str:
    """Return 32 hex digits of plain data."""
    return hashlib.blake2b(json.dumps(content, sort_keys=True).encode(), digest_size=16).hexdigest()
