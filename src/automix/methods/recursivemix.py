"""RecursiveMix (Yang et al., 2022): the previous mixed batch, made smaller, is pasted into this one.

    x_t = x with the whole of x_(t-1) in a box of area a        a = max_area * Beta(alpha, alpha), lam := 1 - a
    y_t = lam y + (1 - lam) y_(t-1)                             labels are recursive, too

An image shows its partner, in it the partner's partner, and so on, ever smaller. The loss has a second term: what the
network now sees in the box shall agree with what it said of the same image one step ago, at full size:

    L = MCE(f(x_t), y_t) + omega (1 - lam) CE(head(map of x_t inside the box), softmax(f(x_(t-1))))

It needs a network that ends in global average pooling and one linear layer, the head; omega = 0 leaves the term out.
The map inside the box is its mean with the parts of cells that the box covers, in place of RoIAlign.

The first batch has no previous one: its images are pasted into each other.
"""

from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from automix.core.blend import at_least_float32, full_mask
from automix.core.draws import draw_index, draw_lam
from automix.core.errors import AutomixError
from automix.core.objects import boxes_to_masks
from automix.core.target import Mixed, MixedTarget, is_multi_label
from automix.core.tensor_checks import check_batch
from automix.core.transform import MixTransform
from automix.core.validation import check_range
from automix.methods.resizemix import paste_resized
from automix.networks.cam import CamReader, find_cam
from automix.networks.modes import eval_mode
from automix.tasks.mix_task import MixTask
from automix.tasks.step_output import StepOutput

__all__ = ["RecursiveMix", "RecursiveMixTask", "create_task", "recursivemix"]


def recursivemix(
    x: Tensor,
    y: Tensor,
    alpha: float = 1.0,
    *,
    max_area: float = 0.5,
    previous: Mixed | None = None,
    num_classes: int | None = None,
    lam: float | Tensor | None = None,
    index: Tensor | None = None,
    corner: Tensor | None = None,
    per_sample: bool = False,
    generator: torch.Generator | None = None,
) -> Mixed:
    """Paste the previous mixed batch, made smaller, into each image (Yang et al., 2022).

    Args:
        x: Images, ``(N, C, H, W)``.
        y: Class indices ``(N,)``, or rows ``(N, num_classes)`` (float: soft, bool/int: multi-label).
        alpha: The pasted area is `max_area` times a draw of Beta(alpha, alpha), which is uniform for 1.
        max_area: Largest share of an image that is covered, in (0, 1]. A given `lam` is not bound to it.
        previous: What this function returned for the previous batch, of images of the same shape. If not given, images
            of the same batch are pasted.
        num_classes: Number of classes; needed with `previous` for class indices.
        lam: Use this share of the first image instead of drawing one; a number or ``(N,)``.
        index: Which of the pasted images each image gets, a permutation of ``range(N)``; drawn if not given.
        corner: Pixel (row, column) of the pasted image's upper left corner, ``(2,)`` or ``(N, 2)``; drawn if not given.
        per_sample: Draw the area and the corner for every sample instead of once for the batch.
        generator: Source of randomness; torch's default generator if not given.

    Returns:
        The mixed images, their target (with `previous` as rows) and the mask that was applied.
    """
    return _mix(x, y, alpha, max_area, previous, num_classes, lam, index, corner, per_sample, generator)[0]


def _mix(
    x: Tensor,
    y: Tensor,
    alpha: float,
    max_area: float,
    previous: Mixed | None,
    num_classes: int | None,
    lam: float | Tensor | None,
    index: Tensor | None,
    corner: Tensor | None,
    per_sample: bool,
    generator: torch.Generator | None,
) -> tuple[Mixed, Tensor, Tensor]:
    """The mixed batch, the boxes that were pasted, (N, 4), and which image each sample got, (N,)."""
    check_batch(x, y)
    check_range("max_area", max_area, 0, 1, bounds="(]")
    if previous is not None and previous.x.shape != x.shape:
        raise AutomixError(f"previous must have images {tuple(x.shape)} as x, got {tuple(previous.x.shape)}")
    if lam is None:
        area = max_area * draw_lam(x, alpha, per_sample=per_sample, generator=generator)
    else:
        area = 1 - draw_lam(x, alpha, lam=lam)
    index = draw_index(x, index=index, generator=generator)
    images = x if previous is None else previous.x.to(x.dtype)
    pasted = paste_resized(x, images[index], area.sqrt(), corner, generator)
    if previous is None:
        target = MixedTarget(y, y[index], pasted.lam)
    else:
        rows = previous.target.soft(num_classes)
        own = MixedTarget.clean(y).soft(num_classes if y.ndim == 1 else None).to(rows)
        target = MixedTarget(own, rows[index], pasted.lam, multi_label=is_multi_label(y))
    corners = torch.cat([pasted.corner.flip(-1), (pasted.corner + pasted.size).flip(-1)], dim=-1)
    return Mixed(pasted.images, target, full_mask(pasted.mask, x)), corners.expand(len(x), 4), index


