"""Options that say how a detector's outputs are decoded."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

MAX_CANDIDATES = 1000  # boxes per image that enter suppression, by score


class Decoding(BaseModel):
    """How a detector's outputs are decoded into boxes, labels and scores.

    Outputs that are not named are found by their shapes. A detector with a single output has one column for each of the
    four box values, one for objectness (if `objectness` is "column") and one for each class.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    boxes: str | None = Field(
        None, description="Name of the output with the boxes, (N, A, 4) (default: found by its shape)."
    )
    scores: str | None = Field(
        None,
        description="Name of the output with the scores: (N, A, classes), or (N, A) if there are labels "
        "(default: found by its shape).",
    )
    labels: str | None = Field(
        None,
        description='Name of the output with the labels, (N, A), if there is one, or "column" if a single output has the '
        "six columns box, score and class.",
    )
    objectness: str | None = Field(
        None,
        description='Name of the output with the objectness, (N, A), or "column" if it is the fifth column of a '
        "single output.",
    )
    box_format: Literal["xyxy", "xywh", "cxcywh"] = Field(
        "xyxy", description="Box format: xyxy (corners), xywh (corner and size) or cxcywh (centre and size)."
    )
    box_units: Literal["relative", "pixels"] = Field(
        "relative", description="Box units: relative to the model input (0 to 1) or pixels of it."
    )
    activation: Literal["none", "sigmoid", "softmax"] = Field(
        "none", description="Activation that turns scores into probabilities: none, sigmoid or softmax."
    )
    background: Literal["none", "first", "last"] = Field(
        "none", description="Position of the background class among the scores: none, first or last."
    )
    score_threshold: float = Field(0.3, ge=0, le=1, description="Minimum score at which an object counts as detected.")
    keep_from: float = Field(
        0.01, gt=0, le=1, description="Minimum score of detections that are kept for average precision."
    )
    iou_threshold: float | None = Field(
        None,
        ge=0,
        le=1,
        description="Overlap (IoU) above which the lower-scoring of two boxes of a class is suppressed; 1 keeps all "
        "(default: 0.5, or 1 if the model outputs labels, since it then suppresses boxes itself).",
    )
    max_detections: int = Field(100, ge=1, le=MAX_CANDIDATES, description="Maximum number of detections per image.")

    def settings(self) -> dict[str, Any]:
        """Return the decoding options as plain data."""
        return {key: getattr(self, key) for key in Decoding.model_fields}

    def changed(self) -> dict[str, Any]:
        """Return the decoding options that differ from their defaults."""
        return {key: value for key, value in self.settings().items() if value != _DEFAULTS[key]}


_DEFAULTS = {key: field.default for key, field in Decoding.model_fields.items()}
