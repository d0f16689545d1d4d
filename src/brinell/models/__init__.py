"""What is asked: classifiers from torch, ONNX and the model zoos."""

from brinell.models.model import Model
from brinell.models.modules import from_module
from brinell.models.options import ModelOptions
from brinell.models.preprocess import Preprocess
from brinell.models.sources import SOURCES, open_model

__all__ = ["SOURCES", "Model", "ModelOptions", "Preprocess", "from_module", "open_model"]
