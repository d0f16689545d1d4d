"""Options of the comparison of saliency maps."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

CamMethod = Literal["gradcam", "gradcam++"]


class SaliencyOptions(BaseModel):
    """How saliency maps are computed and compared."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    method: CamMethod = Field("gradcam++", description="How saliency maps are computed.")
    target: Literal["prediction", "label"] = Field(
        "prediction", description="Class that maps are for: the predicted one, or the correct one; detectors use the label."
    )
    layer: str | dict[str, str] | None = Field(
        None,
        description="Layer that maps come from, or a layer per model (default: the last convolution before the classifier, "
        "or a transformer's last norm).",
    )
    cells: int = Field(5, ge=1, le=50, description="Grid cells per side; saliency shifts if another cell is the hottest.")
    pairs: int = Field(
        200,
        ge=1,
        description="Changed images to compare per model and operator: this many that fail, and as many that don't.",
    )

    def layer_of(self, model: str) -> str | None:
        """Return the layer that is chosen for a model."""
        return self.layer.get(model) if isinstance(self.layer, dict) else self.layer
