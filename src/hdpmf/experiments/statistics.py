"""Means, deviations, and the paper's t-test."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Summary:
    """Values of one metric over seeds.

    Attributes:
        values: In the order of the seeds.
        mean: Their mean; infinite where a run diverged.
        std: Their standard deviation with n - 1 in the denominator; NaN for a single value or an infinite mean.
    """

    values: tuple[float, ...]
    mean: float
    std: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Summary:
        """Summarise."""
        n = len(values)
        if n == 0:
            return cls((), math.nan, math.nan)
        mean = math.fsum(values) / n if all(map(math.isfinite, values)) else math.inf
        if n == 1 or not math.isfinite(mean):
            return cls(tuple(values), mean, math.nan)
        return cls(tuple(values), mean, math.sqrt(math.fsum((v - mean) ** 2 for v in values) / (n - 1)))


@dataclass(frozen=True, slots=True)
class PairedTest:
    """Student's t-test of paired samples, two-sided.

    Attributes:
        difference: Mean of first minus second; negative where the first has the smaller error.
        p: Two-sided p value; NaN where it is not defined.
        stars: The paper's: 3 for 99 %, 2 for 95 %, 1 for 90 % confidence that the first has the smaller error, 0
            otherwise.
    """

    difference: float
    p: float
    stars: int


def paired_test(first: Sequence[float], second: Sequence[float]) -> PairedTest:
    """Compare errors of two methods over the same seeds (the paper: HDPMF against PDPMF).

    The paper says "t-test for means of paired two sample" and not whether one- or two-sided; this is two-sided, the
    stricter of the two.
    """
    differences = [a - b for a, b in zip(first, second, strict=True)]
    if len(differences) < 2 or not all(map(math.isfinite, differences)):
        return PairedTest(math.nan, math.nan, 0)
    mean = math.fsum(differences) / len(differences)
    if len(set(differences)) == 1:
        return PairedTest(mean, math.nan, 0)  # no spread, so no test
    from scipy.stats import ttest_rel

    p = float(ttest_rel(first, second).pvalue)
    stars = next((stars for stars, level in ((3, 0.01), (2, 0.05), (1, 0.10)) if p <= level), 0)
    return PairedTest(mean, p, stars if mean < 0 else 0)
