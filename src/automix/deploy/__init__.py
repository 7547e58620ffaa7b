"""A trained classifier in use: predictions for image files, and exports that run without automix.

Both read the card of the classifier, which holds its classes, image size and normalization.
"""

from automix.deploy.exporting import export, export_path
from automix.deploy.image_files import list_images, read_square
from automix.deploy.model_card import model_card
from automix.deploy.prediction import Prediction, predict, predict_files
from automix.deploy.prediction_files import write_predictions
from automix.deploy.pushing import push
from automix.deploy.timm_folder import export_timm

__all__ = [
    "Prediction",
    "export",
    "export_path",
    "export_timm",
    "list_images",
    "model_card",
    "predict",
    "predict_files",
    "push",
    "read_square",
    "write_predictions",
]
