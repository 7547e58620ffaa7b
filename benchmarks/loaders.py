"""Images per second of the loaders and of evaluation, relative to a bare torchvision loop (docs/results/loaders.md).

    export AUTOMIX_DATA=...
    python benchmarks/loaders.py [--rounds 10] [--workers 0] [--paths cifar folder birds accuracy]

Four paths: CIFAR-100 held in memory, two folders of JPEG files (CUB-200-2011 at 224 px, its part `birds` with a short
side of 160 px at 128 px), and the accuracy on a test set. Each is compared with a loop that uses torchvision alone,
with the same crops and flips: ImageFolder and DataLoader for the folders, which timm's loader reads as well. Both loops
hold CIFAR in memory and read the test set anew. automix reads a folder twice: without the cache of decoded images, and
from it. All take turns in one process, with the same number of workers.
"""

import argparse
import os
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

import automix  # first: it repairs torchvision
from automix.core.accuracy import topk_correct
from automix.core.normalization import IMAGENET
from automix.data.augmentation import Augmentation
from automix.data.datasets import data_root, open_dataset
from automix.data.image_files import ImageFiles
from automix.data.open import open_data
from automix.data.registry import DATASETS
from automix.evaluation.accuracy import evaluate_accuracy
from automix.evaluation.samples import Samples
from automix.studies.replica import NARROW

SHOTS = 8  # images of each class in the cache; how many there are does not change the time of one
Endless = Iterator[Any]


def endless(make: Callable[[], Iterator[Any]]) -> Endless:
    while True:
        yield from make()


class Pictures(Dataset[Any]):
    """A dataset that applies torchvision's transforms to one image at a time."""

    def __init__(self, read: Callable[[int], tuple[Any, int]], count: int, transform: Any) -> None:
        self.read, self.count, self.transform = read, count, transform

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> tuple[Any, int]:
        image, label = self.read(index)
        return self.transform(image), label


def cifar(batch: int = 100) -> dict[str, Callable[[], int]]:
    from torchvision import transforms

    data = open_data("cifar100", Augmentation(), batch_size=batch)
    train, _ = open_dataset("cifar100")
    images = [train.read(index) for index in range(len(train))]  # torchvision's CIFAR100 holds its images in memory too
    transform = transforms.Compose(
        [
            transforms.RandomCrop(32, padding=4),
            transforms.RandomHorizontalFlip(),
            transforms.ToTensor(),
            transforms.Normalize(IMAGENET.mean, IMAGENET.std),
        ]
    )
    bare = DataLoader(Pictures(images.__getitem__, len(images), transform), batch, shuffle=True, drop_last=True)
    return {
        "torchvision": batches_of(endless(lambda: iter(bare)), 4),
        "automix": batches_of(endless(lambda: data.loader.batches(0, 10**6)), 4),
    }


def folder(name: str, size: int, workers: int, batch: int = 16) -> dict[str, Callable[[], int]]:
    from timm.data import create_loader
    from torchvision import transforms
    from torchvision.datasets import ImageFolder

    root = data_root() / name
    train, _ = open_dataset(name) if name in DATASETS else open_dataset(str(root))
    assert isinstance(train, ImageFiles)
    transform = transforms.Compose(
        [
            transforms.RandomResizedCrop(size, interpolation=transforms.InterpolationMode.BICUBIC),
            transforms.RandomHorizontalFlip(),
            transforms.ToTensor(),
            transforms.Normalize(IMAGENET.mean, IMAGENET.std),
        ]
    )
    # the same files: the folder of all of them, less those that are no training images
    images = ImageFolder(os.path.commonpath(train.paths), transform)
    chosen = set(train.paths)
    images.samples = [sample for sample in images.samples if sample[0] in chosen]
    plain = ImageFolder(os.path.commonpath(train.paths))
    plain.samples = images.samples
    both: Any = {"batch_size": batch, "num_workers": workers, "persistent_workers": workers > 0}
    bare = DataLoader(images, shuffle=True, drop_last=True, **both)
    timms = create_loader(
        plain, (3, size, size), is_training=True, use_prefetcher=False, interpolation="bicubic", color_jitter=None,
        hflip=0.5, device=torch.device("cpu"), **both,
    )  # fmt: skip
    opened = [
        open_data(
            name if name in DATASETS else str(root), Augmentation(train_size=size, crop="resized"), batch_size=batch,
            workers=workers, decode_cache=caching, per_class=SHOTS if caching == "auto" else None,
        )
        for caching in ("off", "auto")
    ]  # fmt: skip
    kept = opened[1].loader
    for _ in kept.batches(0, len(kept)):  # an epoch fills the cache
        pass
    return {
        "torchvision": batches_of(endless(lambda: iter(bare)), 8),
        "timm": batches_of(endless(lambda: iter(timms)), 8),
        "automix": batches_of(endless(lambda: opened[0].loader.batches(0, 10**6)), 8),
        "automix, from the cache": batches_of(endless(lambda: kept.batches(len(kept), 10**6)), 8),
    }


def evaluation(count: int = 500) -> dict[str, Callable[[], int]]:
    from torchvision import transforms

    torch.manual_seed(0)
    model = automix.create_model("resnet18", num_classes=100, image_size=32, **NARROW["model_options"]).eval()
    _, test = open_dataset("cifar100")
    samples = Samples(test, 32).first(count)
    bare = DataLoader(Pictures(samples.source.read, len(samples), transforms.ToTensor()), 100)

    def with_torchvision() -> int:
        right = 0
        with torch.inference_mode():
            for x, y in bare:
                right += int(topk_correct(model(x), y).sum())
        return len(samples)

    def with_automix() -> int:
        evaluate_accuracy(nn.Sequential(model), samples)
        return len(samples)

    return {"torchvision": with_torchvision, "automix": with_automix}


def batches_of(batches: Endless, count: int) -> Callable[[], int]:
    """Make a function that takes `count` batches and returns their number of images."""
    return lambda: sum(len(next(batches)[1]) for _ in range(count))


def in_turns(works: dict[str, Callable[[], int]], rounds: int) -> dict[str, list[float]]:
    """Measure images per second by round; the first round, which opens files and allocates, is left out."""
    rates: dict[str, list[float]] = {name: [] for name in works}
    for number in range(rounds + 1):
        for name in list(works)[:: 1 if number % 2 else -1]:
            start = time.perf_counter()
            images = works[name]()
            rates[name].append(images / (time.perf_counter() - start))
    return {name: one[1:] for name, one in rates.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--paths", nargs="+", default=["cifar", "folder", "birds", "accuracy"])
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    paths: dict[str, tuple[str, Callable[[], dict[str, Callable[[], int]]]]] = {
        "cifar": ("CIFAR-100", cifar),
        "folder": ("JPEG folder, 224 px", lambda: folder("cub200", 224, arguments.workers)),
        "birds": ("JPEG folder, 128 px", lambda: folder("birds", 128, arguments.workers)),
        "accuracy": ("accuracy", evaluation),
    }
    print("| path | loop | images/s of torchvision's, median | quartiles |\n| --- | --- | --- | --- |")
    for path in arguments.paths:
        title, make = paths[path]
        rates = in_turns(make(), arguments.rounds)
        for name, own in rates.items():
            ratios = [one / other for one, other in zip(own, rates["torchvision"], strict=True)]
            low, median, high = statistics.quantiles(ratios, n=4)
            print(f"| {title} | {name} | {median:.2f} | {low:.2f} to {high:.2f} |", flush=True)


if __name__ == "__main__":
    main()
