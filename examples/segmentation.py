"""Segmentation with mixed images: the pixels of Oxford-IIIT Pets, without mixing, with CutMix and with AutoMix.

    python examples/segmentation.py [DATA] [--mixing vanilla cutmix automix] [--epochs N] [--size PX] [--seeds N]
    python examples/segmentation.py --mix-block zoo:tf_efficientnet_lite0-birds

A classifier of the breeds is fine-tuned with AutoMix first: its Mix Block makes AutoMix's masks, and its weights are
those that every segmentation network starts from. With a Mix Block that was trained before, there is no such classifier
and the networks start from pretrained weights. The network then learns which pixels are the animal's, half of the
batches mixed. Pixels on the border of the animal have no class.
"""

import argparse
import copy
import json
import statistics
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image, ImageOps
from torch import Tensor, nn

import automix
from automix import AutoMix, Mixed
from automix.core import IMAGENET, PixelTarget, denormalize, step_generator
from automix.data import ImageFiles, open_dataset
from automix.networks import available_offline
from automix.pictures.grid import image_grid

CLASSES = 2  # background and animal
CLASS_OF = torch.tensor([255, 1, 0, 255], dtype=torch.uint8)  # of a trimap's values: 1 animal, 2 background, 3 border
BATCH = 32
MIXED = 0.5  # share of the batches that are mixed
MARGIN = 1.15  # images are read so much larger than the crop that is trained on

Mixer = Callable[[Tensor, Tensor, torch.Generator], Mixed]


@dataclass(frozen=True)
class Pixels:
    """Images (N, 3, H, W) uint8, class maps (N, H, W) and the breeds (N,)."""

    images: Tensor
    maps: Tensor
    breeds: Tensor

    def batches(self, size: int, epoch: int, seed: int) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """Random crops and flips, the same for an image and its map."""
        generator = step_generator(seed, epoch, stream="batches")
        order = torch.randperm(len(self.breeds), generator=generator)
        for chosen in order.split(BATCH)[: steps_of(self)]:  # full batches
            top, left = (int(torch.randint(self.maps.shape[-1] - size + 1, (), generator=generator)) for _ in range(2))
            x, maps = (part[chosen, ..., top : top + size, left : left + size] for part in (self.images, self.maps))
            flipped = torch.rand(len(chosen), generator=generator) < 0.5
            x, maps = (torch.where(flipped.view(-1, *[1] * (part.ndim - 1)), part.flip(-1), part) for part in (x, maps))
            yield normalize(x), maps, self.breeds[chosen]


def steps_of(train: Pixels) -> int:
    """Steps in an epoch."""
    return max(1, len(train.breeds) // BATCH)


class Segmenter(nn.Module):
    """The stages of a classifier, each with a 1x1 convolution, added up from the smallest map to the largest."""

    def __init__(self, classifier: Any, width: int = 64) -> None:
        super().__init__()
        self.encoder = classifier  # one of timm's
        channels = [info["num_chs"] for info in classifier.feature_info]
        self.laterals = nn.ModuleList(nn.Conv2d(count, width, 1) for count in channels)
        convolution = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.head = nn.Sequential(convolution, nn.BatchNorm2d(width), nn.ReLU(), nn.Conv2d(width, CLASSES, 1))

    def forward(self, x: Tensor) -> Tensor:
        maps = self.encoder.forward_intermediates(x, intermediates_only=True)
        top = self.laterals[-1](maps[-1])
        for lateral, stage in zip(reversed(self.laterals[:-1]), reversed(maps[:-1]), strict=True):
            top = F.interpolate(top, stage.shape[-2:], mode="bilinear") + lateral(stage)
        return F.interpolate(self.head(top), x.shape[-2:], mode="bilinear")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", nargs="?", default="pets", help="pets, or its folder")
    parser.add_argument("--mixing", nargs="+", default=["vanilla", "cutmix", "automix"])
    parser.add_argument("--model", default="tf_efficientnet_lite0", help="the classifier; pretrained where it can be")
    parser.add_argument("--per-class", type=int, help="training images of each breed; all if not given")
    parser.add_argument("--size", type=int, default=96)
    parser.add_argument("--mix-block", help="a block trained before, of the zoo, a file or a run; trains no classifier")
    parser.add_argument("--classifier-epochs", type=int, default=10)
    parser.add_argument("--epochs", type=int, default=15)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("runs/segmentation"), help="folder for picture and results")
    arguments = parser.parse_args()
    if min(arguments.epochs, arguments.classifier_epochs, arguments.seeds) < 1:
        parser.error("--epochs, --classifier-epochs and --seeds must be at least 1")
    try:
        compare(arguments)
    except automix.AutomixError as error:
        sys.exit(f"error: {error}")
    except KeyboardInterrupt:
        sys.exit("stopped")


