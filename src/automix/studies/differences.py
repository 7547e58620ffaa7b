"""Is one method better than another? Paired differences over seeds, with a 95 % confidence interval.

Trials of the same seed begin with the same weights and see the same images in the same order, so that their difference
varies less than the trials do. With differences d_1 ... d_n of mean d and standard deviation s (n - 1),

    d +- t * s / sqrt(n),     t: Student's, 97.5 %, n - 1 degrees of freedom

covers the true difference in 95 % of such experiments, if differences are normal. Where it covers 0, the difference is
within the noise: nothing has been shown, neither that there is one nor that there is none.
"""

import math
import statistics
from collections.abc import Mapping
from dataclasses import dataclass

# Student's t, 97.5 %, for 1 to 30 degrees of freedom
T_975 = (
    *(12.7062, 4.3027, 3.1824, 2.7764, 2.5706, 2.4469, 2.3646, 2.3060, 2.2622, 2.2281),
    *(2.2010, 2.1788, 2.1604, 2.1448, 2.1314, 2.1199, 2.1098, 2.1009, 2.0930, 2.0860),
    *(2.0796, 2.0739, 2.0687, 2.0639, 2.0595, 2.0555, 2.0518, 2.0484, 2.0452, 2.0423),
)
NORMAL_975 = 1.959964


@dataclass(frozen=True)
class Difference:
    """`mean` over `count` pairs; the interval is mean +- `half`, which one pair alone has not."""

    mean: float
    half: float | None
    count: int

    @property
    def within_noise(self) -> bool:
        return self.half is None or abs(self.mean) <= self.half

    def __str__(self) -> str:
        if self.half is None:
            return f"{self.mean:+.2f} (one pair: no interval)"
        return f"{self.mean:+.2f} +- {self.half:.2f}" + (", within noise" if self.within_noise else "")


def paired_difference(ours: Mapping[int, float], theirs: Mapping[int, float]) -> Difference | None:
    """Ours minus theirs, both by seed; only seeds that both have count. None where there is no such seed."""
    pairs = [ours[seed] - theirs[seed] for seed in sorted(ours.keys() & theirs.keys())]
    if not pairs:
        return None
    if len(pairs) == 1:
        return Difference(pairs[0], None, 1)
    error = statistics.stdev(pairs) / math.sqrt(len(pairs))
    return Difference(statistics.fmean(pairs), student_t_975(len(pairs) - 1) * error, len(pairs))


def student_t_975(freedom: int) -> float:
    """The 97.5 % quantile of Student's t: from the table, beyond it by its expansion around the normal one."""
    if freedom < 1:
        raise ValueError(f"freedom={freedom}: accepted is a whole number >= 1")
    if freedom <= len(T_975):
        return T_975[freedom - 1]
    z = NORMAL_975
    terms = (
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
    )
    return z + sum(term / freedom**power for power, term in enumerate(terms, start=1))
