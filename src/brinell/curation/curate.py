"""Write failures of runs as a dataset: read them from rows, choose, render and write them, with metadata and a card."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from brinell.config.execution import Execution
from brinell.curation.card import CardContent, contact_sheet, render_card, select_examples
from brinell.curation.choice import limit_failures
from brinell.curation.examples import Example, mark_examples
from brinell.curation.failures import Failure, choose_failures, filter_failures, gather, required_failures
from brinell.curation.layouts import LAYOUTS, counterpart_files, licence_of, require_boxes, write_coco
from brinell.curation.masks import mask_files, write_masks
from brinell.curation.options import CurateOptions
from brinell.curation.query import ModelQueries
from brinell.curation.records import class_of, record_failure
from brinell.curation.render import FailureRenderer, RenderedFailure
from brinell.curation.runs import ModelOpener, connect, list_models, source_runs
from brinell.engine.progress import Reporter, Silent
from brinell.engine.shards import in_order, worker_count
from brinell.engine.threads import torch_alone
from brinell.errors import RunError
from brinell.lenses.sample import sampled_cells
from brinell.models.model import Model
from brinell.pictures import encode_image
from brinell.runs.files import HALF_WRITTEN
from brinell.runs.run import Run
from brinell.runs.store import Store
from brinell.versions import package_version

UNFINISHED = ".unfinished"  # identifies the dataset that is being written
FINISHED = (".card", "dataset")  # identifies the one that was


@dataclass(frozen=True)
class Curated:
    """A dataset of failures: its folder, and the number of images per model, operator and class."""

    folder: str
    images: int
    originals: int
    models: dict[str, int]
    operators: dict[str, int]
    classes: dict[str, int]


def _refuse_samples(runs: Sequence[Run], options: CurateOptions) -> None:
    """Raise if the least changed failure of each image is wanted from a sample of the image's cells."""
    for run in () if options.every else runs:
        for noun in sampled_cells(run, options.lens):
            raise RunError(
                f"the least changed failure of an image is unknown in {run.folder}, a sample of each image's {noun}; take "
                "all failures with --all, or rerun it without --budget"
            )


def curate(
    runs: Sequence[Run],
    out: Store,
    options: CurateOptions,
    *,
    data: Any = None,
    models: Sequence[Model] = (),
    execution: Execution | None = None,
    reporter: Reporter | None = None,
) -> Curated:
    """Write the failures of finished runs as a dataset. `models` that are given need not be opened."""
    execution, reporter = execution or Execution(), reporter or Silent()
    require_empty(out)
    _refuse_samples(runs, options)
    sources = source_runs(runs, data)
    run_models = list_models(sources)
    fail = required_failures(options, run_models)
    connection = connect(sources)
    gather(connection, sources, run_models, options)
    opener = ModelOpener(models, execution)
    with torch_alone(), ThreadPoolExecutor(worker_count(execution.workers), "curate") as pool:
        queries = ModelQueries(sources, run_models, opener, pool, reporter)
        queries.confirm(connection)
        filter_failures(connection, options)
        if fail > 1:
            queries.query_others(connection, options)
        found = choose_failures(connection, sources, run_models, options, fail)
        if options.layout == "coco":
            require_boxes(found)
        steps = [f"{len(found):,} changed images on which {_describe_fail(options, fail)}"]
        renderer = FailureRenderer(opener, pool)
        failures = limit_failures(found, options, renderer, reporter, steps)
        files = LAYOUTS[options.layout](failures, options.format)
        masks = mask_files(failures, files)
        dataset = _Dataset(out, failures, files, counterpart_files(failures, files, options), options)
        dataset.begin()
        write_masks(out, failures, masks, pool)
        examples = mark_examples(dataset.write_images(renderer, pool, reporter), opener, reporter)

    def records() -> Iterator[dict[str, Any]]:  # generated on demand: they take more memory than the failures
        each = zip(failures, files, dataset.counterparts, masks, strict=True)
        return (record_failure(*one, sources) for one in each)

    if options.layout == "coco":
        write_coco(out, failures, list(records()))
    if examples:
        out.write(contact_sheet(examples), ".card", "examples.png")
    licences = Counter(map(licence_of, records()))
    card = CardContent(out.root.rpartition("/")[2], failures, licences, sources, run_models, options, steps)
    out.write(render_card(card).encode(), "README.md")
    lines = (json.dumps(one, ensure_ascii=False, allow_nan=False).encode() + b"\n" for one in records())
    out.write(b"".join(lines), "metadata.jsonl")
    dataset.finish()
    return _curated(out, failures)


