"""What the small studies share: 20 classes x 100 images of CIFAR-100 in memory, a narrow ResNet, a training loop.

The images are read from the folder `AUTOMIX_DATA`/cifar100/{train,test}/<class>/*.png.
"""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor, nn

import automix

CLASSES, PER_CLASS, BATCH_SIZE = 20, 100, 100
MEAN, STD = (0.507, 0.487, 0.441), (0.267, 0.256, 0.276)


def load(split: str) -> tuple[Tensor, Tensor]:
    """The first images of the first classes in alphabetical order, normalised."""
    if "AUTOMIX_DATA" not in os.environ:
        sys.exit("AUTOMIX_DATA is not set: it must name a folder that contains cifar100/{train,test}/<class>/*.png")
    folder = Path(os.environ["AUTOMIX_DATA"]) / "cifar100" / split
    images, labels = [], []
    for label, name in enumerate(sorted(path.name for path in folder.iterdir())[:CLASSES]):
        for path in sorted((folder / name).glob("*.png"))[:PER_CLASS]:
            images.append(np.asarray(Image.open(path).convert("RGB")))
            labels.append(label)
    pixels = torch.from_numpy(np.stack(images)).permute(0, 3, 1, 2).float() / 255
    return (pixels - torch.tensor(MEAN).view(3, 1, 1)) / torch.tensor(STD).view(3, 1, 1), torch.tensor(labels)


def narrow_resnet() -> nn.Module:
    """Ten layers of 16 to 128 channels with the paper's stem for small images."""
    channels = (16, 32, 64, 128)
    return automix.create_model("resnet18", num_classes=CLASSES, image_size=32, layers=(1, 1, 1, 1), channels=channels)


def training_steps(task: automix.Task, data: tuple[Tensor, Tensor], steps: int, seed: int) -> Iterator[int]:
    """Train by SGD with a cosine from 0.1 to 0; yields the number of steps done after each."""
    optimizer = torch.optim.SGD(task.param_groups(lr=0.1), momentum=0.9, weight_decay=5e-4)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    generator = torch.Generator().manual_seed(seed)
    for step in range(steps):
        optimizer.zero_grad()
        task(*next_batch(*data, generator)).loss.backward()
        optimizer.step()
        schedule.step()
        task.update(step / steps)
        yield step + 1


def next_batch(x: Tensor, y: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Random images, one random crop for the batch, flips for each."""
    chosen = torch.randperm(len(x), generator=generator)[:BATCH_SIZE]
    top, left = torch.randint(9, (2,), generator=generator).tolist()
    crop = F.pad(x[chosen], (4, 4, 4, 4))[:, :, top : top + 32, left : left + 32]
    flip = torch.rand(len(crop), 1, 1, 1, generator=generator) < 0.5
    return torch.where(flip, crop.flip(3), crop).contiguous(memory_format=torch.channels_last), y[chosen]


@torch.no_grad()
def accuracy(model: nn.Module, x: Tensor, y: Tensor) -> float:
    model.eval()
    batches = zip(x.split(500), y.split(500), strict=True)
    hits = [(model(images).argmax(dim=1) == labels).sum() for images, labels in batches]
    return 100 * float(torch.stack(hits).sum()) / len(y)
