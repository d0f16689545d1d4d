"""Draws the lens's pictures for the report: photographs under their maps, and pairs of windows with the model's answers.

Windows are rendered and queried again from what the rows say, and stored with the run.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from urllib.parse import quote

import torch
from PIL import Image
from torch import Tensor

from brinell.boxes import Detections
from brinell.criteria.criterion import Answer, find_criterion
from brinell.criteria.verdict import verdict_of_detector
from brinell.lenses.fragility.exhibits import (
    PairPicture,
    Photo,
    WindowExhibits,
    WindowPicture,
    write_window_exhibits,
)
from brinell.lenses.fragility.options import FragilityOptions
from brinell.lenses.fragility.queries import WindowPair, query_pairs
from brinell.lenses.method import Drawing
from brinell.lenses.scenes import make_scene
from brinell.marks import Mark
from brinell.models.activations import activations
from brinell.models.marking import marker_of
from brinell.models.model import Model
from brinell.perturb.windows import window_view
from brinell.pictures import encode_webp, to_picture
from brinell.runs.names import MEDIAN
from brinell.runs.run import Run

PHOTOS = 4  # photographs per model
PAIRS = 4  # pairs per model, size and move
ACTIVATED = 1  # pairs per model whose activations are drawn
ACTIVATION_SIZE = (160, 160)
LONGEST = 640  # pixels of a photograph's longer side
QUALITY = 88


def draw(drawing: Drawing, options: FragilityOptions) -> None:
    """Choose, draw and store the pictures of a finished run."""
    run = Run(drawing.store)
    pairs = query_pairs(run)
    photos: dict[str, list[Photo]] = {}
    drawn: list[PairPicture] = []
    for model in drawing.models:
        artist = _Artist(drawing, model, options)
        photos[model.name] = [artist.draw_photo(image) for image in _most_fragile(run, model.name)]
        chosen = _choose([pair for pair in pairs if pair.model == model.name])
        drawn += [
            replace(artist.draw_pair(pair, with_layers=number < ACTIVATED), tag=tag)
            for number, (pair, tag) in enumerate(chosen)
        ]
    write_window_exhibits(drawing.store, WindowExhibits(photos, drawn))


def _most_fragile(run: Run, model: str) -> list[str]:
    """Return the images with the most fragile windows."""
    rows = run.query(
        """select image from rows where lens = 'fragility' and model = ? group by image
           order by coalesce(avg(fragile / windows) filter (judged_by = 'correct' and windows > 0), 0) desc, image
           limit ?""",
        [model, PHOTOS],
    )
    return [image for (image,) in rows]


def _choose(pairs: list[WindowPair]) -> Iterator[tuple[WindowPair, str]]:
    """Yield the first pairs of each size and move, and the median one, with their tags."""
    groups: dict[tuple[str, str], list[WindowPair]] = {}
    for pair in pairs:
        groups.setdefault((pair.operator, pair.move), []).append(pair)
    for own in groups.values():
        yield from ((pair, "") for pair in own[:PAIRS])
        middle = (len(own) - 1) // 2
        if middle >= PAIRS:
            yield own[middle], MEDIAN


class _Artist:
    """Draws and stores pictures for one model."""

    def __init__(self, drawing: Drawing, model: Model, options: FragilityOptions) -> None:
        self.drawing, self.model, self.options = drawing, model, options
        self.folder = f"exhibits/{quote(model.name, safe='')}/fragility"

    def draw_photo(self, image: str) -> Photo:
        """Store a photograph."""
        pixels = self.drawing.original(image)
        picture = to_picture(pixels)
        picture.thumbnail((LONGEST, LONGEST))
        file = self._store(picture, image)
        size, marks = (pixels.shape[1], pixels.shape[2]), self._mark_photo(pixels)
        return Photo(image, self.drawing.name(image), file, *size, marks)

    def _mark_photo(self, pixels: Tensor) -> tuple[Mark, ...]:
        """Return what a detector finds in a photograph."""
        if self.model.detector is None:
            return ()
        pre, size = self.model.preprocess, (pixels.shape[1], pixels.shape[2])
        _, found = self.model.answer(pre.model_input(pixels)[None].to(self.model.device))
        assert found is not None
        found = replace(found, boxes=pre.unmap_boxes(found.boxes[0], *size)[None])
        return replace(marker_of(self.model), height=size[0], width=size[1]).mark_clean(found)

    def draw_pair(self, pair: WindowPair, *, with_layers: bool) -> PairPicture:
        """Query both windows again, and store them."""
        pre = self.model.preprocess
        view = window_view("", self.options.fit, pre.height, pre.width)
        original = pre.convert_channels(self.drawing.original(pair.image)).to(self.model.device)
        parameters = torch.tensor([[*pair.corner, pair.side], [*pair.to_corner, pair.to_side]], dtype=torch.float64)
        inputs = view.look(original, parameters, pre.inputs)
        probabilities, detections = self.model.answer(inputs)
        name = f"{pair.image}-{quote(pair.operator, safe='')}-{pair.move}"
        pictures = [to_picture(each.cpu()) for each in inputs]
        marks = ((), ()) if detections is None else self._marks(detections, pair.label)
        first, second = (
            replace(self._window(picture, scores.cpu(), pair.label, f"{name}-{index}"), marks=marks[index])
            for index, (picture, scores) in enumerate(zip(pictures, probabilities, strict=True))
        )
        layers = self._layers(inputs, name) if with_layers and self.model.internals is not None else ()
        reason = "" if detections is None else self._reason(probabilities, detections, pair.label)
        caption = _describe(pair)
        return PairPicture(
            pair.model, pair.operator, pair.move, pair.image, pair.label, caption, first, second, layers, reason
        )

    def _marks(self, detections: Detections, label: int) -> tuple[tuple[Mark, ...], tuple[Mark, ...]]:
        """Return the boxes in both windows, which are a pixel or two apart."""
        marker, first, second = marker_of(self.model), detections.at(slice(0, 1)), detections.at(slice(1, 2))
        return marker.mark_clean(first, (label,)), marker.mark_changed(second, first, (label,))

    def _reason(self, probabilities: Tensor, detections: Detections, label: int) -> str:
        """Return why the second window is wrong and the first is not, in the criterion's words."""
        model, after = self.model, slice(1, 2)
        criterion = find_criterion(self.options.criterion, model.classes, model.outputs, task="detection")
        labels = torch.tensor([label], device=probabilities.device)
        scene = make_scene(
            model,
            detections.at(after),
            detections.at(slice(0, 1)),
            labels=labels,
            regions=torch.full((1, 4), torch.nan, device=probabilities.device),
            move=None,
        )
        answer = Answer(verdict_of_detector(probabilities[after], labels), probabilities[after], scene)
        if criterion.explain is None or not bool(criterion(answer)[0]):
            return ""
        return criterion.explain(answer, marker_of(model).name)[0]

    def _window(self, picture: Image.Image, scores: Tensor, label: int, name: str) -> WindowPicture:
        file, prediction = self._store(picture, name), int(scores.argmax())
        if self.model.detector is not None and not float(scores.max()) > 0:
            prediction = -1  # it finds nothing
        answer = (float(scores.max()), float(scores[label])) if self.model.scores else (None, None)
        return WindowPicture(file, prediction, *answer)

    def _layers(self, inputs: Tensor, name: str) -> tuple[tuple[str, str, str], ...]:
        """Store the mean magnitude over the channels of each layer, as pictures."""
        drawn = []
        for number, (layer, output) in enumerate(activations(self.model, inputs, self.options.layers).items()):
            magnitude = output.abs().mean(1)
            magnitude = (magnitude / magnitude.max().clamp(min=1e-9) * 255).to(torch.uint8)
            first, second = (
                self._store(
                    to_picture(each[None]).resize(ACTIVATION_SIZE, Image.Resampling.NEAREST),
                    f"{name}-layer{number}-{index}",
                )
                for index, each in enumerate(magnitude)
            )
            drawn.append((layer, first, second))
        return tuple(drawn)

    def _store(self, picture: Image.Image, name: str) -> str:
        file = f"{self.folder}/{name}.webp"
        self.drawing.store.write(encode_webp(picture, QUALITY), *file.split("/"))
        return file


def _describe(pair: WindowPair) -> str:
    """Return where a pair lies and what changes, for people."""
    (left, top), (to_left, to_top) = pair.corner, pair.to_corner
    move = f"shifted {describe_shift(to_left - left, to_top - top)}" if pair.move == "shift" else "shrunk by two pixels"
    return f"a window of {pair.side} px at ({left}, {top}), {move}"


def describe_shift(right: int, down: int) -> str:
    """Return a shift in words: "1 px left", "1 px right and 2 px down"."""
    across = [f"{abs(right)} px {'right' if right > 0 else 'left'}"] if right else []
    along = [f"{abs(down)} px {'down' if down > 0 else 'up'}"] if down else []
    return " and ".join(across + along)
