"""Scenes of several drawn shapes with their boxes: `shapes` for detectors. Needs no download.

A scene is a dark, softly colored ground of 96 px with one to four objects of `automix.data.shapes`, at most one in
each quarter, somewhere in it, small or as large as a quarter. What lies in front of an object is cut out of it.
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

Drawn = tuple[Tensor, Tensor, Tensor, int]  # pixels, mask, box, label


def draw_scenes(count: int, seed: int = 0) -> DetectionSet:
    """`count` scenes, drawn by `seed`."""
    generator = step_generator(seed, 0, stream="scenes")
    scenes = _grounds(count, generator)
    numbers = torch.randint(1, 5, (count,), generator=generator)
    sizes = torch.randint(len(SIDES), (int(numbers.sum()),), generator=generator)
    drawn = [_drawn(int((sizes == size).sum()), side, 2 * seed + size) for size, side in enumerate(SIDES)]
    objects = []
    for scene, its_sizes in zip(scenes, sizes.split(numbers.tolist()), strict=True):
        quarters = torch.randperm(4, generator=generator)[: len(its_sizes)].tolist()
        boxes, labels = [], []
        for quarter, size in zip(quarters, its_sizes.tolist(), strict=True):
            pixels, mask, box, label = next(drawn[size])
            x, y = torch.randint(QUARTER - SIDES[size] + 1, (2,), generator=generator).tolist()
            x, y = x + QUARTER * (quarter % 2), y + QUARTER * (quarter // 2)
            covered = scene[:, y : y + SIDES[size], x : x + SIDES[size]]
            covered[:, mask] = pixels[:, mask]
            boxes.append(box + torch.tensor([x, y, x, y]))
            labels.append(label)
        objects.append(Objects(torch.stack(boxes).float(), torch.tensor(labels), torch.zeros(len(labels)).bool()))
    return DetectionSet(CLASSES, tuple(objects), images=scenes)


def _grounds(count: int, generator: torch.Generator) -> Tensor:
    """Dark colors that change slowly, and noise: (N, 3, SIDE, SIDE) uint8."""
    colors = 0.5 * torch.rand(count, 3, 6, 6, generator=generator)
    ground = F.interpolate(colors, size=(SIDE, SIDE), mode="bilinear", align_corners=True)
    ground += 0.06 * torch.randn(ground.shape, generator=generator)
    return (ground.clamp(0, 1) * 255).round().byte()


def _drawn(count: int, side: int, seed: int) -> Iterator[Drawn]:
    """`count` objects in an order of their own: drawn in turns, the first scenes would show the first classes only."""
    shapes = draw_shapes(count, side, seed) if count else None
    for i in torch.randperm(count, generator=step_generator(seed, side, stream="scenes")).tolist():
        assert shapes is not None  # for the type checker
        yield shapes.images[i], shapes.masks[i], shapes.boxes[i], int(shapes.labels[i])
