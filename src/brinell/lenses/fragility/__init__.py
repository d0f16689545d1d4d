"""Where does one pixel flip the answer?"""

from brinell.lenses.lens import Lens

LENS = Lens(
    name="fragility",
    question="Where does one pixel flip the answer?",
    summary="windows of an image whose answer flips after a one-pixel shift or a two-pixel shrink",
    source="ICLR 2019",
    package=__name__,
    order=3,
    commands=(("human", f"{__name__}.commands:human"),),
)
