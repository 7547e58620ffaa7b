"""Two images, their mixture, and the predictions of a network for it."""

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True, eq=False)
class Picture:
    """An image to choose.

    Attributes:
        pixels: ``(3, S, S)`` uint8.
        caption: Its class or file name.
        label: Its class among those of the network; None if it is not known.
    """

    pixels: Tensor
    caption: str
    label: int | None = None


@dataclass(frozen=True, eq=False)
class Pair:
    """Two images as the networks take them.

    Attributes:
        pictures: The two images.
        x: Both normalized, ``(2, 3, S, S)``.
        y: Their classes, ``(2,)``: the known ones, or else those that the classifier predicts.
    """

    pictures: tuple[Picture, Picture]
    x: Tensor
    y: Tensor


@dataclass(frozen=True)
class MixedImage:
    """The mixture of a pair.

    Attributes:
        x: The mixed image, normalized, ``(1, 3, S, S)``.
        pixels: The mixed image in [0, 1], ``(3, S, S)``.
        mask: Weight of the first image at each pixel, in [0, 1], ``(1, S, S)``.
        share: Weight of the first image in the label: lam, or the mean of the mask for methods that follow it.
        note: What to know about the method; empty if nothing.
    """

    x: Tensor
    pixels: Tensor
    mask: Tensor
    share: float
    note: str = ""


@dataclass(frozen=True)
class Classification:
    """The prediction of a network for a mixed image.

    Attributes:
        network: Name of the network: student, teacher or classifier.
        classes: The two most probable classes.
        probabilities: Their probabilities.
        maps: Class activation maps of these classes, in [0, 1], ``(K, S, S)``; None if the network allows none.
        note: Why there are no maps; empty if there are.
    """

    network: str
    classes: tuple[int, ...]
    probabilities: tuple[float, ...]
    maps: Tensor | None = None
    note: str = ""
