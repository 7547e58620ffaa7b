"""`automix quickstart`: plain training and AutoMix side by side, in a few minutes on two cores."""

import sys
from pathlib import Path

from automix.core.validation import check_range, check_whole


def quickstart(
    *, epochs: int | None = None, seeds: int | None = None, lr: float | None = None, out: Path = Path("runs/quickstart")
) -> None:
    """Train plainly and with AutoMix, side by side, and print both accuracies.

    For example:
      automix quickstart
      automix quickstart --epochs 20 --seeds 1

    With photographs at hand (birds or oxford-iiit-pet in the folder that
    AUTOMIX_DATA names), a pretrained network is fine-tuned. Otherwise a small
    network is trained on drawn shapes.

    Args:
        epochs: Epochs of each run; 20 on photographs, 180 on shapes.
        seeds: Runs of each method; 1 on photographs, 2 on shapes.
        lr: Learning rate; the recipe's on photographs, 0.2 on shapes.
        out: Folder of the runs. Runs of an earlier quickstart in it are replaced.
    """
    from automix.training.quickstart import choose_quickstart, compare_methods, describe_comparison

    check_whole("epochs", epochs, 1)
    check_whole("seeds", seeds, 1)
    if lr is not None:
        check_range("lr", lr, 0, bounds="()")
    given = {name: value for name, value in (("epochs", epochs), ("lr", lr)) if value is not None}
    chosen = choose_quickstart()
    settings = {**chosen.settings, **given}
    results = compare_methods(settings, seeds or chosen.seeds, out)
    sys.stdout.write(f"\n{describe_comparison(settings, results, out)}\n")
