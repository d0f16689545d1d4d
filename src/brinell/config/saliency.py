"""Options of the saliency comparison: where models look on clean and on changed images."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field


class SaliencyOptions(BaseModel):
    """Options of the saliency comparison."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    method: Literal["gradcam++", "gradcam"] = Field("gradcam++", description="Saliency method: gradcam++ or gradcam.")
    target: Literal["prediction", "label"] = Field(
        "prediction", description="Class whose map is made: the predicted one, or the true one (label)."
    )
    layer: str | dict[str, str] | None = Field(
        None, description="Layer to look at, or a layer per model (default: the last convolution)."
    )
    cells: int = Field(5, ge=1, le=50, description="Grid cells per side in which saliency is compared.")
    pairs: int = Field(200, ge=1, description="Changed images to compare per operator, failing and not failing each.")

    def layer_of(self, model: str) -> str | None:
        """Return the layer of a model; None: it is detected."""
        return self.layer.get(model) if isinstance(self.layer, dict) else self.layer