@dataclass(frozen=True)
class _Step:
    """What the next step needs of this one: images, label rows and logits, (N, ...)."""

    x: Tensor
    rows: Tensor
    logits: Tensor
    multi_label: bool


class _History(nn.Module):
    """The previous step, as a part of the task's state. It is no buffer: each process keeps its own."""

    def __init__(self) -> None:
        super().__init__()
        self.step: _Step | None = None

    def get_extra_state(self) -> Tensor:
        """Return the step as one flat tensor: the sizes in front, then images, rows and logits."""
        step = self.step
        if step is None:
            return torch.zeros(0)
        dtype = at_least_float32(step.x).dtype
        sizes = torch.tensor([step.multi_label, step.rows.shape[1], *step.x.shape])
        return torch.cat([part.cpu().to(dtype).flatten() for part in (sizes, step.x, step.rows, step.logits)])

    def set_extra_state(self, state: Tensor) -> None:
        """Restore the step.

        Args:
            state: What `get_extra_state` returned.
        """
        self.step = None
        if len(state):
            multi_label, classes, *shape = (int(size) for size in state[:6])
            count = [shape[0] * shape[1] * shape[2] * shape[3], shape[0] * classes, shape[0] * classes]
            x, rows, logits = state[6:].split(count)
            self.step = _Step(x.view(shape), rows.view(-1, classes), logits.view(-1, classes), bool(multi_label))


def create_task(model: nn.Module, *, omega: float = 0.1, **options: Any) -> "RecursiveMixTask":
    """Build the training task, which keeps the previous batch.

    Args:
        model: The network to train.
        omega: Weight of the second term, >= 0.
        **options: Options of `recursivemix` and of `MixTask`.

    Returns:
        The task.
    """
    return RecursiveMixTask(model, omega=omega, **options)


