"""Where a model looks: heat maps of its attention, and how far they move when an image changes."""

from brinell.attention.cam import METHODS, Method
from brinell.attention.drift import Drift, centre, drift, fullest, hot
from brinell.attention.eyes import Eyes, NoAttention, open_eyes

__all__ = [
    "METHODS",
    "Drift",
    "Eyes",
    "Method",
    "NoAttention",
    "centre",
    "drift",
    "fullest",
    "hot",
    "open_eyes",
]
