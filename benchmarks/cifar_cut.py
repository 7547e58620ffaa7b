"""Shared by the small studies: 20 classes x 100 images of CIFAR-100 in memory, a narrow ResNet, a training loop.

The images are read from the folder `AUTOMIX_DATA`/cifar100/{train,test}/<class>/*.png.
"""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import nn

import automix
from automix.core.accuracy import topk_accuracy
from automix.data import ImageSet, MemoryLoader, load_images

CLASSES, PER_CLASS, BATCH_SIZE = 20, 100, 100


def load() -> tuple[ImageSet, ImageSet]:
    if "AUTOMIX_DATA" not in os.environ:
        sys.exit("AUTOMIX_DATA is not set: it must name a folder that contains cifar100/{train,test}/<class>/*.png")
    return load_images(Path(os.environ["AUTOMIX_DATA"]) / "cifar100", classes=CLASSES, per_class=PER_CLASS)


def narrow_resnet() -> nn.Module:
    """Build a ResNet of ten layers and 16 to 128 channels with the paper's stem for small images."""
    channels = (16, 32, 64, 128)
    return automix.create_model("resnet18", num_classes=CLASSES, image_size=32, layers=(1, 1, 1, 1), channels=channels)


def training_steps(task: automix.Task, loader: MemoryLoader, steps: int) -> Iterator[int]:
    """Train by SGD with a cosine from 0.1 to 0; yield the number of steps done after each."""
    optimizer = torch.optim.SGD(task.param_groups(lr=0.1), momentum=0.9, weight_decay=5e-4)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    for step in range(steps):
        optimizer.zero_grad()
        task(*loader.batch(step)).loss.backward()
        optimizer.step()
        schedule.step()
        task.update(step / steps)
        yield step + 1


@torch.no_grad()
def accuracy(model: nn.Module, loader: MemoryLoader, test: ImageSet) -> float:
    """Measure the top-1 accuracy in percent."""
    model.eval()
    logits = torch.cat([model(loader.normalize(images)) for images in test.images.split(500)])
    return topk_accuracy(logits, test.labels)
