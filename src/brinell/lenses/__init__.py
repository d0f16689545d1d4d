"""Which trials to ask. Importing this package registers every lens."""

from brinell.lenses.lens import LENSES, Lens, LensOptions, Outcome, Shard, Trials
from brinell.lenses.profile import ProfileOptions

__all__ = ["LENSES", "Lens", "LensOptions", "Outcome", "ProfileOptions", "Shard", "Trials"]
