"""Mixed training images for a detector: each image with the next one of its batch, and the boxes of both.

Images of different sizes are padded with black at the right and at the bottom, as for the mixtures of Zhang et al.
("Bag of Freebies for Training Object Detection Neural Networks", 2019). An object is trained on as if it were whole, or
not at all if less than `MIN_VISIBLE` of its box is visible; its loss has the usual weight.
"""

from typing import Literal

import torch
from torch import Tensor

from automix.core.boxes import mix_boxes
from automix.methods.cutmix import cutmix
from automix.methods.mixup import mixup
from automix.studies.detection.data import Objects

MIN_VISIBLE = 0.25

DetectMix = Literal["none", "mixup", "cutmix"]


def mix_scenes(
    images: list[Tensor], objects: list[Objects], method: DetectMix, alpha: float, generator: torch.Generator
) -> tuple[list[Tensor], list[Objects]]:
    """Mix each image of a batch with the next one.

    Args:
        images: Images ``(3, H, W)`` in [0, 1], of any sizes.
        objects: The objects of each image.
        method: "mixup" interpolates the images, "cutmix" pastes a box, "none" returns what is given.
        alpha: ``lam ~ Beta(alpha, alpha)``, one for the batch.
        generator: Source of randomness, on the CPU.

    Returns:
        The mixed images, of one size, and the objects of both images that are visible enough.
    """
    if method == "none" or len(images) < 2:
        return images, objects
    x = _pad(images)
    trained = [(each.boxes[~each.ignored], each.labels[~each.ignored]) for each in objects]
    mix = mixup if method == "mixup" else cutmix
    partner = torch.arange(len(x), device=x.device).roll(-1)
    mixed = mix(x, torch.arange(len(x), device=x.device), alpha, index=partner, generator=generator)
    found = mix_boxes(mixed, [boxes for boxes, _ in trained], [labels for _, labels in trained], MIN_VISIBLE)
    kept = [Objects(each.boxes, each.labels, torch.zeros(len(each.labels), dtype=torch.bool)) for each in found]
    return list(mixed.x), kept


def _pad(images: list[Tensor]) -> Tensor:
    """Put images into the upper left corners of one batch of black ones."""
    height, width = (max(image.shape[side] for image in images) for side in (1, 2))
    batch = images[0].new_zeros(len(images), images[0].shape[0], height, width)
    for canvas, image in zip(batch, images, strict=True):
        canvas[:, : image.shape[1], : image.shape[2]] = image
    return batch
