"""The common corruptions of Hendrycks & Dietterich (2019), on batches of images and in their layouts on disk."""

from automix.evaluation.corruptions.apply import corrupt
from automix.evaluation.corruptions.generate import write_cifar_c
from automix.evaluation.corruptions.severities import BENCHMARK, EXTRA, NAMES

__all__ = ["BENCHMARK", "EXTRA", "NAMES", "corrupt", "write_cifar_c"]
