"""Attentive CutMix (Walawalkar et al., 2020): the cells that a network attends to are pasted onto another image.

The image is a grid of 7 x 7 cells. The k = 6 cells where the last feature map of a helper network is strongest come
from x_i, all others from x_j:

    s = 1 on the k most attended cells of x_i, else 0        lam := mean(s), about k / 49

`plus` draws the number of cells instead: k = floor(49 * lam) with lam ~ Beta(alpha, 8). The helper is a trained
network, given as a module or by its name, for which pretrained weights are looked up. Without one the classifier that
is trained takes its place (with ``ema=True`` its teacher). For small objects and where a pretrained helper is at hand:
a random box often shows background only. The label is the area to the pixel, as cells differ by a pixel where 7 does
not divide the image.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from automix.core.blend import at_least_float32, blend
from automix.core.draws import Pairing, draw_index, draw_lam, draw_uniform
from automix.core.errors import AutomixError
from automix.core.normalization import denormalize, normalize
from automix.core.objects import ObjectsRule, label_by_objects
from automix.core.target import Mixed, MixedTarget
from automix.core.tensor_checks import check_batch, check_shape
from automix.core.transform import MixTransform
from automix.core.validation import check_alpha, check_whole
from automix.networks.create import create_model
from automix.networks.feature_tap import FeatureTap, find_tap, stage_modules
from automix.networks.modes import eval_mode
from automix.networks.names import check_model_name
from automix.networks.teacher import make_teacher
from automix.networks.weights import Pretrained, find_pretrained
from automix.tasks.mix_task import MixTask

__all__ = ["AttentiveMix", "attentivemix", "create_task"]

GRID = 7  # cells a side
PLUS_BETA = 8  # lam ~ Beta(alpha, 8): a fifth of the image with alpha 2


def attentivemix(
    x: Tensor,
    y: Tensor,
    alpha: float = 2.0,
    *,
    attention: Tensor,
    k: int = 6,
    plus: bool = False,
    lam: float | Tensor | None = None,
    index: Tensor | None = None,
    pairing: Pairing = "random",
    per_sample: bool = False,
    objects: Tensor | None = None,
    objects_rule: ObjectsRule = "absolute",
    objects_weight: float = 1.0,
    generator: torch.Generator | None = None,
) -> Mixed:
    """Paste the cells of each image that attract most attention onto its partner (Walawalkar et al., 2020).

    Args:
        x: Images, ``(N, C, H, W)``, of a floating type or uint8; pixels are copied, never blended.
        y: Class indices ``(N,)``, or rows ``(N, num_classes)`` (float: soft, bool/int: multi-label).
        alpha: With ``plus=True``, ``lam ~ Beta(alpha, 8)``.
        attention: Attention that each place of an image attracts, ``(N, h, w)``.
        k: Number of cells that each image keeps, of 49.
        plus: Draw the number of cells: ``floor(49 * lam)``.
        lam: Keep ``round(49 * lam)`` cells; a number or ``(N,)``.
        index: Partners, a permutation of ``range(N)``; drawn if not given.
        pairing: "random" draws any partners, "other-class" those of another class, as far as the batch permits.
        per_sample: With ``plus=True``, draw the number of cells for every sample instead of once for the batch.
        objects: Where the object of each image is: masks ``(N, H, W)`` or boxes ``(N, 4)``. If given, the label follows
            the visible objects; see `label_by_objects`.
        objects_rule: "absolute" compares the visible areas, "relative" the visible shares of the objects.
        objects_weight: Weight of the objects in the label, in [0, 1]; the plain area has the rest.
        generator: Source of randomness; torch's default generator if not given.

    Returns:
        The mixed images, their target and the mask that was applied.
    """
    check_batch(x, y, uint8=True)
    check_alpha(alpha)
    _check_cells(k)
    check_shape("attention", attention, (len(x), "h", "w"))
    cells = _count_cells(x, alpha, k, plus, lam, per_sample, generator)
    index = draw_index(x, index=index, y=y, pairing=pairing, generator=generator)
    chosen = strongest_cells(attention.to(x.device), cells).to(at_least_float32(x).dtype)
    mask = F.interpolate(chosen.unsqueeze(1), size=x.shape[-2:], mode="nearest")
    mixed = Mixed(blend(x, index, mask), MixedTarget(y, y[index], mask.mean(dim=(1, 2, 3))), mask, index)
    return label_by_objects(mixed, objects, objects_rule, objects_weight)


def _count_cells(
    x: Tensor,
    alpha: float,
    k: int,
    plus: bool,
    lam: float | Tensor | None,
    per_sample: bool,
    generator: torch.Generator | None,
) -> Tensor:
    """Number of cells that come from x_i: one, or one per sample."""
    if lam is not None:
        return (draw_lam(x, alpha, lam=lam) * GRID**2).round()
    if not plus:
        return torch.tensor(float(k), device=x.device)
    # Beta(a, n) is the product of Beta(a, 1), ..., Beta(a + n - 1, 1), and Beta(a, 1) is a power of a uniform number.
    uniform = draw_uniform(x, (*((len(x),) if per_sample else ()), PLUS_BETA), generator)
    drawn = (uniform ** (1 / (alpha + torch.arange(PLUS_BETA, device=x.device)))).prod(dim=-1)
    return (drawn * GRID**2).floor()


def strongest_cells(attention: Tensor, cells: Tensor) -> Tensor:
    """Mark the most attended of 7 x 7 cells.

    Args:
        attention: Attention, ``(N, h, w)``.
        cells: Number of cells to mark; one for all images or ``(N,)``.

    Returns:
        The marked cells, a bool tensor ``(N, 7, 7)``.
    """
    attention = at_least_float32(attention).unsqueeze(1)
    if min(attention.shape[-2:]) < GRID:  # pooling would repeat values: many cells of equal rank
        attention = F.interpolate(attention, size=(GRID, GRID), mode="bilinear")
    order = F.adaptive_avg_pool2d(attention, GRID).flatten(1).argsort(dim=1, descending=True, stable=True)
    rank = order.argsort(dim=1)
    return (rank < cells.reshape(-1, 1)).unflatten(1, (GRID, GRID))


def _check_cells(k: int) -> None:
    check_whole("k", k, 1, GRID**2)


@dataclass
class Helper:
    """Computes the attention of images with a frozen helper network, or with the task's classifier."""

    tap: FeatureTap
    """Reads the feature map."""
    network: nn.Module | None = None
    """The helper network; None stands for the task's classifier."""

    def __call__(self, task: MixTask, x: Tensor, y: Tensor) -> dict[str, Tensor]:
        return {"attention": self.attention(task.classifier if self.network is None else self.network, x)}

    def attention(self, network: nn.Module, x: Tensor) -> Tensor:
        """Return the mean over the channels of the map's magnitude, (N, h, w)."""
        if network is self.network:
            network.to(x.device)
        weight = next(network.parameters(), x)
        with torch.no_grad(), eval_mode(network):
            return self.tap(network, x.to(weight.dtype)).abs().mean(dim=1)


