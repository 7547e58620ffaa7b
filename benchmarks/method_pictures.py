"""The pictures of docs/methods and the README: pairs of photographs, and what each method makes of them at three lam.

    AUTOMIX_DATA=... automix bench finetune --methods automix --columns pets-long --trials 1
    python benchmarks/method_pictures.py runs/bench/pets-tf_efficientnet_lite0-automix-*-0 [METHOD...]

A row is a pair of the run's test images: the image, its partner, then mask and mixture for each lam. White keeps the
image, black its partner. AutoMix's masks are those of the run, and methods that use the network get its classifier.
StyleMix has no picture: its encoder and decoder come from files that are not part of the project.
"""

import argparse
import copy
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

import automix
from automix.core.normalization import denormalize
from automix.pictures.grid import Tile, tile_grid, to_image
from automix.tasks.task import Task
from automix.training.load import load_task, preview

FOLDER = Path(__file__).parents[1] / "docs" / "pictures" / "methods"
WITHOUT = ("stylemix", "vanilla")
LAMS = (0.3, 0.5, 0.7)
SEED = 1  # of all draws; with it, the border does not clip CutMix's boxes
SOURCE = "photographs: Oxford-IIIT Pets, CC BY-SA 4.0"
PAIRS = (7, 2, 5)  # positions among the test images that `automix mix RUN` shows, each with the one to its left


class Photographs:
    """Test images of a run, and how they become tiles.

    Args:
        x: Normalized images, ``(N, 3, H, W)``.
        y: Their classes, ``(N,)``.
        mean: Mean of each channel that `x` was normalized by.
        std: Standard deviation of each channel that `x` was normalized by.
    """

    def __init__(self, x: Tensor, y: Tensor, mean: Sequence[float], std: Sequence[float]) -> None:
        self.x, self.y = x, y
        self.mean, self.std = torch.tensor(mean), torch.tensor(std)
        self.index = torch.arange(len(x)).roll(1)

    def tile(self, image: Tensor, caption: str) -> Tile:
        return Tile(to_image(denormalize(image, self.mean, self.std)), caption)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("methods", nargs="*", help="all that have a picture if not given")
    arguments = parser.parse_args()
    trained, card, config = load_task(arguments.run)
    photographs = Photographs(*preview(config), card.mean, card.std)
    classifier = trained.deploy()
    for name in arguments.methods or [name for name in automix.methods() if name not in WITHOUT]:
        torch.manual_seed(SEED)
        rows = method_rows(name, photographs, trained, classifier)
        tile_grid(rows, note=SOURCE).quantize(256).save(FOLDER / f"{name}.png", optimize=True)  # a third of the size
        print(f"{name}.png")


def method_rows(name: str, photographs: Photographs, trained: Task, classifier: torch.nn.Module) -> list[list[Tile]]:
    """The rows of a method's picture."""
    if name == "automix":
        return pair_rows(photographs, trained, PAIRS)
    if name == "augmix":
        return [augmix_row(photographs, place) for place in PAIRS]
    if name == "pixmix":
        return [pixmix_row(photographs, place) for place in PAIRS]
    if name == "recursivemix":
        return [recursivemix_row(photographs, lam) for lam in (0.6, 0.7, 0.8)]
    if name == "mixup_or_cutmix":
        both = [automix.create_task(name, copy.deepcopy(classifier), switch=switch, seed=SEED) for switch in (0, 1)]
        return [*pair_rows(photographs, both[0], PAIRS[:2]), *pair_rows(photographs, both[1], PAIRS[:2])]
    if name == "transmix":  # its box is CutMix's, whatever the network
        classifier = automix.create_model("deit_tiny_patch16_224", num_classes=37, image_size=96, depth=2)
    task = automix.create_task(name, copy.deepcopy(classifier), seed=SEED)
    rows = pair_rows(photographs, task, PAIRS)
    if name == "comixup":  # mixes any number of images, not pairs
        return [[image, *others] for image, _, *others in rows]
    return rows


def pair_rows(photographs: Photographs, task: Task, places: Sequence[int]) -> list[list[Tile]]:
    """A row for each pair: the image, its partner, then mask and mixture for each lam."""
    x, y, index = photographs.x, photographs.y, photographs.index
    mixed = {lam: task.mix(x, y, lam=lam, index=index) for lam in LAMS}
    rows = []
    for place in places:
        row = [photographs.tile(x[place], "image"), photographs.tile(x[index[place]], "partner")]
        for lam, sample in mixed.items():
            row.append(Tile(to_image(sample.mask[place]), f"mask, lam {lam:g}"))
            row.append(photographs.tile(sample.x[place], f"mixed, lam {lam:g}"))
        rows.append(row)
    return rows


def augmix_row(photographs: Photographs, place: int) -> list[Tile]:
    """An image, and two views of it for each lam."""
    image, label = photographs.x[place : place + 1], photographs.y[place : place + 1]
    normalization = {"mean": photographs.mean.tolist(), "std": photographs.std.tolist()}
    row = [photographs.tile(image[0], "image")]
    for lam in LAMS:
        for view in range(2):
            generator = torch.Generator().manual_seed(view)
            mixed = automix.augmix(image, label, lam=lam, generator=generator, **normalization)
            row.append(photographs.tile(mixed.x[0], f"view {view + 1}, lam {lam:g}"))
    return row


def pixmix_row(photographs: Photographs, place: int) -> list[Tile]:
    """An image, and six draws of PixMix, which has no lam."""
    image, label = photographs.x[place : place + 1], photographs.y[place : place + 1]
    normalization = {"mean": photographs.mean.tolist(), "std": photographs.std.tolist()}
    row = [photographs.tile(image[0], "image")]
    for draw in range(6):
        generator = torch.Generator().manual_seed(10 * place + draw)
        mixed = automix.pixmix(image, label, generator=generator, **normalization)
        row.append(photographs.tile(mixed.x[0], f"draw {draw + 1}"))
    return row


def recursivemix_row(photographs: Photographs, lam: float) -> list[Tile]:
    """Four steps: the mixed image of one step is pasted into the image of the next, into the first a clean one."""
    row: list[Tile] = []
    previous = None
    for step, place in enumerate((*PAIRS, 6)):
        image, label = photographs.x[place : place + 1], photographs.y[place : place + 1]
        pasted = previous or automix.vanilla(photographs.x[:1], photographs.y[:1])
        place_of_box = {"index": torch.tensor([0]), "corner": torch.tensor([38, 4])}
        previous = automix.recursivemix(image, label, previous=pasted, lam=lam, num_classes=37, **place_of_box)
        row += [photographs.tile(image[0], f"image {step + 1}")]
        row += [photographs.tile(previous.x[0], f"mixed {step + 1}, lam {lam:g}")]
    return row


if __name__ == "__main__":
    main()
