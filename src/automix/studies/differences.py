"""Paired differences between methods over seeds, with a 95 % confidence interval.

Trials of the same seed start from the same weights and see the same images in the same order, so their difference
varies less than the trials do. With differences d_1 ... d_n of mean d and standard deviation s (n - 1),

    d +- t * s / sqrt(n),     t: Student's, 97.5 %, n - 1 degrees of freedom

covers the true difference in 95 % of such experiments, if differences are normal. If it covers 0, the difference is
within noise: the experiment shows neither that there is a difference nor that there is none.
"""

import math
import statistics
from collections.abc import Mapping
from dataclasses import dataclass

from automix.core.validation import check_whole

# Student's t, 97.5 %, for 1 to 30 degrees of freedom
T_975 = (
    *(12.7062, 4.3027, 3.1824, 2.7764, 2.5706, 2.4469, 2.3646, 2.3060, 2.2622, 2.2281),
    *(2.2010, 2.1788, 2.1604, 2.1448, 2.1314, 2.1199, 2.1098, 2.1009, 2.0930, 2.0860),
    *(2.0796, 2.0739, 2.0687, 2.0639, 2.0595, 2.0555, 2.0518, 2.0484, 2.0452, 2.0423),
)
NORMAL_975 = 1.959964


@dataclass(frozen=True)
class Difference:
    """A mean difference and its 95 % confidence interval, mean +- half_width.

    Attributes:
        mean: Mean over the pairs.
        half_width: Half the width of the interval; None for a single pair.
        count: Number of pairs.
    """

    mean: float
    half_width: float | None
    count: int

    @property
    def within_noise(self) -> bool:
        """Whether the interval covers 0, or there is none."""
        return self.half_width is None or abs(self.mean) <= self.half_width

    def __str__(self) -> str:
        if self.half_width is None:
            return f"{self.mean:+.2f} (one pair: no interval)"
        return f"{self.mean:+.2f} +- {self.half_width:.2f}" + (", within noise" if self.within_noise else "")


def paired_difference(ours: Mapping[int, float], theirs: Mapping[int, float]) -> Difference | None:
    """Compare two methods by the seeds that both have.

    Args:
        ours: Numbers of the first method by seed.
        theirs: Numbers of the second method by seed.

    Returns:
        Ours minus theirs, or None if they have no seed in common.
    """
    pairs = [ours[seed] - theirs[seed] for seed in sorted(ours.keys() & theirs.keys())]
    if not pairs:
        return None
    if len(pairs) == 1:
        return Difference(pairs[0], None, 1)
    error = statistics.stdev(pairs) / math.sqrt(len(pairs))
    return Difference(statistics.fmean(pairs), student_t_975(len(pairs) - 1) * error, len(pairs))


def student_t_975(df: int) -> float:
    """Compute the 97.5 % quantile of Student's t, from a table or, above 30, by an expansion around the normal one.

    Args:
        df: Degrees of freedom, >= 1.

    Returns:
        The quantile.
    """
    check_whole("df", df, 1)
    if df <= len(T_975):
        return T_975[df - 1]
    z = NORMAL_975
    terms = (
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
    )
    return z + sum(term / df**power for power, term in enumerate(terms, start=1))
