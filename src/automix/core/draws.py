"""Random draws: all of them are here, and everything after is a function of ``(x, lam, index, ...)``."""

import hashlib
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from automix.core.blend import at_least_float32
from automix.core.validation import as_lam, check_alpha, check_index


def step_seed(seed: int, step: int, part: int = 0, stream: str = "mixing") -> int:
    """A seed that depends on nothing but its arguments, so that a resumed run draws the same numbers.

    `part` is the piece of the step's batch, counted over all processes: piece p of process r out of n is p * n + r.
    Two processes, or one that accumulates two pieces, thus draw alike. `stream` keeps apart draws for other purposes.
    """
    digest = hashlib.blake2b(repr((stream, seed, step, part)).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1


def step_generator(seed: int, step: int, part: int = 0, stream: str = "mixing") -> torch.Generator:
    """A fresh CPU generator seeded by `step_seed`."""
    return torch.Generator().manual_seed(step_seed(seed, step, part, stream))


def draw_lam(
    x: Tensor,
    alpha: float,
    *,
    lam: float | Tensor | None = None,
    per_sample: bool = False,
    generator: torch.Generator | None = None,
) -> Tensor:
    """lam ~ Beta(alpha, alpha), one for the batch or one per sample; a given `lam` is checked and used as it is."""
    check_alpha(alpha)
    if lam is not None:
        return as_lam(lam, len(x)).to(
            device=x.device, dtype=torch.float64 if x.dtype == torch.float64 else torch.float32
        )
    # A pair of Dirichlet(alpha, alpha) is (lam, 1 - lam); torch.distributions.Beta cannot take a generator.
    return draw_dirichlet(x, (len(x), 2) if per_sample else (2,), alpha, generator)[..., 0]


def draw_dirichlet(x: Tensor, shape: tuple[int, ...], alpha: float, generator: torch.Generator | None = None) -> Tensor:
    """Weights with sum 1 over the last axis, on the device of `x`."""
    check_alpha(alpha)
    concentration = torch.full(shape, alpha, dtype=at_least_float32(x).dtype, device=_device(generator))
    return torch._sample_dirichlet(concentration, generator).to(x.device)


def draw_index(x: Tensor, *, index: Tensor | None = None, generator: torch.Generator | None = None) -> Tensor:
    """A random permutation of the batch; a given `index` is checked and used as it is."""
    if index is None:
        return torch.randperm(len(x), generator=generator, device=_device(generator)).to(x.device)
    check_index(index, len(x))
    return index.to(x.device)


def draw_cycle(x: Tensor, *, generator: torch.Generator | None = None) -> Tensor:
    """Draw partners of which no image is its own: a random cycle through the batch.

    Args:
        x: The batch; its length and device count.
        generator: Source of randomness; torch's default generator if not given.

    Returns:
        A permutation of ``range(N)`` without fixed points (for N = 1 there is none).
    """
    order = torch.randperm(len(x), generator=generator, device=_device(generator))
    index = torch.empty_like(order)
    index[order] = order.roll(1)
    return index.to(x.device)


def draw_uniform(x: Tensor, shape: tuple[int, ...], generator: torch.Generator | None = None) -> Tensor:
    """Uniform numbers in [0, 1) on the device of `x`."""
    return torch.rand(shape, generator=generator, device=_device(generator)).to(x.device)


def _device(generator: torch.Generator | None) -> torch.device:
    return generator.device if generator is not None else torch.device("cpu")


def draw_one(choices: Sequence[Any], generator: torch.Generator | None) -> Any:
    """One of `choices`, each as likely; drawn on the CPU, so that a branch on it makes nobody wait."""
    return choices[int(draw_uniform(torch.empty(0), (), generator) * len(choices))]
