"""How many holders are enough: chances that the devices' draws are unlucky, given how many devices collude or drop out.

Colluding devices are counted over the whole cohort. Whoever chose the cohort did so before any device drew its holders,
so these chances hold however it was chosen.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from math import exp, inf

import numpy as np

from hdpmf.errors import SecureSumError

TWO_THIRDS = Fraction(2, 3)
NEGLIGIBLE = 2.0**-40
"""The chance that is allowed to a lying recommender."""


@dataclass(frozen=True)
class Risks:
    """Upper bounds, over all devices of a cohort, for one drawing of holders.

    Attributes:
        unmask: Some honest device has so many colluding holders that a lying recommender could unmask its vector.
        split: Some honest devices, no more than half of them, drew so often each other and colluding devices that a
            lying recommender could tell them another survivor list than the rest, or get a sum over them alone.
        abort: Some device loses so many holders that the sum is broken off.
    """

    unmask: float
    split: float
    abort: float


def smallest_threshold(degree: int, fraction: Fraction = TWO_THIRDS) -> int:
    """The smallest whole number above that fraction of the holders."""
    return int(fraction * degree) + 1


@lru_cache(maxsize=256)
def risks(n_devices: int, neighbours: int, threshold: int, *, colluding: int, dropping: int) -> Risks:
    """The chances that something goes wrong.

    ``colluding`` devices work for the recommender; ``dropping`` ones drop out at random.
    """
    degree = min(neighbours, n_devices - 1)
    others = n_devices - 1
    if not 0 <= colluding <= others or not 0 <= dropping <= others or not degree < 2 * threshold <= 2 * degree:
        raise SecureSumError("colluding and dropping must be among the other devices, and threshold above one half")
    marked = np.array([colluding, dropping])
    unmask, abort = (
        n_devices * exp(_log_at_least(count, others, marked[i : i + 1], degree)[0])
        for i, count in enumerate((2 * threshold - degree, degree - threshold + 1))
    )
    # For every part of s honest devices, at most half of them: each has its threshold among the others of the part and
    # the colluding ones. Draws are independent, so the chances multiply; there are (h over s) such parts.
    honest = n_devices - colluding
    sizes = np.arange(1, honest // 2 + 1)
    each = _log_at_least(threshold, others, np.minimum(sizes - 1 + colluding, others), degree)
    with np.errstate(over="ignore"):
        split = float(np.exp(np.minimum(_log_comb(honest, sizes, honest) + sizes * each, 1.0)).sum())
    return Risks(min(unmask, 1.0), min(split, 1.0), min(abort, 1.0))


def _log_at_least(count: int, population: int, marked: np.ndarray, drawn: int) -> np.ndarray:
    """Logarithm of the chance that at least ``count`` of ``drawn`` are marked, drawing without putting back."""
    hits = np.arange(count, drawn + 1)[:, None]
    terms = (
        _log_comb(marked, hits, population)
        + _log_comb(population - marked, drawn - hits, population)
        - _log_comb(population, drawn, population)
    )
    top = terms.max(axis=0)
    with np.errstate(invalid="ignore", divide="ignore"):
        total = top + np.log(np.exp(terms - top).sum(axis=0))
    return np.where(np.isfinite(top), np.minimum(total, 0.0), -inf)


def _log_comb(n: np.ndarray | int, k: np.ndarray | int, most: int) -> np.ndarray:
    """Logarithm of (n over k), for n up to ``most``; minus infinity where there is no way."""
    n, k = np.asarray(n), np.asarray(k)
    possible = (k >= 0) & (k <= n)
    factorial = _log_factorials(most)
    within = np.where(possible, k, 0)
    return np.where(possible, factorial[n] - factorial[within] - factorial[n - within], -inf)


@lru_cache(maxsize=8)
def _log_factorials(most: int) -> np.ndarray:
    return np.concatenate(([0.0], np.cumsum(np.log(np.arange(1, most + 1)))))
