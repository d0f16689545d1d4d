"""Options of the comparison of saliency maps."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from brinell.config.criterion import Task

CamMethod = Literal["gradcam", "gradcam++", "odam"]


class SaliencyOptions(BaseModel):
    """How saliency maps are computed and compared."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    method: Literal["auto"] | CamMethod = Field(
        "auto",
        description="Method: gradcam, gradcam++, odam or auto (odam for the boxes of detectors, otherwise gradcam++).",
    )
    target: Literal["prediction", "label"] = Field(
        "prediction",
        description="Class that maps explain: prediction (the predicted class) or label (the correct one); for detectors, "
        "the box of the label.",
    )
    layer: str | dict[str, str] | None = Field(
        None,
        description="Layer to compute maps from, or one per model (default: the last convolution before the classifier, a "
        "transformer's last norm, or the last feature maps that all boxes of a detector depend on).",
    )
    cells: int = Field(
        5, ge=1, le=50, description="Grid cells per side; saliency counts as shifted if the hottest cell changes."
    )
    pairs: int = Field(
        200,
        ge=1,
        description="Changed images to compare per model and operator: this many failures, and as many that don't fail.",
    )

    def layer_of(self, model: str) -> str | None:
        """Return the layer that is chosen for a model."""
        return self.layer.get(model) if isinstance(self.layer, dict) else self.layer

    def method_of(self, task: Task) -> CamMethod:
        """Return how maps of a model for a task are computed."""
        if self.method != "auto":
            return self.method
        return "odam" if task == "detection" else "gradcam++"
