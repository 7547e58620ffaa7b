"""Evaluation of trained classifiers: one module per evaluator, a function of a classifier and images.

The classifier takes pixels in [0, 1] and has its normalization inside (`automix.runs.classifier.WithNormalization`).
"""

from automix.evaluation.accuracy import evaluate_accuracy
from automix.evaluation.adversarial import fgsm, pgd
from automix.evaluation.attacks import evaluate_attacks
from automix.evaluation.calibration import evaluate_calibration
from automix.evaluation.corruptions.accuracy import CorruptionResult, CorruptionTable, evaluate_corruptions
from automix.evaluation.corruptions.apply import corrupt
from automix.evaluation.corruptions.generate import write_cifar_c
from automix.evaluation.efficiency import evaluate_efficiency
from automix.evaluation.inputs import EvaluationInputs, open_inputs
from automix.evaluation.localization import evaluate_localization
from automix.evaluation.mixed import Curve, MixedResult, evaluate_mixed
from automix.evaluation.mixers import method_mixer, task_mixer
from automix.evaluation.predictions import predict_logits
from automix.evaluation.progress import no_progress, progress_bar
from automix.evaluation.result import EvaluationResult
from automix.evaluation.results_file import read_results
from automix.evaluation.samples import Samples
from automix.evaluation.suite import EVALUATORS, evaluate

__all__ = [
    "EVALUATORS",
    "CorruptionResult",
    "CorruptionTable",
    "Curve",
    "EvaluationInputs",
    "EvaluationResult",
    "MixedResult",
    "Samples",
    "corrupt",
    "evaluate",
    "evaluate_accuracy",
    "evaluate_attacks",
    "evaluate_calibration",
    "evaluate_corruptions",
    "evaluate_efficiency",
    "evaluate_localization",
    "evaluate_mixed",
    "fgsm",
    "method_mixer",
    "no_progress",
    "open_inputs",
    "pgd",
    "predict_logits",
    "progress_bar",
    "read_results",
    "task_mixer",
    "write_cifar_c",
]
