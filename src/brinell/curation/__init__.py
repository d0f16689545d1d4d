"""From failures to a data set."""

from brinell.curation.curate import Curated, curate
from brinell.curation.options import CurateOptions

__all__ = ["CurateOptions", "Curated", "curate"]
