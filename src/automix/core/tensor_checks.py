"""Checks of tensors that callers pass: batches, labels, partners and lam."""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.compiler import is_compiling

from automix.core.errors import AutomixError


def check_shape(name: str, tensor: Tensor, *accepted: Sequence[int | str]) -> None:
    """Raise an error unless a tensor has one of the accepted shapes.

    Args:
        name: Name of the argument, for the message.
        tensor: The tensor to check.
        *accepted: Shapes; a string stands for any length, such as ``(6, "h", "w")``.
    """
    shape = tuple(tensor.shape)
    for lengths in accepted:
        if len(lengths) == len(shape) and all(
            isinstance(a, str) or a == b for a, b in zip(lengths, shape, strict=True)
        ):
            return
    shapes = " or ".join(f"({', '.join(map(str, lengths))}{',' if len(lengths) == 1 else ''})" for lengths in accepted)
    raise AutomixError(f"{name} must have shape {shapes}, got {shape}")


def check_batch(x: Tensor, y: Tensor, *, uint8: bool = False) -> None:
    """Raise an error unless `x` is a batch of images and `y` its labels.

    Args:
        x: Images, ``(N, C, H, W)`` of a floating type, N >= 1.
        y: Class indices ``(N,)`` of an integer type, or rows ``(N, num_classes)``, on the device of `x`.
        uint8: Accept images of uint8, too: for methods that copy pixels and never blend them.
    """
    if x.ndim != 4 or not (x.is_floating_point() or (uint8 and x.dtype == torch.uint8)) or len(x) == 0:
        types = "a floating type or uint8" if uint8 else "a floating type"
        raise AutomixError(f"x must be images (N, C, H, W) of {types}, got shape {tuple(x.shape)} and dtype {x.dtype}")
    if len(y.shape) not in (1, 2) or len(y) != len(x):
        raise AutomixError(
            f"y must be class indices ({len(x)},) or rows ({len(x)}, num_classes), got shape {tuple(y.shape)}"
        )
    if y.ndim == 1 and (y.is_floating_point() or y.is_complex() or y.dtype == torch.bool):
        raise AutomixError(f"y must be class indices of an integer type, got dtype {y.dtype}")
    if y.device != x.device:
        raise AutomixError(f"y must be on the device of x, {x.device}, got {y.device}")
    if y.ndim == 2 and y.shape[1] == 1 and y.is_floating_point():
        raise AutomixError(
            f"rows of y must have 2 columns or more, got shape {tuple(y.shape)}: numbers to predict (regression) are "
            "not supported, and one class alone has a loss of 0"
        )
    if y.ndim == 2 and y.device.type == "cpu" and not is_compiling():  # elsewhere it would cost a synchronization
        check_soft_rows(y)


def check_soft_rows(y: Tensor) -> None:
    """Raise an error if rows of a floating type do not sum to 1, as multi-label rows do not.

    Args:
        y: Class indices ``(N,)``, or rows ``(N, num_classes)``.
    """
    if y.ndim != 2 or not y.is_floating_point():
        return
    sums = y.float().sum(dim=1)
    if not torch.allclose(sums, torch.ones_like(sums), atol=1e-2):
        wrong = sums[(sums - 1).abs().argmax()].item()
        raise AutomixError(
            f"rows of y must sum to 1 (soft labels), got {wrong:g}; pass multi-label rows as bool or integers"
        )


def check_classes(y: Tensor, num_classes: int) -> None:
    """Raise an error unless labels fit the number of classes.

    Values of class indices are checked on the CPU only: on another device it would force a synchronization each step,
    and while `torch.compile` traces a function there are no values.

    Args:
        y: Class indices ``(N,)`` or rows ``(N, num_classes)``.
        num_classes: Number of classes.
    """
    if y.ndim == 2:
        if y.shape[1] != num_classes:
            raise AutomixError(f"label rows must have num_classes={num_classes} columns, got {y.shape[1]}")
    elif y.device.type == "cpu" and len(y) and not is_compiling():
        low, high = map(int, torch.aminmax(y))
        if low < 0 or high >= num_classes:
            raise AutomixError(
                f"class indices must be in [0, {num_classes - 1}] for num_classes={num_classes}, "
                f"got {low if low < 0 else high}"
            )


def check_index(index: Tensor, batch_size: int) -> None:
    """Raise an error unless `index` names a partner in the batch for each sample.

    Values are checked on the CPU only, see `check_classes`.

    Args:
        index: Positions ``(N,)`` of type int64.
        batch_size: N.
    """
    if index.shape != (batch_size,) or index.dtype != torch.int64:
        raise AutomixError(
            f"index must have shape ({batch_size},) and dtype int64, got {tuple(index.shape)} and {index.dtype}"
        )
    if index.device.type == "cpu" and not is_compiling():
        for value in (int(index.min()), int(index.max())):
            if not 0 <= value < batch_size:
                raise AutomixError(f"index must be in [0, {batch_size - 1}], got {value}")


def check_weights(weights: Tensor) -> None:
    """Raise an error unless the weights of the images in a mixture are in [0, 1] and sum to 1.

    Values are checked on the CPU only, see `check_classes`.

    Args:
        weights: Weights, ``(K,)`` or ``(N, K)``.
    """
    if weights.device.type != "cpu":
        return
    sums = weights.sum(dim=-1)
    wrong = (sums - 1).abs() > 1e-3
    if bool(wrong.any()):
        raise AutomixError(f"weights must sum to 1, got {sums[wrong].flatten()[0].item():g}")
    if (lowest := weights.min().item()) < 0:
        raise AutomixError(f"weights must be in [0, 1], got {lowest:g}")


def as_lam(lam: float | Tensor, batch_size: int) -> Tensor:
    """Check a given `lam` and return it as a tensor.

    Values are checked on the CPU only, see `check_classes`.

    Args:
        lam: A number in [0, 1], or one per sample, ``(N,)``.
        batch_size: N.

    Returns:
        `lam` as a tensor of shape ``()`` or ``(N,)``.
    """
    given = torch.as_tensor(lam)
    if given.ndim > 1 or (given.ndim == 1 and len(given) != batch_size):
        raise AutomixError(f"lam must have shape () or ({batch_size},), got {tuple(given.shape)}")
    if given.device.type == "cpu" and not is_compiling():
        for value in (given.min().item(), given.max().item()):
            if not 0 <= value <= 1:
                raise AutomixError(f"lam must be in [0, 1], got {value:g}")
    return given