class NamedHelper(Helper):
    """A helper network given by its name, with pretrained weights; loaded when it is first used.

    Images smaller than those it was trained on are enlarged for it.

    Args:
        name: Name of a network that `create_model` knows.
        layer: Stage, or name of the submodule, whose feature map is the attention; the last stage if None.
        weights: File or folder of weights; those that are published if None.
        mean: Mean that normalized the images; the helper's own if None.
        std: Standard deviation that normalized the images; the helper's own if None.
    """

    def __init__(
        self,
        name: str,
        layer: int | str | None,
        weights: str | None = None,
        mean: Sequence[float] | None = None,
        std: Sequence[float] | None = None,
    ) -> None:
        check_model_name(name)
        with torch.device("meta"):
            structure = create_model(name, num_classes=1000)
        super().__init__(find_tap(structure, _last_stage(structure, layer)))
        self.name, self.weights = name, weights
        self.scale = None if mean is None or std is None else (mean, std)
        if torch.get_default_device().type == "meta":
            self.find_weights()  # a rehearsal: an error if there are none, before any image is read

    def find_weights(self) -> Pretrained:
        """Find the weights, without reading them.

        Returns:
            Where they are. An `AutomixError` is raised if there are none.
        """
        try:
            return find_pretrained(self.name, self.weights)
        except AutomixError as error:
            reason = str(error).partition(";")[0]  # after it comes advice for the network that is trained
            raise AutomixError(f"helper {self.name}: {reason}; give helper_weights, a file or folder") from None

    def __call__(self, task: MixTask, x: Tensor, y: Tensor) -> dict[str, Tensor]:
        if self.network is None:
            self.images = self.find_weights()
            self.network = create_model(self.name, num_classes=1000)
            self.images.load_into(self.network)
            self.network = make_teacher(self.network)
        return {"attention": self.attention(self.network, self._prepare(x))}

    def _prepare(self, x: Tensor) -> Tensor:
        """Images as the helper was trained on them."""
        if self.scale is not None:
            x = normalize(denormalize(x, *self.scale), self.images.mean, self.images.std)
        if min(x.shape[-2:]) >= self.images.image_size:
            return x
        factor = self.images.image_size / min(x.shape[-2:])
        return F.interpolate(x, scale_factor=factor, mode="bilinear", antialias=True)


