"""What a run is told about looking at attention."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

Method = Literal["gradcam", "gradcam++"]


class AttentionOptions(BaseModel):
    """How heat maps are made and compared.

    Maps are for the class that the model names, on the clean image and on the changed one, or for the label (`target`); a
    detector's are for its object's class. Without a `layer` the last convolution is found (or named for one model by a
    mapping). `pairs` is how many changed images are looked at, for each model and operator, that fail, and as many that
    don't.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    method: Method = "gradcam++"
    target: Literal["prediction", "label"] = "prediction"
    layer: str | dict[str, str] | None = None
    cells: int = Field(5, ge=1, le=50)
    pairs: int = Field(200, ge=1)

    def layer_of(self, model: str) -> str | None:
        """The layer that is named for a model."""
        return self.layer.get(model) if isinstance(self.layer, dict) else self.layer
