"""A dataset in memory: one tensor of images and one of labels."""

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from automix.data.subset import check_labels, subset_positions

LONGEST = 100  # times the short side: beyond it, resizing by the short side would take gigabytes


@dataclass(frozen=True)
class ImageSet:
    """`images` (N, 3, H, W) uint8, `labels` (N,) int64, the names of the classes, and where known the `boxes`.

    Boxes are (N, 4) float: x0 y0 x1 y1 in pixels of `images`, x1 and y1 exclusive.
    """

    images: Tensor
    labels: Tensor
    classes: tuple[str, ...]
    boxes: Tensor | None = None

    def __post_init__(self) -> None:
        if self.images.dtype != torch.uint8:  # in which there is neither NaN nor a doubt about the scale
            raise ValueError(f"images of type {self.images.dtype}: accepted is torch.uint8, values 0 to 255")
        check_labels(self.labels, self.classes, self.name_of)

    def __len__(self) -> int:
        return len(self.labels)

    def name_of(self, index: int) -> str:
        """What messages call image `index`."""
        return f"image {index}"

    def read(self, index: int) -> tuple[Any, int]:
        """Image `index` as PIL's, and its label."""
        from PIL import Image

        return Image.fromarray(self.images[index].permute(1, 2, 0).numpy()), int(self.labels[index])

    def subset(self, *, classes: int | None = None, per_class: int | None = None, seed: int = 0) -> "ImageSet":
        """The first `classes` classes, and `per_class` images of each, drawn by `seed`."""
        chosen = self.take(subset_positions(self.labels, len(self.classes), classes, per_class, seed))
        return replace(chosen, classes=self.classes[:classes])

    def take(self, positions: Tensor) -> "ImageSet":
        """The images at `positions`, in that order."""
        boxes = None if self.boxes is None else self.boxes[positions]
        return ImageSet(self.images[positions], self.labels[positions], self.classes, boxes)

    def resized(self, size: int, crop: float = 1.0) -> "ImageSet":
        """Every image brought to `size` by `resize_and_crop`."""
        shape = (self.images.shape[-1], self.images.shape[-2])
        boxes = None if self.boxes is None else resize_and_crop_boxes(self.boxes, shape, size, crop)
        return ImageSet(resize_and_crop(self.images, shape, size, crop), self.labels, self.classes, boxes)

    def statistics(self) -> tuple[Tensor, Tensor]:
        """Mean and standard deviation of each channel, of pixels scaled to [0, 1]."""
        # Counting how often each of the 256 values occurs is exact and needs no second copy of the images as floats.
        values = torch.arange(256, dtype=torch.float64) / 255
        mean, std = torch.zeros(3), torch.zeros(3)
        for channel in range(3):
            chunks = self.images[:, channel].split(5000)
            counts = torch.stack([torch.bincount(chunk.flatten(), minlength=256) for chunk in chunks]).sum(dim=0)
            total = counts.sum()
            center = (counts * values).sum() / total
            mean[channel] = center
            std[channel] = ((counts * (values - center) ** 2).sum() / (total - 1)).sqrt()
        return mean, std.clamp(min=1 / 255)  # a channel that is the same everywhere must not divide by 0


def resize_and_crop(image: Any, shape: tuple[int, int], size: int, crop: float = 1.0) -> Any:
    """A PIL image or a tensor of images, (width, height) `shape`, as `size` x `size` pixels.

    The short side is resized (bicubic) to size / crop, then the center is cut out. Proportions are kept.
    """
    if crop == 1 and shape == (size, size):
        return image
    from torchvision.transforms import InterpolationMode
    from torchvision.transforms import functional as TF

    resized = TF.resize(trim_long_side(image), int(size / crop), InterpolationMode.BICUBIC)
    return TF.center_crop(resized, size)


def trim_long_side(image: Any) -> Any:
    """A PIL image or a tensor of images; a long thin one without ends that no crop by the short side ever shows."""
    from torchvision.transforms import functional as TF

    width, height = TF.get_image_size(image)
    short, long = sorted((width, height))
    if long <= LONGEST * short:
        return image
    kept = LONGEST * short + (long - LONGEST * short) % 2  # as much off either end, to the pixel
    return TF.center_crop(image, [min(height, kept), min(width, kept)])


def resize_and_crop_boxes(boxes: Tensor, shape: tuple[int, int], size: int, crop: float = 1.0) -> Tensor:
    """Where `resize_and_crop` puts `boxes` (N, 4) of images of (width, height) `shape`, clipped to the crop."""
    if crop == 1 and shape == (size, size):
        return boxes
    short, target = min(shape), int(size / crop)
    resized = torch.tensor([target if side == short else int(target * side / short) for side in shape])
    scale, corner = resized / torch.tensor(shape), ((resized - size) / 2).round()  # torchvision's arithmetic
    return (boxes * scale.repeat(2) - corner.repeat(2)).clamp(0, size)
