"""The lenses."""

import brinell.lenses.fragility.lens
import brinell.lenses.geometry.lens
import brinell.lenses.highlights.lens
import brinell.lenses.knob.lens
import brinell.lenses.photographs.lens
import brinell.lenses.profile.lens  # noqa: F401
