"""The model source and the dataset kind. Their openers are imported when they are used, so that listing needs no torch."""

from __future__ import annotations

from brinell.datasets.sources import Source as DatasetSource
from brinell.models.sources import Source as ModelSource

MODEL = ModelSource("left_or_right:", "says on which side an image is brighter", "brinell_mirror.models:open_side")
DATASET = DatasetSource("bars:COUNT", "bright bars on dark images", "brinell_mirror.datasets:open_bars")
