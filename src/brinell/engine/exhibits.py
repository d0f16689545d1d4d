"""Pictures for the report: changed images, replayed from what the rows say.

They are stored with the run, so that the report needs neither the model nor the dataset.
"""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from functools import cache
from urllib.parse import quote

import torch

from brinell.engine.clean import readable
from brinell.engine.context import RunContext
from brinell.engine.evaluator import Evaluator
from brinell.engine.explanations import Explainer, needs_explanation, shift_marks
from brinell.engine.found import Known
from brinell.engine.picture_files import PictureFiles
from brinell.engine.renderer import Renderer
from brinell.engine.replay import Replay, render
from brinell.engine.setup import RunSetup, criterion_of
from brinell.engine.shards import Entry, id_numbers, load_images
from brinell.engine.truth.masks import true_masks
from brinell.engine.truth.objects import Truth
from brinell.errors import BudgetSpent, ServiceError
from brinell.lenses.lens import LENSES
from brinell.lenses.method import Drawing
from brinell.models.model import Model
from brinell.perturb.change import to_whole_levels
from brinell.pictures import to_picture
from brinell.report.exhibits import FILE, Exhibit, write_exhibits
from brinell.runs.integrity import file_problem, write_checksums
from brinell.runs.run import Run

BATCH = 8


def draw_exhibits(run: Run, context: RunContext) -> None:
    """Choose, render and store the pictures of a finished run, once; damaged ones are drawn again."""
    if run.store.exists(FILE):
        problem = file_problem(run.store) if run.store.is_local else None
        if problem is None:
            return
        context.reporter.say(f"{problem}; drawing all pictures again")
    with run.store.recording() as written:
        _draw_all(run, context)
    write_checksums(run.store, written)


def _draw_all(run: Run, context: RunContext) -> None:
    setup = context.setup
    entries = {entry.image: entry for entry in reversed(readable(run.store.table("samples")))}  # the first of equal images
    drawing = Drawing(
        run.store,
        setup.models,
        lambda image: setup.dataset[entries[image].index].image,
        lambda image: entries[image].name,
    )
    wanted: list[Exhibit] = []
    for options in setup.config.lenses:
        lens = LENSES[options.name]
        if lens.reader.exhibits is not None:
            wanted += [_filed(exhibit) for exhibit in lens.reader.exhibits(run, run.lens(lens.name))]
        if lens.method.draw is not None:
            lens.method.draw(drawing, options)
    drawn: list[Exhibit] = []
    for model in setup.models:
        mine = [exhibit for exhibit in wanted if exhibit.model == model.name]
        if mine:
            drawn += _draw(run, context, model, mine, entries)
    write_exhibits(run, drawn)


def _filed(exhibit: Exhibit) -> Exhibit:
    """Return an exhibit with the names of its files."""
    folder = f"exhibits/{quote(exhibit.model, safe='')}/{exhibit.lens}-{quote(exhibit.operator, safe='')}"
    name = f"{exhibit.image}-{exhibit.level}"
    return replace(exhibit, file=f"{folder}/{name}.webp", clean_file=f"{folder}/{name}-clean.webp")


def _draw(run: Run, context: RunContext, model: Model, exhibits: list[Exhibit], known: dict[str, Entry]) -> list[Exhibit]:
    """Store a model's pictures, and return its exhibits with what explains them."""
    setup, pool = context.setup, context.pool
    labels = {image: exhibit.label for exhibit in exhibits for image in (exhibit.image, exhibit.before)}
    entries = [known[image] for image in labels]
    replays = [_replay(setup, model, exhibit) for exhibit in exhibits]
    originals = any(replay.change.acts_on == "original" for replay in replays)
    ready = {} if originals else context.ready.inputs(model.preprocess)
    images = load_images(setup.dataset, entries, model.preprocess, pool, with_originals=originals, ready=ready)
    renderer = Renderer(
        model.preprocess,
        images.inputs,
        id_numbers(entries),
        seed=setup.config.seed,
        originals=images.originals,
        device=model.device,
    )
    indices = {entry.image: index for index, entry in enumerate(entries)}
    explainer = _explainer(run, setup, model, renderer, labels, entries, pool)
    drawn = list(exhibits)

    with PictureFiles(run.store) as files:

        @cache
        def clean(image: str) -> Future[bytes]:
            return files.encode(to_picture(to_whole_levels(images.inputs[indices[image]])))

        for number, image in render(renderer, replays, indices, batch=BATCH):
            exhibit, replay = exhibits[number], replays[number]
            parameters = torch.tensor([replay.parameters], dtype=torch.float64)
            pictures = replay.change.pictures(renderer, indices[exhibit.image], parameters)
            before, after = None, to_picture(to_whole_levels(image))
            if pictures is not None:
                before, after = (to_picture(to_whole_levels(each)) for each in pictures)
            elif model.segmenter is not None:
                with suppress(ServiceError, BudgetSpent):  # a picture is not worth stopping a run that has all its rows
                    before, after = explainer.draw_masks(exhibit, replay, image)
            files.add_encoded(exhibit.clean_file, clean(exhibit.before) if before is None else files.encode(before))
            files.add(exhibit.file, after)
            if needs_explanation(model, explainer.criteria[exhibit.lens]):
                explained = explainer.explain(exhibit, replay, image)
                drawn[number] = explained if pictures is None else _on_whole(explained, renderer, indices[exhibit.image])
    return drawn


def _explainer(
    run: Run,
    setup: RunSetup,
    model: Model,
    renderer: Renderer,
    labels: dict[str, int],
    entries: list[Entry],
    pool: ThreadPoolExecutor,
) -> Explainer:
    criteria = {options.name: criterion_of(options.criterion, model) for options in setup.config.lenses}
    regions = Truth.of(run.store.table("clean")).regions_of(model, entries)
    masks = true_masks(setup.dataset, setup.config.data, model)
    evaluator = Evaluator(
        model,
        renderer,
        torch.tensor(list(labels.values())),
        criterion=next(iter(criteria.values())),
        batch=BATCH,
        known=Known(regions, masks=None if masks is None else masks.load(entries, pool)),
    )
    return Explainer(evaluator, criteria, {image: index for index, image in enumerate(labels)})


def _on_whole(exhibit: Exhibit, renderer: Renderer, sample: int) -> Exhibit:
    """Return an exhibit whose pictures show whole images, with its marks on those."""
    preprocess, whole = renderer.preprocess, renderer.moving.shape(sample)
    size, corner = (preprocess.height, preprocess.width), preprocess.corner(*whole)
    marks, clean = (shift_marks(each, size, whole, corner) for each in (exhibit.marks, exhibit.clean_marks))
    return replace(exhibit, marks=marks, clean_marks=clean)


def _replay(setup: RunSetup, model: Model, exhibit: Exhibit) -> Replay:
    options = next(options for options in setup.config.lenses if options.name == exhibit.lens)
    size = model.preprocess.height, model.preprocess.width
    change = LENSES[exhibit.lens].method.replay(options, exhibit.operator, size)
    return Replay(exhibit.image, change, exhibit.parameters, exhibit.field)
