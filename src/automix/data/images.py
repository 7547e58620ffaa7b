"""Datasets that fit in memory: one tensor of images and one of labels, by name or from a folder of images.

    train, test = load_images("shapes")
    train, test = load_images("path/to/folder", image_size=32, classes=20, per_class=100)

A folder holds ``train/<class>/<image>`` and ``test/<class>/<image>`` (or ``val``); classes are numbered in alphabetical
order. `digits` and `shapes` need no files.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from automix.data.shapes import CLASSES, draw_shapes
from automix.mixing import step_generator

EMBEDDED = ("digits", "shapes")


@dataclass(frozen=True)
class ImageSet:
    """`images` (N, 3, H, W) uint8, `labels` (N,) int64, and the names of the classes."""

    images: Tensor
    labels: Tensor
    classes: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.labels)

    def subset(self, *, classes: int | None = None, per_class: int | None = None, seed: int = 0) -> "ImageSet":
        """The first `classes` classes, and `per_class` images of each, drawn by `seed`."""
        chosen = _choose(self.labels, len(self.classes), classes, per_class, seed)
        return ImageSet(self.images[chosen], self.labels[chosen], self.classes[:classes])

    def statistics(self) -> tuple[Tensor, Tensor]:
        """Mean and standard deviation of each channel, of pixels scaled to [0, 1]."""
        pixels = self.images.double() / 255
        return pixels.mean(dim=(0, 2, 3)).float(), pixels.std(dim=(0, 2, 3)).float()


def load_images(
    name: str | Path,
    *,
    image_size: int | None = None,
    classes: int | None = None,
    per_class: int | None = None,
    seed: int = 0,
) -> tuple[ImageSet, ImageSet]:
    """The training and the test set `name`: an embedded one, or a folder.

    Images are resized to `image_size`; without it they stay as they are (16 px for digits, 32 px for shapes).
    `classes` restricts both sets, `per_class` the training set.
    """
    if image_size is not None and image_size < 1:
        raise ValueError(f"image_size={image_size}: accepted is a number of pixels >= 1")
    if name == "digits":
        train, test = _digits(image_size or 16)
    elif name == "shapes":
        train, test = _shapes(5040, image_size or 32, seed=0), _shapes(1920, image_size or 32, seed=1)
    elif Path(name).is_dir():
        return _folder(Path(name), image_size, classes, per_class, seed)
    else:
        raise ValueError(f"data {str(name)!r} is unknown: accepted are {', '.join(EMBEDDED)}, or an existing folder")
    return train.subset(classes=classes, per_class=per_class, seed=seed), test.subset(classes=classes)


def _choose(labels: Tensor, total: int, classes: int | None, per_class: int | None, seed: int) -> Tensor:
    """Positions, in order, of `per_class` images of each of the first `classes` of `total` classes."""
    if classes is not None and not 1 <= classes <= total:
        raise ValueError(f"classes={classes}: accepted are 1 to {total}")
    order = torch.randperm(len(labels), generator=step_generator(seed, 0, stream="subset"))
    members = [order[labels[order] == label] for label in range(classes or total)]
    fewest = min(len(member) for member in members)
    if per_class is not None and not 1 <= per_class <= fewest:
        raise ValueError(f"per_class={per_class}: accepted are 1 to {fewest}, the size of the smallest class")
    return torch.cat([member[:per_class] for member in members]).sort().values


def _shapes(count: int, size: int, seed: int) -> ImageSet:
    drawn = draw_shapes(count, size, seed)
    return ImageSet(drawn.images, drawn.labels, CLASSES)


def _digits(size: int) -> tuple[ImageSet, ImageSet]:
    """scikit-learn's 1,797 handwritten digits, enlarged from 8 x 8; every third one is for testing."""
    try:
        import sklearn.datasets
    except ImportError:
        raise ValueError("data 'digits' needs scikit-learn: pip install 'automix[examples]'") from None
    digits = sklearn.datasets.load_digits()
    pixels = torch.from_numpy(digits.images).unsqueeze(1) * (255 / 16)
    pixels = F.interpolate(pixels, size=(size, size), mode="bilinear", align_corners=False)
    images = pixels.round().byte().repeat(1, 3, 1, 1)
    labels = torch.from_numpy(digits.target).long()
    testing = torch.arange(len(labels)) % 3 == 0
    names = tuple(str(digit) for digit in range(10))
    return ImageSet(images[~testing], labels[~testing], names), ImageSet(images[testing], labels[testing], names)


def _folder(
    root: Path, size: int | None, classes: int | None, per_class: int | None, seed: int
) -> tuple[ImageSet, ImageSet]:
    """Both splits of a folder; only the images that are wanted are read."""
    train, test = (_list_split(root, names) for names in (("train",), ("test", "val")))
    if train.classes != test.classes:
        odd = sorted(set(train.classes) ^ set(test.classes))
        raise ValueError(f"{root}: training and test set have different classes, for instance {odd[0]!r}")
    sets = []
    for listed, wanted in ((train, per_class), (test, None)):
        labels = torch.tensor(listed.targets)
        chosen = _choose(labels, len(listed.classes), classes, wanted, seed)
        images = torch.stack(list(_read([listed.samples[i][0] for i in chosen.tolist()], size)))
        sets.append(ImageSet(images, labels[chosen], tuple(listed.classes[:classes])))
    return sets[0], sets[1]


def _list_split(root: Path, names: tuple[str, ...]) -> Any:
    """torchvision's listing of the first of the folders `names`."""
    from torchvision.datasets import ImageFolder

    split = next((root / name for name in names if (root / name).is_dir()), None)
    if split is None:
        raise ValueError(f"{root}: no folder {' or '.join(names)} in it; accepted is train/<class>/ and test/<class>/")
    try:
        return ImageFolder(str(split))
    except FileNotFoundError as error:
        raise ValueError(f"{split}: {str(error).splitlines()[0]}") from None


def _read(paths: list[str], size: int | None) -> Iterator[Tensor]:
    import numpy as np
    from PIL import Image

    expected = None if size is None else (size, size)
    for path in paths:
        try:
            with Image.open(path) as file:
                image = file.convert("RGB")
        except (OSError, Image.DecompressionBombError) as error:
            raise ValueError(f"{path}: cannot be read as an image ({error})") from None
        if size is not None and image.size != expected:
            image = image.resize((size, size), Image.Resampling.BICUBIC)
        expected = expected or image.size
        if image.size != expected:
            raise ValueError(f"{path}: {image.width} x {image.height} px, the first is {expected}: pass image_size=...")
        yield torch.from_numpy(np.array(image)).permute(2, 0, 1)
