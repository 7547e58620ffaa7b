"""The common corruptions of Hendrycks & Dietterich (2019), on batches of images and in their layouts on disk."""

from automix.corrupt.apply import corrupt
from automix.corrupt.generate import write_cifar_c
from automix.corrupt.severities import BENCHMARK, EXTRA, NAMES

__all__ = ["BENCHMARK", "EXTRA", "NAMES", "corrupt", "write_cifar_c"]
