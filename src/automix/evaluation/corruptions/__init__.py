"""The common corruptions of Hendrycks & Dietterich (2019): of batches of images, on disk, and as an evaluator."""

from automix.evaluation.corruptions.accuracy import CorruptionResult, CorruptionTable, evaluate_corruptions
from automix.evaluation.corruptions.apply import corrupt
from automix.evaluation.corruptions.generate import write_cifar_c
from automix.evaluation.corruptions.severities import BENCHMARK, EXTRA, NAMES

__all__ = [
    "BENCHMARK",
    "EXTRA",
    "NAMES",
    "CorruptionResult",
    "CorruptionTable",
    "corrupt",
    "evaluate_corruptions",
    "write_cifar_c",
]
