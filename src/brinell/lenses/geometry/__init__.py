"""What is the smallest motion that changes the label?"""

from brinell.lenses.lens import Lens

LENS = Lens(
    name="geometry",
    question="What is the smallest motion that changes the label?",
    summary="the smallest motion that changes a model's label, and what random motions do",
    source="ManiFool, CVPR 2018",
    package=__name__,
    order=2,
)
