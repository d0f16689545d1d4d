"""Names and sizes that the options, the measurement and the findings of the fragility lens share."""

from __future__ import annotations

VIEWS = {
    "windows": "Every square window of a size, and the smaller windows inside it.",
    "location": "The whole image, scaled down, at every position on black.",
    "minimal": "A tree search for the smallest windows that are still recognised.",
}
WINDOWS, LOCATION, MINIMAL = VIEWS
SHRINK = 2  # pixels that a shrunken window is smaller by: it has a middle, and 3 x 3 positions inside the window
SMALLEST = SHRINK + 1
KINDS = (
    "loose shift",
    "strict shift",
    "loose shrink",
    "strict shrink",
)  # loose: some move flips the answer; strict: all do
