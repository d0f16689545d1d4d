"""How far can images degrade before the model breaks?"""

from brinell.lenses.lens import Lens

LENS = Lens(
    name="profile",
    question="How far can images degrade before the model breaks?",
    summary="accuracy, rank and probability at every level of degradation",
    source="Swingler 2022",
    package=__name__,
    order=0,
)
