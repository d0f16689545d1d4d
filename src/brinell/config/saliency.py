"""Options of the comparison of saliency maps."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

CamMethod = Literal["gradcam", "gradcam++"]


class SaliencyOptions(BaseModel):
    """How saliency maps are computed and compared."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    method: CamMethod = Field("gradcam++", description="How saliency maps are computed: gradcam or gradcam++.")
    target: Literal["prediction", "label"] = Field(
        "prediction",
        description="Class that the maps are for: prediction (what the model predicts for each image) or label (the "
        "correct class). Detectors use the label.",
    )
    layer: str | dict[str, str] | None = Field(
        None,
        description="Layer that the maps come from: one name for all models, or a mapping from models to layers (default: "
        "the last convolution, or the last norm of a transformer whose image tokens influence the output).",
    )
    cells: int = Field(5, ge=1, le=50, description="Grid cells per side; saliency shifts if another cell is the hottest.")
    pairs: int = Field(
        200,
        ge=1,
        description="Changed images per model and operator that are compared: this many that fail and as many that don't.",
    )

    def layer_of(self, model: str) -> str | None:
        """Return the layer that is chosen for a model."""
        return self.layer.get(model) if isinstance(self.layer, dict) else self.layer