def compare(arguments: argparse.Namespace) -> None:
    parts = open_dataset(arguments.data, per_class=arguments.per_class)
    files = [part for part in parts if isinstance(part, ImageFiles) and part.masks]
    if len(files) < len(parts):
        raise automix.AutomixError(f"DATA must be pets or its folder, with annotations/trimaps/, got {arguments.data}")
    train, test = (read(part, round(arguments.size * scale)) for part, scale in zip(files, (MARGIN, 1), strict=True))
    print(f"{len(train.breeds)} training and {len(test.breeds)} test images of {arguments.size} px", flush=True)
    scores: dict[str, list[float]] = {name: [] for name in arguments.mixing}
    arguments.out.mkdir(parents=True, exist_ok=True)
    for seed in range(arguments.seeds):
        torch.manual_seed(seed)
        task = make_classifier(arguments, train, len(files[0].classes), seed)
        draw(task, test).save(arguments.out / "mixed.png")
        for name in arguments.mixing:
            torch.manual_seed(seed)
            model = Segmenter(task.deploy())
            train_segmenter(model, make_mixer(name, task), train, arguments.size, arguments.epochs, seed)
            scores[name].append(mean_iou(model, test))
            print(f"{name:8} seed {seed}: mIoU {scores[name][-1]:.2f} %", flush=True)
            (arguments.out / "results.json").write_text(json.dumps(scores, indent=2) + "\n")
    for name, values in scores.items():
        spread = f" +- {statistics.stdev(values):.2f}" if len(values) > 1 else ""
        print(f"  {name:8} {statistics.mean(values):.2f}{spread} %")


def make_mixer(name: str, task: AutoMix) -> Mixer:
    """AutoMix's masks come from the trained Mix Block, all others from their function."""
    if name == "automix":
        return lambda x, y, generator: task.make_mixed(x, y, lam=None, index=None, generator=generator)
    function = getattr(automix, name)
    return lambda x, y, generator: function(x, y, generator=generator)


def train_segmenter(model: nn.Module, mix: Mixer, train: Pixels, size: int, epochs: int, seed: int) -> None:
    total = epochs * steps_of(train)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.05)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 1e-3, total_steps=total, pct_start=0.1)
    step = 0
    for epoch in range(epochs):
        model.train()
        for x, maps, breeds in train.batches(size, epoch, seed):
            generator = step_generator(seed, step)
            mixed = Mixed.clean(x, breeds)
            if torch.rand((), generator=generator) < MIXED:
                with torch.no_grad():
                    mixed = mix(x, breeds, generator)
            target = PixelTarget.from_mixed(mixed, maps)  # the labels of the pixels, mixed as the images are
            loss = target.cross_entropy(model(mixed.x))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            step += 1


