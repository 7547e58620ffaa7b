"""The picture of the README: pairs of photographs, and what AutoMix makes of them at three lam.

    AUTOMIX_DATA=... automix bench finetune --methods automix --columns pets-short --trials 1
    python benchmarks/photo_picture.py runs/bench/pets-tf_efficientnet_lite0-automix-*-0 docs/pictures/automix-pets.png

A row is a pair of the run's test images: the image, its partner, then mask and mixture for each lam. White keeps the
image, black its partner.
"""

import argparse
from pathlib import Path

import torch

from automix.core.normalization import denormalize
from automix.pictures.grid import Tile, tile_grid, to_image
from automix.training.load import load_task, preview

LAMS = (0.3, 0.5, 0.7)
PAIRS = (7, 2, 5, 6)  # positions among the test images that `automix mix RUN` shows, each with the one to its left


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("out", type=Path)
    arguments = parser.parse_args()
    task, card, config = load_task(arguments.run)
    x, y = preview(config)
    index = torch.arange(len(x)).roll(1)
    mean, std = torch.tensor(card.mean), torch.tensor(card.std)
    mixed = {lam: task.mix(x, y, lam=lam, index=index) for lam in LAMS}
    images = denormalize(x, mean, std)
    rows = []
    for place in PAIRS:
        row = [Tile(to_image(images[place]), "image"), Tile(to_image(images[index[place]]), "partner")]
        for lam, sample in mixed.items():
            row.append(Tile(to_image(sample.mask[place]), f"mask, lam {lam:g}"))
            row.append(Tile(to_image(denormalize(sample.x[place], mean, std)), f"mixed, lam {lam:g}"))
        rows.append(row)
    tile_grid(rows).save(arguments.out)


if __name__ == "__main__":
    main()
