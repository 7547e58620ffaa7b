"""Random draws. All of them are here; everything else is a function of ``(x, lam, index, ...)``."""

import hashlib
from collections.abc import Sequence
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from automix.core.errors import AutomixError
from automix.core.tensor_checks import as_lam, check_index
from automix.core.validation import check_alpha, check_choice, check_range

Pairing = Literal["random", "other-class"]
"""Which images may be partners: any two, or two of different classes."""

_SWAPS = 8  # rounds of swaps, after which partners hardly depend on where they started
_CPU = torch.device("cpu")


def step_seed(seed: int, step: int, part: int = 0, stream: str = "mixing") -> int:
    """Compute a seed that depends on its arguments alone, so that a resumed run draws the same numbers.

    Args:
        seed: Seed of the run.
        step: Number of the optimizer step.
        part: Piece of the step's batch, counted over all processes: piece p of process r out of n is p * n + r. Two
            processes, or one that accumulates two pieces, thus draw the same numbers.
        stream: Name of the purpose; keeps apart the draws for different purposes.

    Returns:
        The seed, in [0, 2^63).
    """
    digest = hashlib.blake2b(repr((stream, seed, step, part)).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1


def step_generator(seed: int, step: int, part: int = 0, stream: str = "mixing") -> torch.Generator:
    """Make a CPU generator seeded by `step_seed`.

    Args:
        seed: Seed of the run.
        step: Number of the optimizer step.
        part: Piece of the step's batch, counted over all processes: piece p of process r out of n is p * n + r. Two
            processes, or one that accumulates two pieces, thus draw the same numbers.
        stream: Name of the purpose; keeps apart the draws for different purposes.

    Returns:
        A new generator.
    """
    return torch.Generator().manual_seed(step_seed(seed, step, part, stream))


def draw_lam(
    x: Tensor,
    alpha: float,
    *,
    lam: float | Tensor | None = None,
    per_sample: bool = False,
    generator: torch.Generator | None = None,
) -> Tensor:
    """Draw ``lam ~ Beta(alpha, alpha)``, or check the given one.

    Args:
        x: Images; the draw is returned on their device.
        alpha: Parameter of the Beta distribution, > 0.
        lam: Use this instead of drawing; a number or ``(N,)``.
        per_sample: Draw `lam` for every sample instead of once for the batch.
        generator: Source of randomness; torch's default generator if not given.

    Returns:
        `lam`, shape ``()`` or ``(N,)``.
    """
    if lam is not None:
        check_alpha(alpha)
        return as_lam(lam, len(x)).to(
            device=x.device, dtype=torch.float64 if x.dtype == torch.float64 else torch.float32
        )
    # A pair of Dirichlet(alpha, alpha) is (lam, 1 - lam); torch.distributions.Beta cannot take a generator.
    return draw_dirichlet(x, (len(x), 2) if per_sample else (2,), alpha, generator)[..., 0]


def mix_with_probability(lam: Tensor, prob: float, generator: torch.Generator | None = None) -> Tensor:
    """Leave some batches, or samples, unmixed.

    Nothing is drawn if `prob` is 1.

    Args:
        lam: Drawn shares of the first image, shape ``()`` or ``(N,)``.
        prob: Probability that a share is kept, in [0, 1]; else it becomes 1.
        generator: Source of randomness; torch's default generator if not given.

    Returns:
        The shares.
    """
    check_range("prob", prob, 0, 1)
    if prob == 1:
        return lam
    return torch.where(draw_uniform(lam, tuple(lam.shape), generator) < prob, lam, 1.0)


def draw_decision(prob: float, generator: torch.Generator | None = None) -> bool:
    """Draw whether something is done to a batch, on the CPU.

    Nothing is drawn if `prob` is 1.

    Args:
        prob: Probability that it is done, in [0, 1].
        generator: Source of randomness; torch's default generator if not given.

    Returns:
        Whether it is done.
    """
    return prob == 1 or bool(draw_uniform(torch.empty(0), (), generator) < prob)


def draw_dirichlet(x: Tensor, shape: tuple[int, ...], alpha: float, generator: torch.Generator | None = None) -> Tensor:
    """Draw weights ``~ Dirichlet(alpha, ..., alpha)``.

    Args:
        x: Images; the draw is returned on their device.
        shape: Shape of the weights.
        alpha: Parameter of the distribution, > 0.
        generator: Source of randomness; torch's default generator if not given.

    Returns:
        Weights with sum 1 over the last axis.
    """
    check_alpha(alpha)
    dtype = torch.float64 if x.dtype == torch.float64 else torch.float32
    concentration = torch.full(shape, alpha, dtype=dtype, device=getattr(generator, "device", _CPU))
    return _beside(x, torch._sample_dirichlet(concentration, generator))


def draw_weights(
    x: Tensor,
    alpha: float,
    images: int,
    *,
    lam: float | Tensor | None = None,
    per_sample: bool = False,
    generator: torch.Generator | None = None,
) -> Tensor:
    """Draw the weights of the images in mixtures of K images, ``~ Dirichlet(alpha, ..., alpha)``.

    For K = 2 these are `draw_lam` and the rest.

    Args:
        x: Images; the draw is returned on their device.
        alpha: Parameter of the Dirichlet distribution, > 0.
        images: K, >= 2.
        lam: Use this weight of the first image, a number or ``(N,)``; the others share the rest as drawn.
        per_sample: Draw weights for every sample instead of once for the batch.
        generator: Source of randomness; torch's default generator if not given.

    Returns:
        Weights with sum 1, ``(K,)`` or ``(N, K)``.
    """
    if images == 2:
        first = draw_lam(x, alpha, lam=lam, per_sample=per_sample, generator=generator)
        return torch.stack([first, 1 - first], dim=-1)
    weights = draw_dirichlet(x, (len(x), images) if per_sample else (images,), alpha, generator)
    if lam is None:
        return weights
    first = draw_lam(x, alpha, lam=lam).unsqueeze(-1)
    others = weights[..., 1:] / weights[..., 1:].sum(dim=-1, keepdim=True)
    rest = (1 - first) * others
    return torch.cat([first.expand(*rest.shape[:-1], 1), rest], dim=-1)


def draw_index(
    x: Tensor,
    *,
    index: Tensor | None = None,
    y: Tensor | None = None,
    pairing: Pairing = "random",
    generator: torch.Generator | None = None,
) -> Tensor:
    """Draw a random permutation of the batch, or check the given one.

    Args:
        x: Images; the draw is returned on their device.
        index: Use this instead of drawing.
        y: Labels of the images, for ``pairing="other-class"``.
        pairing: "random" draws any partners, "other-class" those of `draw_other_class`.
        generator: Source of randomness; torch's default generator if not given.

    Returns:
        Partners, ``(N,)``.
    """
    if pairing != "random":
        check_choice("pairing", pairing, get_args(Pairing))
    if index is not None:
        check_index(index, len(x))
        return index.to(x.device)
    if pairing == "other-class" and y is not None:
        return draw_other_class(y, generator=generator)
    return _beside(x, torch.randperm(len(x), generator=generator, device=getattr(generator, "device", _CPU)))


def draw_other_class(y: Tensor, *, generator: torch.Generator | None = None) -> Tensor:
    """Draw partners of another class, as far as the batch permits.

    No image has a partner of its own class where no class has more than half of the batch. A larger class keeps as few
    pairs to itself as possible.

    Args:
        y: Class indices ``(N,)``, or soft rows ``(N, num_classes)``, of which the largest entry is the class.
        generator: Source of randomness; torch's default generator if not given.

    Returns:
        A permutation of ``range(N)``, each as likely up to small deviations.
    """
    if y.ndim == 2 and not y.is_floating_point():
        raise AutomixError("pairing must be 'random' for multi-label rows, which have no single class")
    labels = y.long() if y.ndim == 1 else y.argmax(dim=1)
    uniform = draw_uniform(y, (1 + 2 * _SWAPS, len(y)), generator)
    shuffled, *rounds = uniform[: 1 + _SWAPS].argsort(dim=1)
    order = shuffled[labels[shuffled].argsort()]
    sorted_labels = labels[order]
    ends, starts = (torch.searchsorted(sorted_labels, sorted_labels, right=right) for right in (True, False))
    # In this order classes are side by side. A step as long as the largest class leads out of every class, and back
    # into the largest one only where that has more than half of the batch.
    place = torch.arange(len(y), device=y.device)
    index = torch.empty_like(order)
    index[order] = order[(place + (ends - starts).max()) % len(y)]
    # All images of a class have neighboring partners by now. Swaps of partners, each made in every other case and only
    # if no more images have partners of their own class, make every such permutation as likely.
    half = len(y) // 2
    for drawn, coins in zip(rounds, uniform[1 + _SWAPS :, :half], strict=True):
        a, b = drawn[:half], drawn[half : 2 * half]
        of_a, of_b = index[a], index[b]
        before = (labels[a] == labels[of_a]).int() + (labels[b] == labels[of_b])
        after = (labels[a] == labels[of_b]).int() + (labels[b] == labels[of_a])
        swap = (coins < 0.5) & (after <= before)
        index[a], index[b] = torch.where(swap, of_b, of_a), torch.where(swap, of_a, of_b)
    return index


def draw_cycle(x: Tensor, *, generator: torch.Generator | None = None) -> Tensor:
    """Draw partners of which no image is its own: a random cycle through the batch.

    Args:
        x: The batch; its length and device count.
        generator: Source of randomness; torch's default generator if not given.

    Returns:
        A permutation of ``range(N)`` without fixed points (for N = 1 there is none).
    """
    order = torch.randperm(len(x), generator=generator, device=getattr(generator, "device", _CPU))
    index = torch.empty_like(order)
    index[order] = order.roll(1)
    return _beside(x, index)


def draw_uniform(x: Tensor, shape: tuple[int, ...], generator: torch.Generator | None = None) -> Tensor:
    """Draw uniform numbers.

    Args:
        x: Images; the draw is returned on their device.
        shape: Shape of the numbers.
        generator: Source of randomness; torch's default generator if not given.

    Returns:
        Numbers in [0, 1).
    """
    return _beside(x, torch.rand(shape, generator=generator, device=getattr(generator, "device", _CPU)))


def _beside(x: Tensor, draw: Tensor) -> Tensor:
    """A draw on the device of `x`, without a wait for it: CUDA has copied pageable memory when the call returns."""
    return draw.to(x.device, non_blocking=x.is_cuda)


def draw_one(choices: Sequence[Any], generator: torch.Generator | None) -> Any:
    """Draw one of several choices, each as likely.

    It is drawn on the CPU, because a branch on a number of another device would force a synchronization.

    Args:
        choices: The choices.
        generator: Source of randomness; torch's default generator if not given.

    Returns:
        One of them.
    """
    return choices[int(draw_uniform(torch.empty(0), (), generator) * len(choices))]