def _curated(out: Store, failures: Sequence[Failure]) -> Curated:
    """Count what was written."""
    return Curated(
        folder=out.place(),
        images=len(failures),
        originals=len({failure.replay.image for failure in failures}),
        models=dict(sorted(Counter(answer.model.name for one in failures for answer in one.answers).items())),
        operators=dict(sorted(Counter(failure.replay.change.id for failure in failures).items())),
        classes=dict(sorted(Counter(map(class_of, failures)).items())),
    )


def require_empty(out: Store) -> None:
    """Raise if the folder is not empty, unless it holds a dataset that was curated, or a part of one."""
    try:
        existing = out.fs.ls(out.path(), detail=False) if out.exists() else []
    except NotADirectoryError:
        existing = [out.path()]
    existing = [path for path in existing if not path.endswith(HALF_WRITTEN)]  # of one that was killed before it began
    if existing and not (out.exists(UNFINISHED) or out.exists(*FINISHED)):
        raise RunError(f"{out.url} is not empty; choose another folder with -o, or empty it first")


def _describe_fail(options: CurateOptions, fail: int) -> str:
    return {"any": "any model fails", "all": "all models fail"}.get(str(options.fail), f"at least {fail} models fail")


@dataclass(frozen=True)
class _Dataset:
    """The dataset that is written: failures, their files, and the files that go with them."""

    out: Store
    failures: Sequence[Failure]
    files: Sequence[str]
    counterparts: Sequence[str | None]
    options: CurateOptions

    def begin(self) -> None:
        """Mark the folder as this dataset, unfinished; raise if it holds a part of another one. Remove partial files."""
        out = self.out
        for mark, held in (((UNFINISHED,), "a part of another dataset"), (FINISHED, "another dataset")):
            if out.exists(*mark) and out.read(*mark) != self._identity():
                raise RunError(f"{out.url} holds {held}; choose another folder with -o, or empty it first")
        if not out.exists(UNFINISHED):
            out.write(self._identity(), UNFINISHED)
        for path in out.fs.find(out.path()):
            if path.endswith(HALF_WRITTEN):
                out.fs.rm_file(path)

    def finish(self) -> None:
        """Mark the dataset as finished: the same command finds it complete."""
        self.out.write(self._identity(), *FINISHED)
        self.out.remove(UNFINISHED)

    def _identity(self) -> bytes:
        keys, version = [one.key for one in self.failures], package_version("brinell")
        content = [self.options.model_dump(mode="json"), version, keys, list(self.files)]
        return hashlib.blake2b(json.dumps(content).encode(), digest_size=16).hexdigest().encode()

    def write_images(self, renderer: FailureRenderer, pool: ThreadPoolExecutor, reporter: Reporter) -> list[Example]:
        """Write the images that do not exist yet, and return examples for the card."""
        out, existing = self.out, set(self.out.fs.find(self.out.path()))
        examples: dict[int, tuple[Tensor, Tensor] | None] = dict.fromkeys(select_examples(self.failures))
        wanted = [
            number
            for number, files in enumerate(zip(self.files, self.counterparts, strict=True))
            if number in examples or any(file is not None and out.path(file) not in existing for file in files)
        ]
        advance = reporter.stage("writing images", len(wanted), "images")

        def write(rendered: RenderedFailure) -> RenderedFailure:
            number = wanted[rendered.number]
            for image, file in ((rendered.image, self.files[number]), (rendered.clean, self.counterparts[number])):
                if file is not None and out.path(file) not in existing:
                    out.write(encode_image(image, self.options.format), *file.split("/"))
            return rendered

        for rendered in in_order(pool, write, renderer.render([self.failures[number] for number in wanted]), 32):
            if wanted[rendered.number] in examples:
                examples[wanted[rendered.number]] = rendered.clean, rendered.image
            advance(1)
        return [Example(self.failures[number], *pair) for number, pair in examples.items() if pair is not None]