def make_classifier(arguments: argparse.Namespace, train: Pixels, breeds: int, seed: int) -> AutoMix:
    """Fine-tune a classifier of the breeds with AutoMix, or take a Mix Block that was trained before."""
    pretrained = arguments.model in available_offline()
    model = automix.create_model(arguments.model, num_classes=breeds, image_size=arguments.size, pretrained=pretrained)
    if arguments.mix_block is not None:
        return AutoMix(
            model, preset="finetune", mix_block=arguments.mix_block, class_vectors=False, block_lr=0, seed=seed
        )
    steps = arguments.classifier_epochs * steps_of(train)
    task = AutoMix(model, preset="finetune", momentum=0.99, total_steps=steps, seed=seed)
    optimizer = torch.optim.SGD(task.param_groups(lr=0.02), momentum=0.9, weight_decay=1e-4)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    for epoch in range(arguments.classifier_epochs):
        for x, _, y in train.batches(arguments.size, epoch, seed):
            loss = task(x, y).loss
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            task.update()
    return task


@torch.no_grad()
def mean_iou(model: nn.Module, test: Pixels) -> float:
    """The mean over the classes of intersection / union, each counted over all test images."""
    model.eval()
    counts = torch.zeros(CLASSES, CLASSES, dtype=torch.int64)  # by true and predicted class
    for images, maps in zip(test.images.split(BATCH), test.maps.split(BATCH), strict=True):
        predicted, known = model(normalize(images)).argmax(dim=1), maps != 255
        pairs = maps[known].long() * CLASSES + predicted[known]
        counts += torch.bincount(pairs, minlength=CLASSES**2).view(CLASSES, CLASSES)
    both = counts.diagonal()
    return 100 * (both / (counts.sum(dim=0) + counts.sum(dim=1) - both).clamp(min=1)).mean().item()


def read(files: ImageFiles, size: int) -> Pixels:
    """Resize images and maps by the short side and cut out their centers."""
    assert files.masks is not None
    images, maps = [], []
    for number in range(len(files)):
        image, _ = files.read(number)
        image = ImageOps.fit(image, (size, size), Image.Resampling.BICUBIC)
        trimap = ImageOps.fit(Image.open(files.masks[number]), (size, size), Image.Resampling.NEAREST)
        images.append(torch.from_numpy(np.array(image)).permute(2, 0, 1))
        maps.append(CLASS_OF[torch.from_numpy(np.array(trimap)).long()])
    return Pixels(torch.stack(images), torch.stack(maps), files.labels)


def normalize(images: Tensor) -> Tensor:
    mean, std = (torch.tensor(values).view(3, 1, 1) for values in (IMAGENET.mean, IMAGENET.std))
    return (images.float() / 255 - mean) / std


@torch.no_grad()
def draw(task: AutoMix, test: Pixels, count: int = 6) -> Image.Image:
    """Images and their maps, mixed by CutMix and by the Mix Block."""
    chosen = torch.linspace(0, len(test.breeds) - 1, count).long()
    x, maps, y = normalize(test.images[chosen]), test.maps[chosen], test.breeds[chosen]
    mean, std = torch.tensor(IMAGENET.mean), torch.tensor(IMAGENET.std)

    def shown(maps: Tensor) -> Tensor:
        """The animal in white, its border in gray."""
        return torch.where(maps == 255, 0.5, maps.float()).unsqueeze(1)

    rows = {"image": denormalize(x, mean, std), "map": shown(maps)}
    index = torch.arange(count).roll(1)
    for name, mixed in (
        ("cutmix", automix.cutmix(x, y, lam=0.5, index=index, generator=step_generator(0, 1))),
        ("automix", copy.deepcopy(task).mix(x, y, lam=0.5, index=index)),
    ):
        rows[f"{name}\nlam 0.5"] = denormalize(mixed.x, mean, std)
        rows[f"its map\n({name})"] = PixelTarget.from_mixed(mixed, maps).soft(CLASSES)[:, 1:]
    return image_grid(rows, note="partner: the image to the left; map: share of the class 'animal'")


if __name__ == "__main__":
    main()
