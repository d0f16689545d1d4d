"""A run's images as files: thumbnails, photographs, model inputs, and replays of rows. Imports torch."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from functools import cached_property
from typing import Any

import torch
from PIL import Image, ImageOps
from torch import Tensor

from brinell.config.criterion import DEFAULT_CRITERION
from brinell.config.execution import Execution
from brinell.curation.runs import ModelOpener, RunModel, SourceRun, list_models
from brinell.engine.evaluator import Evaluator
from brinell.engine.renderer import Renderer
from brinell.engine.replay import Replay, render
from brinell.engine.setup import criterion_of
from brinell.engine.shards import id_numbers, load_images
from brinell.engine.threads import torch_alone
from brinell.errors import ModelError, RunError
from brinell.marks import enlarge
from brinell.mask_pictures import SIDE, MaskStyle, colour_mask
from brinell.models.marking import marker_of
from brinell.models.model import Model
from brinell.perturb.change import to_whole_levels
from brinell.pictures import encode_image, encode_webp, to_picture
from brinell.runs.run import Run
from brinell.saliency.layers import NoSaliency
from brinell.saliency.mapper import open_mapper
from brinell.saliency.overlays import colour_map
from brinell.viewer.boxes import Marks, mark_pair, require_detector
from brinell.viewer.stored import Stored

THUMBNAIL, PHOTOGRAPH = 112, 1280  # longest sides in pixels
KEPT = 24  # renderers in memory
Opener = Callable[[Run, str], Model]
At = tuple[Sequence[float], int]  # the parameters of a change, and its random field


class RunImages:
    """Makes the images of one run. One thread at a time: changes keep what they computed last.

    `reading` is held while the run's tables are read, since their connection serves one thread at a time, too.
    """

    def __init__(self, run: Run, data: str | None, opener: Opener, reading: AbstractContextManager[Any]) -> None:
        self.run, self.source, self._open_model = run, SourceRun(0, run, data), opener
        with reading:
            self._originals = self.source.originals
            self._labels = {model: run.labels(model) for model in run.models}
        self.stored = Stored(run)
        self._lock = threading.RLock()
        self._renderers: OrderedDict[tuple[str, str, bool], Renderer] = OrderedDict()

    @cached_property
    def models(self) -> dict[str, RunModel]:
        """The run's models by name."""
        return {model.own: model for model in list_models([self.source])}

    def thumbnail(self, image: str) -> bytes:
        """Return a small square picture of an original, stored once."""
        known = self.stored.read("thumbnails", f"{image}.webp")
        if known is None:
            picture = ImageOps.fit(self._picture(image), (THUMBNAIL, THUMBNAIL), Image.Resampling.LANCZOS)
            known = encode_webp(picture, quality=82)
            self.stored.write(known, "thumbnails", f"{image}.webp")
        return known

    def photograph(self, image: str) -> bytes:
        """Return an original as people look at it."""
        return as_photograph(self.original(image))

    def _picture(self, image: str) -> Image.Image:
        return to_picture(self.original(image)).convert("RGB")

    def original(self, image: str) -> Tensor:
        """Return an original, uint8 (C, H, W)."""
        entry = self._entry(image)
        with self._lock, self.source.explain_missing_images():
            return self.source.dataset[entry.index].image

    def _entry(self, image: str) -> Any:
        if image not in self._originals:
            raise RunError(f"the run in {self.run.folder} has no image {image}; choose one of its images")
        return self._originals[image].entry

    def clean(self, model: str, image: str, kind: str) -> bytes:
        """Return a clean model input."""
        return encode(self.clean_pixels(model, image), kind)

    def replay(self, model: str, lens: str, operator: str, image: str, *, at: At) -> Tensor:
        """Return the pixels that a model saw: an image under an operator at some parameters and a random field."""
        with self._lock:
            replay = self._replay(model, lens, operator, image, at)
            renderer = self._renderer(model, image, originals=replay.change.acts_on == "original")
            if replay.change.white_box:
                labels = torch.tensor([self._labels[model][image]])
                renderer.follow(labels, self._open_model(self.run, model).gradient)
            ((_, pixels),) = render(renderer, [replay], {image: 0}, batch=1)
            return to_whole_levels(pixels)

    def _replay(self, model: str, lens: str, operator: str, image: str, at: At) -> Replay:
        parameters, field = at
        return Replay(image, self.source.change(lens, operator, self.models[model].preprocess), tuple(parameters), field)

    def boxes(
        self, model: str, lens: str, operator: str, image: str, *, at: At, counterpart: At | None
    ) -> dict[str, Marks]:
        """Return where a detector finds objects in the image of a row, and in the one that it is compared with."""
        opened = self._open_model(self.run, model)
        require_detector(opened)
        with self._lock:
            replay = self._replay(model, lens, operator, image, at)
            before = None if counterpart is None else self._replay(model, lens, operator, image, counterpart)
            renderer = self._renderer(model, image, originals=replay.change.acts_on == "original")
            labels = torch.tensor([self._labels[model][image]])
            criterion = criterion_of(DEFAULT_CRITERION, opened)
            return mark_pair(Evaluator(opened, renderer, labels, criterion=criterion, batch=1), replay, before)

    def saliency(self, model: str, pixels: Tensor) -> bytes:
        """Return where a model looks for its answer on a model input, as colours that lie over it."""
        opened = self._open_model(self.run, model)
        try:
            with torch_alone(), open_mapper(opened) as mapper:
                inputs = pixels[None].to(opened.device)
                heat = mapper.maps(inputs, opened.predict(inputs).argmax(1))[0].cpu()
        except NoSaliency as error:
            raise ModelError(f"model {model} has no saliency maps: {error}") from None
        colours = torch.cat([colour_map(heat), 255 * (0.25 + 0.75 * heat[None])]).round().clamp(0, 255).to(torch.uint8)
        return encode_webp(Image.fromarray(colours.permute(1, 2, 0).numpy(), "RGBA"), quality=85)

    def masks(self, model: str, pixels: Tensor) -> bytes:
        """Return the classes of a segmenter's pixels on a model input, as colours that lie over it."""
        opened = self._open_model(self.run, model)
        if opened.segmenter is None:
            raise ModelError(f"model {model} is no segmenter and has no masks")
        with torch_alone():
            mask = opened.segment(pixels[None].to(opened.device))[0].cpu().numpy()
        style = MaskStyle(marker_of(opened).name, opened.segmenter.background)
        size = enlarge(to_picture(pixels), SIDE).size
        return encode_webp(colour_mask(mask, style, size, named=True), lossless=True)

    def clean_pixels(self, model: str, image: str) -> Tensor:
        """Return a clean model input."""
        with self._lock:
            return self._renderer(model, image, originals=False).inputs[0].cpu()

    def _renderer(self, model: str, image: str, *, originals: bool) -> Renderer:
        key = (model, image, originals)
        if key not in self._renderers:
            entry, preprocess = self._entry(image), self.models[model].preprocess
            with ThreadPoolExecutor(1) as pool, self.source.explain_missing_images():
                loaded = load_images(self.source.dataset, [entry], preprocess, pool, with_originals=originals)
            self._renderers[key] = Renderer(
                preprocess, loaded.inputs, id_numbers([entry]), seed=self.run.seed, originals=loaded.originals
            )
        self._renderers.move_to_end(key)
        while len(self._renderers) > KEPT:
            self._renderers.popitem(last=False)
        return self._renderers[key]


def as_photograph(image: Tensor) -> bytes:
    """Return an image for people: at most so many pixels wide and high."""
    picture = to_picture(image).convert("RGB")
    picture.thumbnail((PHOTOGRAPH, PHOTOGRAPH), Image.Resampling.LANCZOS)
    return encode_webp(picture, quality=90)


def encode(image: Tensor, kind: str) -> bytes:
    """Return pixels as a file that holds them exactly."""
    return encode_image(image, kind)


def open_run_model(run: Run, model: str, *, trust: bool) -> Model:
    """Open a model of a run as the run names it; one that runs code only if it is trusted."""
    source = SourceRun(0, run)
    known = next(one for one in list_models([source]) if one.own == model)
    return ModelOpener((), Execution(trust=trust)).open(known, source, "the viewer needs it")
