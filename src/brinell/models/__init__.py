"""What is asked: classifiers and detectors from torch, ONNX and the model zoos."""

from brinell.models.detection import Decoding
from brinell.models.layers import activations
from brinell.models.model import Insides, Model
from brinell.models.modules import detector_from_module, from_module
from brinell.models.options import ModelOptions
from brinell.models.preprocess import Preprocess
from brinell.models.sources import SOURCES, open_model

__all__ = [
    "SOURCES",
    "Decoding",
    "Insides",
    "Model",
    "ModelOptions",
    "Preprocess",
    "activations",
    "detector_from_module",
    "from_module",
    "open_model",
]
