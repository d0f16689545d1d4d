"""Verifies a run: its files against their checksums, its rows against the manifest, and some rows against the models."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from brinell.engine.clean import readable as readable_images
from brinell.engine.context import RunContext
from brinell.engine.progress import Reporter, Silent
from brinell.engine.remeasuring import remeasure
from brinell.engine.setup import RunSetup
from brinell.engine.shards import Entry, worker_count
from brinell.engine.threads import torch_alone
from brinell.hashing import key
from brinell.interrupts import stoppable
from brinell.lenses.lens import LENSES
from brinell.run_config import load_config
from brinell.runs.files import HALF_WRITTEN
from brinell.runs.integrity import file_problem, read_table, rows_problems
from brinell.runs.run import Run
from brinell.runs.store import UNFINISHED, digest_of

SHOWN = 5  # problems of a check


@dataclass(frozen=True)
class Check:
    """One check of a run: what was looked at, and the problems that were found; why it was skipped, if it was."""

    name: str
    detail: str
    problems: tuple[str, ...] = ()
    skipped: bool = False

    @property
    def passed(self) -> bool:
        """Whether nothing is wrong, as far as was looked."""
        return not self.problems


def verify_files(run: Run) -> list[Check]:
    """Check the files of a run: that all are there, whole, and its own. No model is needed."""
    run.store.run = digest_of(run.manifest)
    files = run.store.unit_files()
    damaged = list(rows_problems(run.store))
    checks = [
        Check("finished", "the manifest says so", () if run.finished else ("the run is not finished; rerun its command",)),
        _check_tables(run),
        Check("rows", f"checksums of {len(files):,} files", tuple(damaged)),
        _check_pictures(run),
        _check_leftovers(run, readable=not damaged),
    ]
    if damaged or not checks[1].passed:
        return [*checks, Check("completeness", "not checked, because files are damaged", skipped=True)]
    return [*checks, _check_completeness(run)]


def _check_tables(run: Run) -> Check:
    names = sorted({"samples", "clean", *run.store.tables()})
    found = {name: read_table(run.store, name) for name in names}
    problems = [
        problem or f"{run.store.place(f'{name}.parquet')} is missing"
        for name, (table, problem) in found.items()
        if table is None
    ]
    return Check("tables", f"checksums of {', '.join(names)}", tuple(problems))


def _check_pictures(run: Run) -> Check:
    problem = file_problem(run.store)
    return Check("pictures", "checksums of the report's pictures", () if problem is None else (problem,))


def _check_leftovers(run: Run, *, readable: bool) -> Check:
    """Check that the folder holds nothing of another run, and nothing half-written."""
    store, known = run.store, {(lens, model) for lens in run.lenses for model in run.models}
    owners = set(run.query("select distinct lens, model from rows")) if readable else known
    problems = [f"there are rows of {lens} and {model}, which the manifest doesn't name" for lens, model in owners - known]
    files = sorted(store.fs.find(store.path()))
    problems += [f"{path} is half-written" for path in files if path.endswith(HALF_WRITTEN)]
    if run.finished and any(path.startswith(store.path(UNFINISHED, "")) for path in files):
        problems.append(f"{store.place(UNFINISHED)} is left over")
    return Check("manifest against files", "lenses, models and unfinished files", tuple(problems))


def _check_completeness(run: Run) -> Check:
    """Check that every image that was kept has rows of every lens, model and operator."""
    kept = {image for (image,) in run.query("select distinct image from clean join samples using (index) where kept")}
    counts: dict[tuple[str, str, str], int] = {
        (lens, model, operator): count
        for lens, model, operator, count in run.query(
            "select lens, model, operator, count(distinct image) from rows group by all"
        )
    }
    strangers = run.query("select count(distinct image) from rows where image not in (select image from samples)")[0][0]
    problems = [f"{strangers} images of the rows are not in samples.parquet"] if strangers else []
    expected = list(_expected(run))
    for lens, model, operator in expected:
        count = counts.get((lens, model, operator), 0)
        if count == 0 or (count != len(kept) and not run.sampled):  # a budget may leave out images
            problems.append(f"{lens}, {model}, {operator}: rows of {count:,} of {len(kept):,} images")
    return Check("completeness", f"{len(expected):,} operators and models, {len(kept):,} images each", tuple(problems))


def _expected(run: Run) -> Iterator[tuple[str, str, str]]:
    unsupported = {(one["model"], one["operator"]) for one in run.manifest["unsupported"]}
    for options in load_config(run.source).lenses:
        changes = [change.id for change in LENSES[options.name].method.changes(options)]
        for model in run.models:
            yield from ((options.name, model, name) for name in changes if (model, name) not in unsupported)


def verify_rows(run: Run, setup: RunSetup, *, sample: int, seed: int = 0, progress: Reporter | None = None) -> Check:
    """Measure a random sample of images and operators again, and compare with the stored rows."""
    samples, clean = run.store.table("samples"), run.store.table("clean")
    numbers = zip(clean["index"].to_pylist(), clean["kept"].to_pylist(), strict=True)
    kept = {index for index, keep in numbers if keep}
    entries = {entry.image: entry for entry in readable_images(samples) if entry.index in kept}
    paid = {model.name for model in setup.models if model.service is not None}
    pairs = [(job, image) for job in _expected(run) if job[1] not in paid for image in entries]
    pairs.sort(key=lambda pair: key("verify", seed, *pair[0], pair[1]))
    chosen: dict[tuple[str, str, str], list[Entry]] = {}
    for job, image in pairs[:sample]:
        chosen.setdefault(job, []).append(entries[image])
    if not chosen:
        return Check("replay", "skipped: queries of the run's services may cost money", skipped=True)
    reporter = progress or Silent()
    advance = reporter.stage("replaying rows", min(sample, len(pairs)), "searches")
    rows = 0
    problems: list[str] = []
    with stoppable(), torch_alone(), ThreadPoolExecutor(worker_count(setup.config.execution.workers), "decode") as pool:
        context = RunContext(run.store, setup, samples, run.manifest, pool, reporter)
        for job, mine in chosen.items():
            count, found = remeasure(context, run, clean, job, mine)
            rows, problems = rows + count, [*problems, *found]
            advance(len(mine))
    return Check("replay", f"{rows:,} rows of {min(sample, len(pairs))} images and operators", tuple(problems))


def describe_checks(checks: Sequence[Check]) -> list[str]:
    """Return checks as lines for people."""
    lines = []
    for check in checks:
        state = "skipped" if check.skipped else "passed" if check.passed else "failed"
        lines.append(f"{state:<8}{check.name}: {check.detail}")
        lines += [f"        - {problem}" for problem in check.problems[:SHOWN]]
        if len(check.problems) > SHOWN:
            lines.append(f"        - and {len(check.problems) - SHOWN:,} more")
    return lines
