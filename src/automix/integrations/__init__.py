"""Adapters for training loops that a framework owns: timm, Lightning, Hugging Face's Trainer.

Each adapter is a module that imports its framework. A loop of your own needs none: it calls ``task.update`` itself.
"""

from automix.integrations.update import update_after_step

__all__ = ["update_after_step"]
