"""A dataset in memory: one tensor of images and one of labels."""

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from automix.core.errors import AutomixError
from automix.data.subset import check_labels, subset_positions

MAX_ASPECT = 100  # long side / short side; beyond it, resizing by the short side would take gigabytes


@dataclass(frozen=True)
class ImageSet:
    """Labeled images in memory.

    Attributes:
        images: Pixels, ``(N, 3, H, W)`` uint8.
        labels: Class indices, ``(N,)`` int64.
        classes: The names of the classes, in the order of the labels.
        boxes: Object boxes, ``(N, 4)`` float: x0, y0, x1, y1 in pixels of `images`, x1 and y1 exclusive. None if the
            dataset has no boxes.
    """

    images: Tensor
    labels: Tensor
    classes: tuple[str, ...]
    boxes: Tensor | None = None

    def __post_init__(self) -> None:
        if self.images.dtype != torch.uint8:  # which has no NaN, and a known scale
            raise AutomixError(f"images must be torch.uint8 (values 0 to 255), got {self.images.dtype}")
        check_labels(self.labels, self.classes, self.name_of)

    def __len__(self) -> int:
        return len(self.labels)

    def name_of(self, index: int) -> str:
        """Name an image for messages.

        Args:
            index: Position of the image.

        Returns:
            "image 7", for instance.
        """
        return f"image {index}"

    def read(self, index: int) -> tuple[Any, int]:
        """Get one image.

        Args:
            index: Position of the image.

        Returns:
            The PIL image and its label.
        """
        from PIL import Image

        return Image.fromarray(self.images[index].permute(1, 2, 0).numpy()), int(self.labels[index])

    def subset(self, *, classes: int | None = None, per_class: int | None = None, seed: int = 0) -> "ImageSet":
        """Keep some classes and some images of each.

        Args:
            classes: Keep the first so many classes; all if not given.
            per_class: Keep so many images of each class; all if not given.
            seed: Seed of the choice within a class.

        Returns:
            The smaller dataset, in the same order.
        """
        chosen = self.take(subset_positions(self.labels, len(self.classes), classes, per_class, seed))
        return replace(chosen, classes=self.classes[:classes])

    def take(self, positions: Tensor) -> "ImageSet":
        """Keep the images at some positions.

        Args:
            positions: Positions, ``(M,)`` int64.

        Returns:
            Those images, in that order.
        """
        boxes = None if self.boxes is None else self.boxes[positions]
        return ImageSet(self.images[positions], self.labels[positions], self.classes, boxes)

    def resized(self, size: int, crop: float = 1.0, squeeze: bool = False) -> "ImageSet":
        """Resize and center-crop every image, with its box.

        Args:
            size: Side of the result in pixels.
            crop: Share of the resized short side that the crop keeps.
            squeeze: Resize both sides to `size` instead of cropping.

        Returns:
            Images of ``size x size`` pixels.
        """
        shape = (self.images.shape[-1], self.images.shape[-2])
        boxes = None if self.boxes is None else resize_and_crop_boxes(self.boxes, shape, size, crop, squeeze)
        return ImageSet(resize_and_crop(self.images, shape, size, crop, squeeze), self.labels, self.classes, boxes)

    def statistics(self) -> tuple[Tensor, Tensor]:
        """Compute mean and standard deviation of each channel, of pixels scaled to [0, 1]."""
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
        return mean, std.clamp(min=1 / 255)  # a constant channel must not divide by 0


def resize_and_crop(image: Any, shape: tuple[int, int], size: int, crop: float = 1.0, squeeze: bool = False) -> Any:
    """Resize the short side (bicubic) to ``size / crop`` and cut out the center, as timm prepares test images.

    Args:
        image: A PIL image, or a tensor of images ``(..., H, W)``.
        shape: Its width and height.
        size: Side of the result in pixels.
        crop: Share of the resized short side that the crop keeps, in (0, 1].
        squeeze: Resize both sides to `size` instead of cropping; `crop` has no effect.

    Returns:
        The image or images as ``size x size`` pixels; unchanged if they have that size and are not cropped.
    """
    if (crop == 1 or squeeze) and shape == (size, size):
        return image
    from torchvision.transforms import InterpolationMode
    from torchvision.transforms import functional as TF

    if squeeze:
        return TF.resize(image, [size, size], InterpolationMode.BICUBIC)
    resized = TF.resize(trim_long_side(image), int(size / crop), InterpolationMode.BICUBIC)
    return TF.center_crop(resized, size)


def trim_long_side(image: Any) -> Any:
    """Cut off the ends of a very long or tall image, which no crop by the short side shows.

    Args:
        image: A PIL image, or a tensor of images ``(..., H, W)``.

    Returns:
        The image, its long side at most 100 times the short one.
    """
    from torchvision.transforms import functional as TF

    width, height = TF.get_image_size(image)
    short, long = sorted((width, height))
    if long <= MAX_ASPECT * short:
        return image
    kept = MAX_ASPECT * short + (long - MAX_ASPECT * short) % 2  # the same number of pixels off either end
    return TF.center_crop(image, [min(height, kept), min(width, kept)])


def resize_and_crop_boxes(
    boxes: Tensor, shape: tuple[int, int], size: int, crop: float = 1.0, squeeze: bool = False
) -> Tensor:
    """Move boxes as `resize_and_crop` moves the pixels.

    Args:
        boxes: ``(N, 4)``: x0, y0, x1, y1 in pixels of the original images.
        shape: Width and height of the original images.
        size: Side of the result in pixels.
        crop: Share of the resized short side that the crop keeps.
        squeeze: Both sides were resized to `size` instead.

    Returns:
        The boxes in pixels of the result, clipped to it.
    """
    if squeeze:
        return (boxes * (size / torch.tensor(shape)).repeat(2)).clamp(0, size)
    if crop == 1 and shape == (size, size):
        return boxes
    short, target = min(shape), int(size / crop)
    resized = torch.tensor([target if side == short else int(target * side / short) for side in shape])
    scale, corner = resized / torch.tensor(shape), ((resized - size) / 2).round()  # torchvision's arithmetic
    return (boxes * scale.repeat(2) - corner.repeat(2)).clamp(0, size)
