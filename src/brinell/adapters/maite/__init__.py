"""MAITE both ways: its augmentations, datasets, models and metrics from ours, and ours from its.

MAITE's protocols are structural: nothing here imports it. `brinell.run` takes its datasets as they are.
"""

from brinell.adapters.maite.augmentation import Augmentation
from brinell.adapters.maite.datasets import Dataset, Target
from brinell.adapters.maite.metrics import Accuracy, evaluate_rows
from brinell.adapters.maite.models import Classifier, Detector, from_classifier, from_detector

__all__ = [
    "Accuracy",
    "Augmentation",
    "Classifier",
    "Dataset",
    "Detector",
    "Target",
    "evaluate_rows",
    "from_classifier",
    "from_detector",
]
