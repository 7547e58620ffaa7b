"""Class activation maps on mixed samples: the paper's Figure 3.

Each pair of images is mixed by each mixer; below the mixed sample are the maps of the two most probable classes. If
mixing kept both objects, these are the two classes of the pair and the maps lie on the two objects.
"""

from collections.abc import Mapping, Sequence

import torch
from PIL import Image
from torch import Tensor, nn

from automix.core.errors import AutomixError
from automix.core.validation import check_range, check_whole
from automix.evaluation.heatmaps import class_maps, resize_maps
from automix.evaluation.mixers import Mixer
from automix.evaluation.samples import Samples, to_float
from automix.evaluation.tiles import overlay_maps, to_tile_size
from automix.networks.modes import eval_mode
from automix.pictures.grid import Tile, tile_grid, to_image

CORRECT, WRONG = "#1d7a34", "#b02525"


def cam_panels(
    model: nn.Module,
    samples: Samples,
    mixers: Mapping[str, Mixer],
    *,
    lam: float = 0.5,
    count: int = 4,
    method: str = "cam",
    layer: int | str = 4,
) -> Image.Image:
    """Draw pairs of images mixed by each mixer, with the maps of the two most probable classes.

    The first two columns are the images themselves. A predicted class is green if it is one of the image's.

    Args:
        model: Classifier from pixels in [0, 1] to logits.
        samples: Test images, 2 or more, of 2 or more classes.
        mixers: Mixers by name; see `method_mixer` and `task_mixer`.
        lam: Share of the first image, in [0, 1].
        count: How many pairs.
        method: ``"cam"``, or ``"grad_cam"`` for networks without CAM.
        layer: Grad-CAM's layer.

    Returns:
        The picture.
    """
    check_range("lam", lam, 0, 1)
    check_whole("count", count, 1)
    if len(samples) < 2 or len(samples.classes) < 2:
        raise AutomixError(
            f"samples must have at least 2 images and 2 classes, got {len(samples)} and {len(samples.classes)}"
        )
    count = min(count, len(samples) // 2)
    part = next(samples.first(2 * count).parts(2 * count))
    x, y = to_float(part.images, next(model.parameters()).device), part.labels
    partner = torch.arange(len(x), device=x.device).roll(-count)  # the first half is paired with the second
    columns = {"image": x[:count], "partner": x[count : 2 * count]}
    shown = {"image": y[:count, None], "partner": y[count : 2 * count, None]}
    for name, mix in mixers.items():
        columns[name] = _mixed(name, mix, x, y.to(x.device), lam, partner)[:count]
        shown[name] = torch.stack([y[:count], y[count : 2 * count]], dim=1)
    rows: list[list[Tile]] = [[] for _ in range(3 * count)]
    for name, images in columns.items():
        tiles = cam_column(model, name, images, shown[name], samples.classes, method, layer)
        for pair, tiles_below in enumerate(tiles):
            for row, tile in enumerate(tiles_below, 3 * pair):
                rows[row].append(tile)
    note = f"mixed at lam {lam:g}; below, the maps of the two most probable classes: green are classes of the pair"
    return tile_grid(rows, ["sample", "map of\ntop 1", "map of\ntop 2"] * count, note=note, group=3)


def _mixed(name: str, mix: Mixer, x: Tensor, y: Tensor, lam: float, partner: Tensor) -> Tensor:
    mixed = mix(x, y, lam, partner)
    if not isinstance(mixed, Tensor) or mixed.shape != x.shape:
        given = tuple(mixed.shape) if isinstance(mixed, Tensor) else type(mixed).__name__
        raise AutomixError(f"mixer {name!r} must return images of shape {tuple(x.shape)}, got {given}")
    return mixed.detach()


def cam_column(
    model: nn.Module,
    name: str,
    x: Tensor,
    shown: Tensor,
    classes: Sequence[str],
    method: str = "cam",
    layer: int | str = 4,
) -> list[list[Tile]]:
    """Make the tiles of images and of the maps of their two most probable classes.

    Args:
        model: Classifier from pixels in [0, 1] to logits.
        name: Caption of the images; the class is added to that of images of one class.
        x: Pixels in [0, 1], ``(N, 3, S, S)``.
        shown: The classes in each image, ``(N, 1)`` or, for mixed samples, ``(N, 2)``.
        classes: Names of the classes.
        method: ``"cam"`` or ``"grad_cam"``.
        layer: Grad-CAM's layer.

    Returns:
        Of each image: itself, the map of the most probable class, and that of the second.
    """
    with eval_mode(model), torch.no_grad():
        top2 = model(x).softmax(dim=1).topk(2)
    maps, _ = class_maps(model, x, top2.indices, method, layer)
    images, _ = to_tile_size(x)
    names = [name if len(known) > 1 else f"{name}: {classes[known[0]]}" for known in shown.tolist()]
    tiles = [[Tile(to_image(image), caption)] for image, caption in zip(images, names, strict=True)]
    for rank in range(top2.indices.shape[1]):
        overlays = overlay_maps(images, resize_maps(maps[:, rank], (x.shape[2], x.shape[3])))
        for number, label in enumerate(top2.indices[:, rank].tolist()):
            caption = f"{100 * float(top2.values[number, rank]):.0f} % {classes[label]}"
            tiles[number].append(
                Tile(to_image(overlays[number]), caption, CORRECT if label in shown[number].tolist() else WRONG)
            )
    return tiles
