"""Pictures of mixed samples: what a task trains on.

picture = draw_mixed_samples(task, x, loader.mean, loader.std, title="AutoMix on shapes")
picture.save("mixed.png")
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from PIL import Image
from torch import Tensor

from automix.core.blend import mask_spread
from automix.core.normalization import denormalize
from automix.core.tensor_files import read_tensors, write_tensors
from automix.pictures.grid import image_grid
from automix.tasks.task import Task

MAX_COLUMNS = 8


@dataclass(frozen=True)
class MixedSamples:
    """Images mixed with their partners at several lam, as pixels in [0, 1].

    Attributes:
        images: The first images, ``(N, 3, H, W)``.
        partners: The second images, ``(N, 3, H, W)``.
        masks: By lam, the share of the first image in each pixel, ``(N, 1, H, W)``.
        mixed: By lam, the mixed samples, ``(N, 3, H, W)``.
        labels: Classes of the first images, ``(N,)``; None if they are not known.
    """

    images: Tensor
    partners: Tensor
    masks: dict[float, Tensor]
    mixed: dict[float, Tensor]
    labels: Tensor | None = None

    def write(self, path: Path) -> None:
        """Write the samples to a safetensors file, in 8 bits.

        Args:
            path: The file.
        """
        tensors = {"images": self.images, "partners": self.partners}
        for lam in self.mixed:
            tensors |= {f"mask {lam:g}": self.masks[lam], f"mixed {lam:g}": self.mixed[lam]}
        eight_bits = {name: (255 * pixels.cpu().clamp(0, 1)).round().byte() for name, pixels in tensors.items()}
        contents = {name: pixels.contiguous() for name, pixels in eight_bits.items()}
        write_tensors(path, contents if self.labels is None else {**contents, "labels": self.labels.cpu()}, {})

    @classmethod
    def read(cls, path: Path) -> "MixedSamples":
        """Read the samples of `write`.

        Args:
            path: The file.

        Returns:
            The samples.
        """
        contents = read_tensors(path)[0]
        labels = contents.pop("labels", None)
        tensors = {name: pixels.float() / 255 for name, pixels in contents.items()}
        lams = sorted(float(name.removeprefix("mixed ")) for name in tensors if name.startswith("mixed "))
        masks, mixed = ({lam: tensors[f"{kind} {lam:g}"] for lam in lams} for kind in ("mask", "mixed"))
        return cls(tensors["images"], tensors["partners"], masks, mixed, labels)


def mix_samples(
    task: Task, x: Tensor, mean: Tensor, std: Tensor, lams: Sequence[float], y: Tensor | None = None
) -> MixedSamples:
    """Mix images at several lam as a task would now. The partner of an image is the one before it.

    Args:
        task: The task that mixes. It is not changed.
        x: Normalized images, ``(N, C, H, W)``; the first eight are used.
        mean: Mean of each channel that `x` was normalized by.
        std: Standard deviation of each channel that `x` was normalized by.
        lams: Shares of the image, in [0, 1].
        y: Classes of the images, ``(N,)``, for methods that look at the class (their saliency or attention).

    Returns:
        The mixed samples and their masks.
    """
    x, y = x[:MAX_COLUMNS], None if y is None else y[:MAX_COLUMNS]
    index = torch.arange(len(x), device=x.device).roll(1)
    batches = {lam: task.mix(x, y, lam=lam, index=index) for lam in lams}
    return MixedSamples(
        denormalize(x, mean, std),
        denormalize(x[index], mean, std),
        {lam: batch.mask for lam, batch in batches.items()},
        {lam: denormalize(batch.x, mean, std) for lam, batch in batches.items()},
        y,
    )


def draw_mixed_samples(
    task: Task,
    x: Tensor,
    mean: Tensor,
    std: Tensor,
    lams: Sequence[float] = (0.2, 0.5, 0.8),
    title: str = "",
    y: Tensor | None = None,
) -> Image.Image:
    """Draw images, their partners, and the masks and mixed samples for several lam.

    The partner of an image is the one to its left. In a mask, white is the image and black its partner.

    Args:
        task: The task that mixes. It is not changed.
        x: Normalized images, ``(N, C, H, W)``; the first eight are used.
        mean: Mean of each channel that `x` was normalized by.
        std: Standard deviation of each channel that `x` was normalized by.
        lams: Shares of the image, in [0, 1]; two rows for each.
        title: Text above the picture.
        y: Classes of the images, ``(N,)``, for methods that look at the class (their saliency or attention).

    Returns:
        The picture.
    """
    samples = mix_samples(task, x, mean, std, lams, y)
    rows = {"image": samples.images, "partner": samples.partners}
    for lam, mask in samples.masks.items():
        measured = f"mean {mask.mean():.2f}\nspread {mask_spread(mask).mean():.2f}"
        rows |= {f"mask, lam {lam:g}\n{measured}": mask, f"mixed\nlam {lam:g}": samples.mixed[lam]}
    return image_grid(rows, title, note="mask: white is the image, black its partner")
