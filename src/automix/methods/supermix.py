"""SuperMix (Dabouei et al., 2021): masks are optimized until a network recognizes every image in the mixture.

k images get weights w ~ Dirichlet(alpha) (k = 2: lam and 1 - lam), drawn for each sample, and masks that sum to 1 in
every pixel: the sigmoids of k smooth maps, divided by their sum. From equal masks, up to `steps` Newton-like steps
lower, for each sample,

    KL( sum_j w_j class_j || network(x_mix) ) + sparsity * mean( s (1 - s) )

where class_j is the network's own prediction for image j and the second term makes masks binary. A step goes along the
gradient, smoothed by a Gaussian, as far as would bring the loss to 0 were it linear. After its first step a sample is
finished once the k classes are the network's top k predictions; the others go on. Gradients flow to the masks only.

lam acts through the network's prediction alone, so that the mean of a mask follows it loosely, and the label follows
the masks really found (lam = 1 still gives the image back). A method of distillation: it needs a network that knows its
classes, a teacher or ``ema=True`` and some training. It costs a forward pass and, for each step, a forward and a
backward pass to the images that are not finished. ``fast=True`` stops after 3 steps, takes the softmax of the maps,
which makes longer strides, and draws one lam for the batch.
"""

from collections.abc import Callable
from contextlib import nullcontext
from functools import lru_cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from automix.core.blend import at_least_float32, blend, chain_members
from automix.core.draws import draw_index, draw_weights
from automix.core.errors import AutomixError
from automix.core.objects import ObjectsRule, label_by_objects
from automix.core.target import Mixed, MixedTarget, is_multi_label
from automix.core.tensor_checks import check_batch
from automix.core.transform import MixTransform
from automix.core.validation import check_range, check_whole
from automix.methods._shared.labels import count_labels, label_rows
from automix.networks.modes import eval_mode
from automix.networks.outputs import logits_of
from automix.tasks.mix_task import MixTask
from automix.tasks.task import Task

__all__ = ["SuperMix", "create_task", "supermix"]

CELLS = 16  # per side of a mask before it is enlarged, as in the original
LONGEST = 2000.0  # of the steps' factors, as in the original
STEPS, FAST_STEPS = 50, 3


