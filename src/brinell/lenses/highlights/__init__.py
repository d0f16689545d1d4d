"""Where does a spot of light break the model?"""

from brinell.lenses.lens import Lens

LENS = Lens(
    name="highlights",
    question="Where does a spot of light break the model?",
    summary="where a spot of light breaks a model",
    source="Vats and Jerripothula 2023",
    package=__name__,
    order=4,
)
