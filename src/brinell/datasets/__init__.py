"""Where images come from."""

from brinell.datasets.decode import from_picture, read_image
from brinell.datasets.objects import ObjectRule
from brinell.datasets.sources import SOURCES, DataOptions, open_dataset

__all__ = ["SOURCES", "DataOptions", "ObjectRule", "from_picture", "open_dataset", "read_image"]
