"""Drawn scenes of several shapes with their boxes: the dataset `shapes` for detectors, which needs no download.

A scene is a dark, softly colored background of 96 px with one to four objects of `automix.data.shapes`. Each quarter
of the scene has at most one object, at a random place, small or as large as the quarter.
"""

from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor

from automix.core.draws import step_generator
from automix.data.shapes import CLASSES, draw_shapes
from automix.studies.detection.data import DetectionSet, Objects

SIDE = 96  # px of a scene
QUARTER = SIDE // 2
SIDES = (32, QUARTER)  # px of the drawn images that objects are taken from

DrawnObject = tuple[Tensor, Tensor, Tensor, int]  # pixels, mask, box, label


def draw_scenes(count: int, seed: int = 0) -> DetectionSet:
    """Draw scenes with one to four objects each.

    Args:
        count: Number of scenes.
        seed: Decides all draws.

    Returns:
        The scenes, in memory.
    """
    generator = step_generator(seed, 0, stream="scenes")
    scenes = _backgrounds(count, generator)
    numbers = torch.randint(1, 5, (count,), generator=generator)
    sizes = torch.randint(len(SIDES), (int(numbers.sum()),), generator=generator)
    drawn = [_draw_objects(int((sizes == size).sum()), side, 2 * seed + size) for size, side in enumerate(SIDES)]
    objects = []
    for scene, scene_sizes in zip(scenes, sizes.split(numbers.tolist()), strict=True):
        quarters = torch.randperm(4, generator=generator)[: len(scene_sizes)].tolist()
        boxes, labels = [], []
        for quarter, size in zip(quarters, scene_sizes.tolist(), strict=True):
            pixels, mask, box, label = next(drawn[size])
            x, y = torch.randint(QUARTER - SIDES[size] + 1, (2,), generator=generator).tolist()
            x, y = x + QUARTER * (quarter % 2), y + QUARTER * (quarter // 2)
            region = scene[:, y : y + SIDES[size], x : x + SIDES[size]]
            region[:, mask] = pixels[:, mask]
            boxes.append(box + torch.tensor([x, y, x, y]))
            labels.append(label)
        objects.append(Objects(torch.stack(boxes).float(), torch.tensor(labels), torch.zeros(len(labels)).bool()))
    return DetectionSet(CLASSES, tuple(objects), images=scenes)


def _backgrounds(count: int, generator: torch.Generator) -> Tensor:
    """Draw dark, slowly changing colors with noise, (N, 3, SIDE, SIDE) uint8."""
    colors = 0.5 * torch.rand(count, 3, 6, 6, generator=generator)
    background = F.interpolate(colors, size=(SIDE, SIDE), mode="bilinear", align_corners=True)
    background += 0.06 * torch.randn(background.shape, generator=generator)
    return (background.clamp(0, 1) * 255).round().byte()


def _draw_objects(count: int, side: int, seed: int) -> Iterator[DrawnObject]:
    """Iterate over objects in random order; `draw_shapes` cycles through the classes."""
    shapes = draw_shapes(count, side, seed) if count else None
    for i in torch.randperm(count, generator=step_generator(seed, side, stream="scenes")).tolist():
        assert shapes is not None  # for the type checker
        yield shapes.images[i], shapes.masks[i], shapes.boxes[i], int(shapes.labels[i])
