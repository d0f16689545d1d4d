"""Why the answers that exhibits show are broken, and where a detector found objects: models are queried once more."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from PIL.Image import Image
from torch import Tensor

from brinell.boxes import Detections
from brinell.criteria.criterion import Criterion, Scene
from brinell.engine.evaluator import Evaluator
from brinell.engine.replay import Replay
from brinell.errors import BudgetSpent, ServiceError
from brinell.marks import Mark
from brinell.mask_pictures import MaskStyle, draw_mask
from brinell.models.marking import Marker, marker_of
from brinell.models.model import Model
from brinell.perturb.change import to_whole_levels
from brinell.pictures import to_picture
from brinell.report.exhibits import Exhibit

Size = tuple[int, int]  # height and width


def needs_explanation(model: Model, criterion: Criterion) -> bool:
    """Whether an exhibit says more than the predictions: of a detector or segmenter always, since it shows boxes or masks.

    Services are queried again only for those; their answers come from the cache.
    """
    return model.task != "classification" or (criterion.explain is not None and model.service is None)


@dataclass(frozen=True)
class Explainer:
    """Explains exhibits of one model. `criteria` are by lens, `indices` the images' in the evaluator's shard."""

    evaluator: Evaluator
    criteria: Mapping[str, Criterion]
    indices: Mapping[str, int]

    @cached_property
    def marker(self) -> Marker:
        """Makes marks of what the model finds."""
        return marker_of(self.evaluator.model)

    def explain(self, exhibit: Exhibit, replay: Replay, image: Tensor) -> Exhibit:
        """Return an exhibit with the reason and the marks of its changed model input, if the model answers."""
        criterion, sample = self.criteria[exhibit.lens], torch.tensor([self.indices[exhibit.image]])
        parameters = torch.tensor([replay.parameters], dtype=torch.float64)
        try:
            answer, detections = self.evaluator.answer(
                image[None].to(self.evaluator.model.device), sample, replay.change, parameters
            )
        except (ServiceError, BudgetSpent):  # a picture is not worth stopping a run that has all its rows
            return exhibit
        if bool(answer.verdict.confidence.isnan().any()):
            return exhibit
        reason = ""
        if criterion.explain is not None and bool(criterion(answer)[0]):
            reason = criterion.explain(answer, self.marker.name)[0]
        elif detections is not None and exhibit.clean_prediction not in (None, exhibit.prediction):
            reason = f"the best detection is {self.marker.name(exhibit.prediction)} now"  # of a lens that compares these
        if answer.masks is not None:
            overlap = self.evaluator.clean.overlap
            assert overlap is not None
            before = overlap.iou[self.indices[exhibit.before]]
            return replace(exhibit, reason=reason, ious=(float(before), float(answer.masks.iou[0])))
        if detections is None or answer.found is None or self.evaluator.clean.detections is None:
            return replace(exhibit, reason=reason)
        label = exhibit.label
        first = (label, exhibit.prediction)
        clean, moved = self._before(exhibit, answer.found)
        return replace(
            exhibit,
            reason=reason,
            marks=self.marker.mark_changed(detections, moved, first),
            clean_marks=self.marker.mark_clean(clean, first),
            scores=(
                float(clean.class_scores(self.evaluator.model.outputs)[0, label]),
                float(answer.verdict.probability[0]),
            ),
        )

    def draw_masks(self, exhibit: Exhibit, replay: Replay, image: Tensor) -> tuple[Image, Image]:
        """Return the clean and the changed model input with a segmenter's masks, and lines where the true classes end."""
        evaluator, model = self.evaluator, self.evaluator.model
        assert model.segmenter is not None
        style = MaskStyle(self.marker.name, model.segmenter.background)
        parameters = torch.tensor([replay.parameters], dtype=torch.float64)
        sample, before = (torch.tensor([self.indices[each]]) for each in (exhibit.image, exhibit.before))
        drawn = []
        inputs = evaluator.renderer.inputs[before].cpu()
        changes = ((inputs, before, None, None), (image[None].cpu(), sample, replay.change, parameters))
        for pixels, which, change, given in changes:
            mask, true = model.segment(pixels.to(model.device)), evaluator.true_masks(which, change, given)
            picture = to_picture(to_whole_levels(pixels[0]))
            drawn.append(draw_mask(picture, mask[0].cpu().numpy(), style, None if true is None else true[0].cpu().numpy()))
        return drawn[0], drawn[1]

    def _before(self, exhibit: Exhibit, found: Scene) -> tuple[Detections, Detections]:
        """Return what was found in the image that an exhibit is shown next to, and the same moved with the change."""
        detector, detections = self.evaluator.model.detector, self.evaluator.clean.detections
        assert detector is not None and detections is not None
        clean = detections.at(torch.tensor([self.indices[exhibit.before]], device=detections.boxes.device))
        return clean, found.clean if exhibit.before == exhibit.image else detector.found(clean)


def shift_marks(marks: tuple[Mark, ...], model_input: Size, whole: Size, corner: tuple[int, int]) -> tuple[Mark, ...]:
    """Return marks on a model input as marks on the whole image that it is cropped from, at a corner (top, left)."""
    (height, width), (tall, wide), (top, left) = model_input, whole, corner
    shifted = []
    for mark in marks:
        x1, y1, x2, y2 = mark.box
        box = tuple((x * width + left) / wide for x in (x1, x2)), tuple((y * height + top) / tall for y in (y1, y2))
        shifted.append(replace(mark, box=(box[0][0], box[1][0], box[0][1], box[1][1])))
    return tuple(shifted)