class RecursiveMixTask(MixTask):
    """Train on images into which the previous mixed batch is pasted, and keep predictions of the same image alike.

    The previous batch is a part of the state dict. `mix` pastes images of the same batch, so that partners are known. A
    batch of another shape than the previous one starts anew.

    Args:
        model: The network to train.
        omega: Weight of the second term, >= 0; the authors use 0.1 on CIFAR and 0.5 on ImageNet.
        **options: Options of `recursivemix` and of `MixTask`.
    """

    def __init__(self, model: nn.Module, *, omega: float = 0.1, **options: Any) -> None:
        check_range("omega", omega, 0)
        for name in ("previous", "num_classes"):
            if name in options:
                raise AutomixError(f"{name} must not be given: the task knows it")
        super().__init__(model, recursivemix, **options)
        self.omega = omega
        self.history = _History()
        self._reader: CamReader | None = None

    def training_step(self, x: Tensor, y: Tensor, generator: torch.Generator) -> StepOutput:
        last = self._last_step(x)
        previous = None
        if last is not None:
            target = MixedTarget(last.rows, last.rows, torch.ones((), device=x.device), last.multi_label)
            previous = Mixed(last.x, target, last.x[:, :1])
        options = {"alpha": 1.0, "max_area": 0.5, "corner": None, "per_sample": False, **self.options}
        classes = None if last is None else last.rows.shape[1]
        mixed, boxes, index = _mix(
            x, y, previous=previous, num_classes=classes, lam=None, index=None, generator=generator, **options
        )
        if last is None or self.omega == 0:
            out = self.student_step(x, y, self.run_student(mixed.x), mixed.target)
        else:
            out = self._consistent_step(x, y, mixed, boxes, last.logits[index])
        logits = at_least_float32(out.logits.detach())
        rows = mixed.target.soft(logits.shape[1])
        self.history.step = _Step(mixed.x.detach(), rows, logits, mixed.target.multi_label or is_multi_label(y))
        return out

    def _last_step(self, x: Tensor) -> _Step | None:
        """The previous step, if its images have the shape of these."""
        step = self.history.step
        if step is None or step.x.shape != x.shape:
            return None
        dtype = at_least_float32(x).dtype
        return replace(step, x=step.x.to(x), rows=step.rows.to(x.device, dtype), logits=step.logits.to(x.device, dtype))

    def _consistent_step(self, x: Tensor, y: Tensor, mixed: Mixed, boxes: Tensor, before: Tensor) -> StepOutput:
        """Both terms from one pass, and with `one_hot_loss` the clean one."""
        reader = self._find_reader(mixed.x)
        maps, logits = reader.run(self.student, mixed.x)
        inside = boxes_to_masks(
            boxes / boxes.new_tensor(_cells(mixed.x, maps)).to(maps), (maps.shape[-2], maps.shape[-1])
        )
        area = inside.sum(dim=(1, 2, 3)).clamp(min=torch.finfo(inside.dtype).tiny)
        pooled = ((maps * inside).sum(dim=(2, 3)) / area.unsqueeze(1)).to(maps.dtype)
        now = at_least_float32(reader.classify(self.student, pooled))
        agreement = F.cross_entropy(now, before.softmax(dim=1), reduction="none")
        losses = {
            "loss_mixed": self.loss(logits, mixed.target),
            "loss_consistency": self.omega * ((1 - mixed.target.lam) * agreement).mean(),
        }
        if self.one_hot_loss:
            losses |= self.clean_term(x, y)
        return self.output(losses, logits, mixed.target)

    def _find_reader(self, x: Tensor) -> CamReader:
        """Where the network has its last map and its head, found in a forward pass of the first such step."""
        if self._reader is None:
            with torch.no_grad(), eval_mode(self.student):
                self._reader = find_cam(self.student, x[:2]).reader
        return self._reader


def _cells(x: Tensor, maps: Tensor) -> tuple[float, ...]:
    """Width and height of a cell of the map in pixels, for the corners x0, y0, x1, y1."""
    return (x.shape[-1] / maps.shape[-1], x.shape[-2] / maps.shape[-2]) * 2


class RecursiveMix(MixTransform):
    """Paste the previous mixed batch, made smaller, into each image (Yang et al., 2022).

    Call it as ``x, soft = mix(x, y)``. It keeps the batch that it returned for the next call; one of another shape
    starts anew. The second term of the loss is the task's.

    Args:
        alpha: The pasted area is `max_area` times a draw of Beta(alpha, alpha); 1 if not given.
        num_classes: Number of classes; not needed where labels are rows already.
        label_smoothing: Share of each label that is spread over all classes, in [0, 1).
        per_sample: Draw the area and the corner for every sample instead of once for the batch.
        prob: Probability that a batch is mixed at all, in [0, 1]; 1 if not given.
        generator: Source of randomness; torch's default generator if not given.
        max_area: Largest share of an image that is covered, in (0, 1].
        corner: Pixel (row, column) of the pasted image's upper left corner, ``(2,)`` or ``(N, 2)``; drawn if not given.
    """

    function = recursivemix

    def __init__(
        self,
        *,
        alpha: float | None = None,
        num_classes: int | None = None,
        label_smoothing: float = 0.0,
        per_sample: bool = False,
        prob: float = 1.0,
        generator: torch.Generator | None = None,
        max_area: float = 0.5,
        corner: Tensor | None = None,
    ) -> None:
        super().__init__(
            alpha=alpha,
            num_classes=num_classes,
            label_smoothing=label_smoothing,
            per_sample=per_sample,
            prob=prob,
            generator=generator,
            max_area=max_area,
            corner=corner,
        )
        self.previous: Mixed | None = None

    def mix(self, x: Tensor, y: Tensor, keywords: dict[str, Any]) -> Mixed:
        """Call the function with the previous batch.

        Args:
            x: Images, ``(N, C, H, W)``.
            y: Their labels.
            keywords: Keywords of this call, beside the options.

        Returns:
            The mixed batch.
        """
        if self.previous is not None and self.previous.x.shape == x.shape:
            keywords = {**keywords, "previous": self.previous, "num_classes": self.num_classes}
        self.previous = super().mix(x, y, keywords)
        return self.previous
