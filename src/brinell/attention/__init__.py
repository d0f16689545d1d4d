"""Where a model looks: heat maps of its attention, and how far they move when an image changes."""

from brinell.attention.cam import METHODS, Method
from brinell.attention.drift import Drift, centre, drift, fullest, hot
from brinell.attention.eyes import Eyes, open_eyes
from brinell.attention.layers import NoAttention
from brinell.attention.options import AttentionOptions

__all__ = [
    "METHODS",
    "AttentionOptions",
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