def _last_stage(network: nn.Module, layer: int | str | None) -> int | str:
    layer = len(stage_modules(network)) if layer is None else layer
    if layer == 0:
        raise AutomixError(
            f"{type(network).__name__} does not describe its stages; pass layer='...', the name of a submodule that "
            "gives maps (N, C, h, w)"
        )
    return layer


def find_helper(model: nn.Module, helper: nn.Module | None, layer: int | str | None) -> Helper:
    """Make the helper: a frozen copy of `helper`, or the task's classifier, which is built like `model`."""
    if not isinstance(helper, nn.Module | None):
        raise AutomixError(f"helper must be a network or the name of one, got {type(helper).__name__}")
    network = model if helper is None else helper
    return Helper(find_tap(network, _last_stage(network, layer)), None if helper is None else make_teacher(helper))


def create_task(
    model: nn.Module,
    *,
    helper: nn.Module | str | None = None,
    helper_weights: str | None = None,
    layer: int | str | None = None,
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
    **options: Any,
) -> MixTask:
    """Build the training task.

    Args:
        model: The network to train.
        helper: A trained classifier, or the name of a network, whose pretrained weights are then looked up. It is
            copied and frozen, and is neither trained nor saved nor deployed. Without one the classifier in training
            takes its place.
        helper_weights: File or folder of weights for a helper given by its name.
        layer: Stage, or name of the submodule, whose feature map is the attention; the last stage if not given.
        mean: Mean that normalized the images, for a helper given by its name; its own if not given.
        std: Standard deviation that normalized the images, for a helper given by its name; its own if not given.
        **options: Options of `attentivemix` and of `MixTask`.

    Returns:
        The task.
    """
    if "k" in options:
        _check_cells(options["k"])
    if isinstance(helper, str):
        look: Helper = NamedHelper(helper, layer, helper_weights, mean, std)
    elif helper_weights is not None:
        raise AutomixError("helper_weights has no effect without helper, the name of a network")
    else:
        look = find_helper(model, helper, layer)
    return MixTask(model, attentivemix, look=look, **options)


class AttentiveMix(MixTransform):
    """Paste the cells of each image that attract most attention onto its partner (Walawalkar et al., 2020).

    Call it as ``x, soft = mix(x, y)``.

    Args:
        helper: A trained classifier; it is copied and frozen.
        layer: Stage, or name of the submodule, whose feature map is the attention; the last stage if not given.
        **options: `alpha`, `k`, `plus`, `pairing`, `objects_rule` and `objects_weight` of `attentivemix`, and
            `num_classes`, `label_smoothing`, `per_sample`, `prob` and `generator`, as of every `MixTransform`.
    """

    function = attentivemix
    takes_video = False

    def __init__(self, *, helper: nn.Module, layer: int | str | None = None, **options: Any) -> None:
        super().__init__(**options)
        _check_cells(options.get("k", 1))
        self.look = find_helper(helper, helper, layer)

    def mix(self, x: Tensor, y: Tensor, keywords: dict[str, Any]) -> Mixed:
        check_batch(x, y)
        assert self.look.network is not None
        return super().mix(x, y, {**keywords, "attention": self.look.attention(self.look.network, x)})
