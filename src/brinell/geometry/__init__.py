"""Motions of images: groups, moved images, their Jacobian, and how far a motion takes an image. All pure."""

from brinell.geometry.frames import Frames, Pixels
from brinell.geometry.geodesic import ETA, LEAST, Rays, apart, chords, reach, scores
from brinell.geometry.groups import GROUPS, Group, told
from brinell.geometry.jacobian import flows, gram, jacobian, metric, numerical_jacobian, products, projected, pulls, solved
from brinell.geometry.marching import Fronts

__all__ = [
    "ETA",
    "GROUPS",
    "LEAST",
    "Frames",
    "Fronts",
    "Group",
    "Pixels",
    "Rays",
    "apart",
    "chords",
    "flows",
    "gram",
    "jacobian",
    "metric",
    "numerical_jacobian",
    "products",
    "projected",
    "pulls",
    "reach",
    "scores",
    "solved",
    "told",
]
