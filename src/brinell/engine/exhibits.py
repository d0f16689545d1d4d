"""Pictures for the report: changed images, replayed from what the rows say.

They are stored with the run, so that the report needs neither the model nor the dataset.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from urllib.parse import quote

import torch
from torch import Tensor

from brinell.engine.clean import readable
from brinell.engine.renderer import Renderer
from brinell.engine.replay import Replay, render
from brinell.engine.setup import RunSetup
from brinell.engine.shards import Entry, id_numbers, load_images
from brinell.lenses.lens import LENSES
from brinell.lenses.method import Drawing
from brinell.models.model import Model
from brinell.perturb.change import to_whole_levels
from brinell.pictures import encode_webp, to_picture
from brinell.report.exhibits import FILE, Exhibit, write_exhibits
from brinell.runs.run import Run

BATCH = 8


def draw_exhibits(run: Run, setup: RunSetup, pool: ThreadPoolExecutor) -> None:
    """Choose, render and store the pictures of a finished run, once."""
    if run.store.exists(FILE):
        return
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
    for model in setup.models:
        mine = [exhibit for exhibit in wanted if exhibit.model == model.name]
        if mine:
            _draw(run, setup, model, mine, entries, pool)
    write_exhibits(run, wanted)


def _filed(exhibit: Exhibit) -> Exhibit:
    """Return an exhibit with the names of its files."""
    folder = f"exhibits/{quote(exhibit.model, safe='')}/{exhibit.lens}-{quote(exhibit.operator, safe='')}"
    name = f"{exhibit.image}-{exhibit.level}"
    return replace(exhibit, file=f"{folder}/{name}.webp", clean_file=f"{folder}/{name}-clean.webp")


def _draw(
    run: Run,
    setup: RunSetup,
    model: Model,
    exhibits: list[Exhibit],
    known: dict[str, Entry],
    pool: ThreadPoolExecutor,
) -> None:
    labels = {exhibit.image: exhibit.label for exhibit in exhibits}
    entries = [known[image] for image in labels]
    replays = [_replay(setup, model, exhibit) for exhibit in exhibits]
    originals = any(replay.change.acts_on == "original" for replay in replays)
    images = load_images(setup.dataset, entries, model.preprocess, pool, with_originals=originals)
    renderer = Renderer(
        model.preprocess,
        images.inputs,
        id_numbers(entries),
        seed=setup.config.seed,
        originals=images.originals,
        device=model.device,
    )
    renderer.follow(torch.tensor(list(labels.values())), model.gradient if model.differentiable is not None else None)
    indices = {entry.image: index for index, entry in enumerate(entries)}
    plain = []
    for number, (exhibit, replay) in enumerate(zip(exhibits, replays, strict=True)):
        parameters = torch.tensor([replay.parameters], dtype=torch.float64)
        pictures = replay.change.pictures(renderer, indices[exhibit.image], parameters)
        if pictures is None:
            plain.append(number)
            _store(run, exhibit.clean_file, images.inputs[indices[exhibit.image]])
        else:
            _store(run, exhibit.clean_file, pictures[0])
            _store(run, exhibit.file, pictures[1])
    for turn, image in render(renderer, [replays[number] for number in plain], indices, batch=BATCH):
        _store(run, exhibits[plain[turn]].file, image)


def _replay(setup: RunSetup, model: Model, exhibit: Exhibit) -> Replay:
    options = next(options for options in setup.config.lenses if options.name == exhibit.lens)
    size = model.preprocess.height, model.preprocess.width
    change = LENSES[exhibit.lens].method.replay(options, exhibit.operator, size)
    return Replay(exhibit.image, change, exhibit.parameters, exhibit.field)


def _store(run: Run, file: str, image: Tensor) -> None:
    run.store.write(encode_webp(to_picture(to_whole_levels(image)), quality=90), *file.split("/"))
