"""Where a model looks, and whether that shifts when an image changes."""

from brinell.lenses.lens import Analysis

ANALYSIS = Analysis(
    name="saliency",
    question="Where does the model look, and does that change?",
    summary="shifts of saliency maps between clean and changed images",
    package=__name__,
)
