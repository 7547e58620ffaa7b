"""l_lambda (Eq. 7), the loss on the means of the masks, and what of the masks goes into the log."""

from torch import Tensor

from automix.core.blend import mask_spread
from automix.core.target import Mixed
from automix.methods.automix.settings import AutoMixSettings


def lambda_loss(mixed: Mixed, settings: AutoMixSettings, progress: float) -> Tensor:
    """Compute l_lambda (Eq. 7), for each mask and then averaged; gamma falls linearly to 0 over the training.

    Args:
        mixed: The samples that the Mix Block learns from.
        settings: Their `gamma`, `epsilon` and `variance_reward` count.
        progress: Part of the training that is done, in [0, 1].

    Returns:
        The loss, a scalar.
    """
    if mixed.masks is None:
        gap = (mixed.target.lam - mixed.mask.mean(dim=(1, 2, 3))).abs()
        variance = mixed.mask.var(dim=(1, 2, 3), correction=0)
    else:
        gap = (mixed.target.weights - mixed.masks.mean(dim=(2, 3))).abs()
        variance = mixed.masks.var(dim=(2, 3), correction=0)
    loss = (gap - settings.epsilon).clamp(min=0).mean()
    if settings.variance_reward:  # SAMix
        loss = loss - settings.variance_reward * variance.mean()
    return settings.gamma * (1 - progress) * loss


def mask_metrics(mixed: Mixed) -> dict[str, Tensor]:
    """Measure, over a batch, how much the masks vary over their pixels, and how far their means are from lam.

    Args:
        mixed: The mixed batch.

    Returns:
        ``mask_spread`` and ``lam_gap``.
    """
    gap = (mixed.mask.float().mean(dim=(1, 2, 3)) - mixed.target.lam).abs()
    return {"mask_spread": mask_spread(mixed.mask).mean(), "lam_gap": gap.mean()}
