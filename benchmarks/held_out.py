"""A dataset made of another one's training images alone, to choose settings without looking at test images.

    python benchmarks/held_out.py birds runs/held-out/birds [--hold 10] [--fold 0]
    automix train runs/held-out/birds --train-size 96 --test-size 96 --epochs 12 --frozen-stages 2

OUT gets train/<class>/ and test/<class>/ with links to the training images of DATA. Of each class, `--hold` images are
the test set; folds 0, 1, ... hold out different ones.
"""

import argparse
from pathlib import Path

import torch

from automix.core.draws import step_generator
from automix.data.datasets import open_dataset
from automix.data.image_files import ImageFiles


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data")
    parser.add_argument("out", type=Path)
    parser.add_argument("--hold", type=int, default=10)
    parser.add_argument("--fold", type=int, default=0)
    arguments = parser.parse_args()
    train, _ = open_dataset(arguments.data)
    if not isinstance(train, ImageFiles):
        parser.error("data must be a folder of images or a named dataset of image files")
    print(f"{link(train, arguments.out, arguments.hold, arguments.fold)} links in {arguments.out}")


def link(train: ImageFiles, out: Path, hold: int, fold: int) -> int:
    """Link the images of each class, shuffled by a fixed seed, into train/ and test/."""
    order = torch.randperm(len(train), generator=step_generator(0, 0, stream="held out"))
    count = 0
    for label, name in enumerate(train.classes):
        members = order[train.labels[order] == label].tolist()
        held = set(members[fold * hold : (fold + 1) * hold])
        if not 0 < len(held) < len(members):
            raise SystemExit(f"{name}: {len(members)} images are too few for fold {fold} of {hold} images")
        for index in members:
            source = Path(train.paths[index]).resolve()
            target = out / ("test" if index in held else "train") / name.replace("/", "_") / source.name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.unlink(missing_ok=True)
            target.symlink_to(source)
            count += 1
    return count


if __name__ == "__main__":
    main()
