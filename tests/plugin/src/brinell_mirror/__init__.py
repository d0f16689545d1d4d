"""Does the model survive mirrored images?"""

from brinell.lenses.lens import Lens

LENS = Lens(
    name="mirror",
    question="Does the model survive mirrored images?",
    summary="accuracy on images mirrored left to right and top to bottom",
    source="brinell's tests",
    package=__name__,
)
