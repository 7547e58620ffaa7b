"""Detection transfer: Faster R-CNN, from torchvision's parts, fine-tuned on top of a trained classifier.

`train_detector(DetectConfig(data="shapes", backbone="runs/shapes-automix-resnet18-0"))` trains and evaluates one.
"""

from automix.studies.detection.config import DetectConfig
from automix.studies.detection.data import DetectionSet, Objects
from automix.studies.detection.detector_file import load_detector, save_detector
from automix.studies.detection.evaluate import evaluate_detector
from automix.studies.detection.network import create_detector
from automix.studies.detection.open import open_detection_data
from automix.studies.detection.recipe import DetectRecipe, find_detect_recipe
from automix.studies.detection.train import train_detector

__all__ = [
    "DetectConfig",
    "DetectRecipe",
    "DetectionSet",
    "Objects",
    "create_detector",
    "evaluate_detector",
    "find_detect_recipe",
    "load_detector",
    "open_detection_data",
    "save_detector",
    "train_detector",
]
