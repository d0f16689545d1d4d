"""Where does the model look, and does that shift when an image changes?"""

from brinell.lenses.lens import Analysis

ANALYSIS = Analysis(
    name="saliency",
    question="Where does the model look, and does that shift when an image changes?",
    summary="saliency maps of clean and changed images, and how far they shift",
    package=__name__,
)
