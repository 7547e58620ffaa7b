"""What the Mix Block does, in numbers, and warnings when it does nothing.

    spread      the standard deviation of a mask over its pixels, averaged over images: 0 is Mixup
    mean        the mean of a mask, averaged over images: should be lam
    top-1       how often the teacher's first prediction is one of the two classes in a mixed sample
    top-2       how often its first two predictions are just these two classes

The accuracies stand beside those on Mixup's and CutMix's samples of the same pairs. A Mix Block that is worth its cost
makes samples in which both objects can be recognized.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from automix.core.accuracy import pair_correct
from automix.core.blend import mask_spread
from automix.core.draws import step_generator
from automix.core.target import Mixed
from automix.methods.cutmix import cutmix
from automix.methods.mixup import mixup
from automix.networks.modes import eval_mode
from automix.tasks.task import Task

LAMS = (0.2, 0.5, 0.8)
MIN_SPREAD = 0.02  # below this a mask is one number for the whole image
MIN_MEAN_DIFFERENCE = 0.3  # between the means at lam 0.8 and at 0.2; 0.6 is perfect


@torch.no_grad()
def diagnose(task: Task, x: Tensor, y: Tensor, predict: Callable[[Tensor], Tensor] | None = None) -> dict[str, float]:
    """Measure the masks of a task on images that are mixed with their neighbors in the batch. The task stays as it is.

    Args:
        task: The task.
        x: Images, ``(N, C, H, W)``.
        y: Their class indices.
        predict: Computes the logits of mixed images; the task's classifier if not given.

    Returns:
        Spread and mean of the masks at three `lam`, and the accuracies in percent, by name.
    """
    index = torch.arange(len(x), device=x.device).roll(1)
    mixed = {lam: task.mix(x, y, lam=lam, index=index) for lam in LAMS}
    numbers = {}
    for lam, sample in mixed.items():
        numbers[f"mask_spread_at_{lam}"] = mask_spread(sample.mask).mean()
        numbers[f"mask_mean_at_{lam}"] = sample.mask.mean()
    samples = {
        "mixed": mixed[0.5],
        "mixup": mixup(x, y, lam=0.5, index=index),
        "cutmix": cutmix(x, y, lam=0.5, index=index, generator=step_generator(task.seed, 0, stream="examine")),
    }
    with eval_mode(task.classifier):
        for name, sample in samples.items():
            numbers |= {
                f"{top}_on_{name}": value for top, value in _accuracies(predict or task.classifier, sample).items()
            }
    return dict(zip(numbers, torch.stack(list(numbers.values())).tolist(), strict=True))


def _accuracies(predict: Callable[[Tensor], Tensor], mixed: Mixed) -> dict[str, Tensor]:
    top1, top2 = pair_correct(predict(mixed.x), mixed.target.y_a, mixed.target.y_b)
    return {"top1": 100 * top1.float().mean(), "top2": 100 * top2.float().mean()}


def mask_warnings(numbers: dict[str, float]) -> dict[str, str]:
    """Say what is wrong with the masks.

    Args:
        numbers: The result of `diagnose`.

    Returns:
        Warnings for people, by kind: "flat" (no selection) and "lam-ignored".
    """
    spread, low, high = (numbers[f"mask_{name}"] for name in ("spread_at_0.5", "mean_at_0.2", "mean_at_0.8"))
    warnings = {}
    if spread < MIN_SPREAD:
        warnings["flat"] = (
            f"the Mix Block's masks are flat (spread {spread:.3f} at lam 0.5), which is Mixup at a higher cost; "
            "try a higher block_lr or normalize=True"
        )
    if high - low < MIN_MEAN_DIFFERENCE:
        warnings["lam-ignored"] = (
            f"the Mix Block's masks do not follow lam (mean {low:.2f} at lam 0.2, {high:.2f} at 0.8); "
            "try exact_mean=True or a lower block_lr"
        )
    return warnings
