"""Writes perturbed copies of a dataset: streaming, in batches, and resumable to the same bytes."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from brinell.config.execution import Execution
from brinell.corruption.coco import Coco
from brinell.corruption.costs import CopyCost, estimate
from brinell.corruption.layouts import Copy, Folders, ImageFolder, Layout, WebDataset, to_json
from brinell.corruption.options import CorruptOptions
from brinell.corruption.originals import FileNames, Original, Skipped, read_originals
from brinell.corruption.records import UNFINISHED, Journal
from brinell.corruption.render import Renderer
from brinell.corruption.settings import list_settings
from brinell.draws import permutation
from brinell.engine.progress import Reporter, Silent
from brinell.engine.shards import give_back_freed_memory, worker_count
from brinell.engine.threads import torch_alone
from brinell.errors import ConfigError, DataError, RunError
from brinell.models.device import select_device
from brinell.runs.store import Store
from brinell.types import Dataset
from brinell.versions import package_version

RENDERERS = 16  # threads: they read less than they compute
PROBED = 8  # originals that an estimate is made from, and that identify the data
IDENTITY = "identity"
COMPLETE = ".complete"  # identifies a copy that is whole, and says what it holds


@dataclass(frozen=True)
class Corrupted:
    """A perturbed copy: its folder, its images, of how many originals, and which originals could not be read.

    `written` is False if it was complete before, so that nothing was left to do.
    """

    folder: str
    images: int
    originals: int
    skipped: tuple[tuple[str, str], ...]
    written: bool = True


def corrupt(
    dataset: Dataset,
    out: Store,
    options: CorruptOptions,
    *,
    execution: Execution | None = None,
    reporter: Reporter | None = None,
    confirm: Callable[[CopyCost], None] = lambda cost: None,
) -> Corrupted:
    """Write copies of a dataset under operators, one dataset per operator and severity; or resume.

    `confirm` gets what is left to do before anything is written, and may raise.
    """
    execution, reporter = execution or Execution(), reporter or Silent()
    settings = list_settings(options)
    _require_writable(out)
    order = permutation(len(dataset), options.seed) if options.shuffle else list(range(len(dataset)))
    indices = order[: options.limit]
    with torch_alone(), ThreadPoolExecutor(worker_count(execution.workers, RENDERERS), "corrupt") as pool:
        probed = _probe(dataset, indices, pool, options)
        copy = Copy(out, dataset, settings, options)
        if (whole := _find_complete(copy, probed, len(indices))) is not None:
            return whole
        layout = _layout(copy, probed)
        units = [indices[start : start + layout.unit] for start in range(0, len(indices), layout.unit)]
        journal = Journal(out)
        finished = journal.finished() if _check_identity(copy, probed, len(indices)) else set()
        missing = [number for number in range(len(units)) if number not in finished]
        renderer = Renderer(copy, layout, pool, worker_count(execution.workers, RENDERERS), select_device(execution))
        left = sum(len(units[number]) for number in missing)
        confirm(estimate(renderer, probed, left))
        out.write(_identify(copy, probed, len(indices)), UNFINISHED, IDENTITY)
        _write_units(renderer, journal, units, missing, strict=execution.strict, reporter=reporter)
    layout.finish(lambda: journal.records(range(len(units))))
    written = [journal.read(number) for number in range(len(units))]
    originals = sum(len(unit.records) for unit in written)
    skipped = tuple(one for unit in written for one in unit.skipped)
    identity = _identify(copy, probed, len(indices)).decode()
    out.write(to_json({IDENTITY: identity, "originals": originals, "skipped": skipped}), COMPLETE)
    out.remove(UNFINISHED)
    return Corrupted(out.place(), originals * len(settings), originals, skipped)


def _find_complete(copy: Copy, probed: Sequence[Original], count: int) -> Corrupted | None:
    """Return the copy if the folder holds the whole of it; raise if it holds another one."""
    out = copy.out
    if not out.exists(COMPLETE):
        return None
    held = json.loads(out.read(COMPLETE))
    if held[IDENTITY] != _identify(copy, probed, count).decode():
        raise RunError(f"{out.url} holds another copy; choose another folder, or empty it first")
    if out.exists(UNFINISHED):  # it was interrupted at its very end
        out.remove(UNFINISHED)
    skipped = tuple((name, problem) for name, problem in held["skipped"])
    return Corrupted(out.place(), held["originals"] * len(copy.settings), held["originals"], skipped, written=False)


def _write_units(
    renderer: Renderer,
    journal: Journal,
    units: Sequence[Sequence[int]],
    missing: Sequence[int],
    *,
    strict: bool,
    reporter: Reporter,
) -> None:
    """Write the units that are missing, and their records."""
    settings = len(renderer.copy.settings)
    advance = reporter.stage("writing images", sum(len(units[number]) for number in missing) * settings, "images")
    done = journal.records([number for number in range(len(units)) if number not in set(missing)])
    names = FileNames([record.name for record in done])
    for number in missing:
        originals = read_originals(
            renderer.copy.dataset, units[number], renderer.pool, size=renderer.copy.options.size, strict=strict
        )
        journal.write(number, renderer.write_unit(number, originals, names, advance))
        give_back_freed_memory()


def _probe(dataset: Dataset, indices: Sequence[int], pool: ThreadPoolExecutor, options: CorruptOptions) -> list[Original]:
    """Return the first readable originals; raise if there are none."""
    found: list[Original] = []
    problem = f"{dataset.name} has no images"
    for one in read_originals(dataset, indices, pool, size=options.size, strict=False):
        if isinstance(one, Skipped):
            problem = f"no image of {dataset.name} can be read: {one.name}: {one.problem}"
        else:
            found.append(one)
        if len(found) == PROBED:
            break
    if not found:
        raise DataError(problem)
    return found


def _layout(copy: Copy, probed: Sequence[Original]) -> Layout:
    boxed = any(original.sample.boxes is not None for original in probed)
    if copy.options.like is not None:
        if copy.options.layout is not None:
            raise ConfigError("--like and --layout both name a layout; give one of them")
        return Folders(copy)
    name = copy.options.layout or ("coco" if boxed else "imagefolder")
    if name == "coco" and not boxed:
        raise ConfigError(f"{copy.dataset.name} has no boxes to write as COCO; use --layout imagefolder")
    kinds: dict[str, type[Any]] = {"coco": Coco, "imagefolder": ImageFolder, "webdataset": WebDataset}
    layout: Layout = kinds[name](copy)
    return layout


def _identify(copy: Copy, probed: Sequence[Original], count: int) -> bytes:
    """Return what tells a copy from others: its options, its data and the version."""
    data = [copy.dataset.name, count, [original.id for original in probed]]
    content = to_json([copy.options.model_dump(mode="json"), data, package_version("brinell")])
    return hashlib.blake2b(content, digest_size=16).hexdigest().encode()


def _check_identity(copy: Copy, probed: Sequence[Original], count: int) -> bool:
    """Whether the folder holds a part of this copy; raise if it holds a part of another one. Remove partial files."""
    out = copy.out
    if not out.exists(UNFINISHED, IDENTITY):
        return False
    if out.read(UNFINISHED, IDENTITY) != _identify(copy, probed, count):
        raise RunError(f"{out.url} holds a part of another copy; choose another folder, or empty it first")
    for path in out.fs.find(out.path()):
        if path.endswith(".part"):
            out.fs.rm_file(path)
    return True


def _require_writable(out: Store) -> None:
    """Raise if the folder is not empty, unless it holds a copy or a part of one."""
    try:
        existing = out.fs.ls(out.path(), detail=False) if out.exists() else []
    except NotADirectoryError:
        existing = [out.path()]
    if existing and not (out.exists(UNFINISHED) or out.exists(COMPLETE)):
        raise RunError(f"{out.url} is not empty; choose another folder, or empty it first")
