"""What is the smallest change that breaks the model?"""

from brinell.lenses.lens import Lens

LENS = Lens(
    name="knob",
    question="What is the smallest change that breaks the model?",
    summary="the smallest real-world change that breaks a model",
    source="Zhong, Hu and Chen, DSN 2020",
    package=__name__,
    order=1,
)
