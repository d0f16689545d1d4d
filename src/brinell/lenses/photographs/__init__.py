"""Does the model survive real variants of a scene?"""

from brinell.lenses.lens import Lens

LENS = Lens(
    name="photographs",
    question="Does the model survive real variants of a scene?",
    summary="photographed variants of scenes, and which of them break a model",
    source="Vats and Jerripothula 2023",
    package=__name__,
    order=5,
)