def supermix(
    x: Tensor,
    y: Tensor,
    alpha: float = 3.0,
    *,
    model: Callable[[Tensor], Tensor] | None = None,
    k: int = 2,
    fast: bool = False,
    steps: int | None = None,
    sigma: float = 2.0,
    sparsity: float = 25.0,
    lam: float | Tensor | None = None,
    index: Tensor | None = None,
    per_sample: bool | None = None,
    objects: Tensor | None = None,
    objects_rule: ObjectsRule = "absolute",
    objects_weight: float = 1.0,
    generator: torch.Generator | None = None,
) -> Mixed:
    """Optimize masks until a network recognizes every image in the mixture (Dabouei et al., 2021).

    Args:
        x: Images, ``(N, C, H, W)``.
        y: Class indices ``(N,)``, or rows ``(N, num_classes)`` (float: soft, bool/int: multi-label).
        alpha: Weights of the images ``~ Dirichlet(alpha)``.
        model: Classifier that is to recognize the images, from images to logits ``(N, num_classes)``.
        k: Number of images in a mixture, >= 2: i, index[i], index[index[i]], ...
        fast: Take few steps, masks by a softmax, and one `lam` for the batch.
        steps: Largest number of optimization steps, >= 1; 50, or 3 with `fast`, if not given.
        sigma: Standard deviation of the Gaussian that smooths the gradient, >= 0, in pixels of a 32 px image.
        sparsity: Weight of the term that makes masks binary, >= 0.
        lam: Weight of the first image, a number or ``(N,)``; drawn if not given.
        index: Partners, a permutation of ``range(N)``; drawn if not given.
        per_sample: Draw the weights for every sample instead of once for the batch; True, or False with `fast`, if not
            given.
        objects: Where the object of each image is: masks ``(N, H, W)`` or boxes ``(N, 4)``. If given, the label follows
            the visible objects; see `label_by_objects`.
        objects_rule: "absolute" compares the visible areas, "relative" the visible shares of the objects.
        objects_weight: Weight of the objects in the label, in [0, 1]; the plain area has the rest.
        generator: Source of randomness; torch's default generator if not given.

    Returns:
        The mixed images, their target (with k > 2 as rows) and the mask of the first image.
    """
    check_batch(x, y)
    if model is None:
        raise AutomixError("model is missing: supermix needs a classifier from images to logits (N, num_classes)")
    steps = (FAST_STEPS if fast else STEPS) if steps is None else steps
    per_sample = not fast if per_sample is None else per_sample
    _check_options(k, steps, sigma, sparsity)
    weights = draw_weights(x, alpha, k, lam=lam, per_sample=per_sample, generator=generator).expand(len(x), k)
    index = draw_index(x, index=index, generator=generator)
    members = chain_members(index, k)

    with eval_mode(model) if isinstance(model, nn.Module) else nullcontext():
        with torch.no_grad():
            answers = logits_of(model(x))
        classes = torch.stack([answers.argmax(dim=1)[member] for member in members], dim=1)
        images = torch.stack([x[member] for member in members], dim=1)
        masks = find_masks(model, images, weights, classes, answers.shape[1], steps, sigma, sparsity, fast)
    certain = (weights == 1)[..., None, None]
    masks = torch.where(certain.any(dim=1, keepdim=True), certain.to(masks.dtype), masks)
    shares = masks.mean(dim=(2, 3))
    if k == 2:
        pair = Mixed(blend(x, index, masks[:, :1]), MixedTarget(y, y[index], shares[:, 0]), masks[:, :1], index)
        return label_by_objects(pair, objects, objects_rule, objects_weight)
    mixed = (masks.unsqueeze(2).to(x.dtype) * images).sum(dim=1)
    mixed = torch.empty_like(x).copy_(mixed)  # in the memory format of x
    known = label_rows(y, count_labels(y, answers.shape[1]))
    rows = torch.stack([share.unsqueeze(1) * known[of] for share, of in zip(shares.T, members, strict=True)]).sum(dim=0)
    target = MixedTarget(rows, rows, shares[:, 0], multi_label=is_multi_label(y))
    return label_by_objects(Mixed(mixed, target, masks[:, :1]), objects, objects_rule, objects_weight)


def _check_options(k: int, steps: int, sigma: float, sparsity: float) -> None:
    check_whole("k", k, 2)
    check_whole("steps", steps, 1)
    for name, value in (("sigma", sigma), ("sparsity", sparsity)):
        check_range(name, value, 0)


def find_masks(
    model: Callable[[Tensor], Tensor],
    images: Tensor,
    weights: Tensor,
    classes: Tensor,
    num_classes: int,
    steps: int,
    sigma: float,
    sparsity: float,
    fast: bool = False,
) -> Tensor:
    """Optimize the masks of a batch.

    Args:
        model: Classifier that is to recognize the images.
        images: The k images of each sample, ``(N, k, C, H, W)``.
        weights: Their weights, ``(N, k)``.
        classes: Their classes, ``(N, k)``.
        num_classes: Number of classes.
        steps: Largest number of optimization steps.
        sigma: Standard deviation of the Gaussian, in pixels of a 32 px image.
        sparsity: Weight of the term that makes masks binary.
        fast: Take the softmax of the maps instead of their sigmoids divided by their sum.

    Returns:
        Masks with sum 1 at each pixel, ``(N, k, H, W)``.
    """
    number, _, _, height, width = images.shape
    weights = weights.to(at_least_float32(images).dtype)
    target = weights.new_zeros(number, num_classes).scatter_add(1, classes, weights)
    maps = weights.new_zeros(*weights.shape, min(CELLS, height), min(CELLS, width))
    blur = [_blur(length, sigma * CELLS / 32, maps.device).to(maps.dtype) for length in maps.shape[-2:]]
    active = torch.arange(number, device=maps.device)  # samples that are not finished
    for step in range(steps):
        with torch.enable_grad():
            part = maps[active].requires_grad_()
            masks = to_masks(part, (height, width), fast)
            mixed = (masks.unsqueeze(2).to(images.dtype) * images[active]).sum(dim=1)
            logits = at_least_float32(logits_of(model(mixed)))
            loss = F.kl_div(logits.log_softmax(dim=1), target[active].to(logits.dtype), reduction="none").sum(dim=1)
            loss = loss + sparsity * (masks * (1 - masks)).mean(dim=(1, 2, 3))
            (gradient,) = torch.autograd.grad(loss.sum(), part)
        smooth = blur[0] @ gradient @ blur[1]
        length = loss.detach() / (gradient * smooth).sum(dim=(1, 2, 3)).clamp(min=1e-10)
        goes_on = torch.ones_like(active, dtype=torch.bool) if step == 0 else ~_sees_all(logits, classes[active])
        stride = length.clamp(max=LONGEST).to(maps.dtype).reshape(-1, 1, 1, 1) * smooth
        maps[active[goes_on]] = (part.detach() - stride)[goes_on]
        active = active[goes_on]
        if len(active) == 0:
            break
    return to_masks(maps, (height, width), fast)


def to_masks(maps: Tensor, size: tuple[int, int], fast: bool = False) -> Tensor:
    """Enlarge maps to masks with sum 1 at each pixel."""
    large = F.interpolate(maps, size=size, mode="bilinear", align_corners=False)
    # sigmoids divided by their sum, in logarithms: their quotient must not become 0 / 0
    return (large if fast else F.logsigmoid(large)).softmax(dim=1)


def _sees_all(logits: Tensor, classes: Tensor) -> Tensor:
    """Whether all of the k `classes` (N, k) are among the top k predictions, (N,)."""
    first = logits.topk(min(classes.shape[1], logits.shape[1]), dim=1).indices
    return (classes.unsqueeze(2) == first.unsqueeze(1)).any(dim=2).all(dim=1)


@lru_cache(maxsize=32)
def _blur(length: int, sigma: float, device: torch.device) -> Tensor:
    """A Gaussian as a symmetric matrix (length, length); beyond the border there is nothing."""
    place = torch.arange(length, device=device, dtype=torch.float64)
    distance = (place - place.unsqueeze(1)).abs()
    if sigma == 0:
        return (distance == 0).double()
    weight = torch.exp(-(distance**2) / (2 * sigma**2))
    return weight / torch.exp(-(torch.arange(-length, length + 1) ** 2) / (2 * sigma**2)).sum().item()


def look(task: MixTask, x: Tensor, y: Tensor) -> dict[str, Any]:
    """Pass the classifier to `supermix`, for `MixTask`."""
    return {"model": task.classifier}


def create_task(model: nn.Module, **options: Any) -> Task:
    """Build the training task. Masks are optimized for the classifier: the teacher if there is one, in eval mode.

    Args:
        model: The network to train.
        **options: Options of `supermix` and of `MixTask`.

    Returns:
        The task.
    """
    return MixTask(model, supermix, look=look, **options)


class SuperMix(MixTransform):
    """Optimize masks until a network recognizes every image in the mixture (Dabouei et al., 2021).

    Call it as ``x, soft = mix(x, y)``.

    Args:
        alpha: Weights of the images ``~ Dirichlet(alpha)``.
        num_classes: Number of classes; not needed where labels are rows already.
        label_smoothing: Share of each label that is spread over all classes, in [0, 1).
        per_sample: Draw the weights for every sample instead of once for the batch.
        prob: Probability that a batch is mixed at all, in [0, 1]; 1 if not given.
        generator: Source of randomness; torch's default generator if not given.
        model: Classifier that is to recognize the images, from images to logits ``(N, num_classes)``.
        k: Number of images in a mixture, >= 2: i, index[i], index[index[i]], ...
        fast: Take few steps, masks by a softmax, and one `lam` for the batch.
        steps: Largest number of optimization steps, >= 1; 50, or 3 with `fast`, if not given.
        sigma: Standard deviation of the Gaussian that smooths the gradient, >= 0, in pixels of a 32 px image.
        sparsity: Weight of the term that makes masks binary, >= 0.
        objects_rule: "absolute" or "relative", for objects that are passed in the call; "absolute" if not given.
        objects_weight: Weight of the objects in the label, in [0, 1]; 1 if not given.
    """

    function = supermix
    takes_video = False
