"""Check that the recommender's half of the noise is plausible.

The recommender draws h, and a tiny h yields messages with hardly any noise. A device cannot see how
h was drawn, but it refuses what the stated law, independent Exp(1) draws of at least ``H_FLOOR``,
does not produce: smaller numbers, and rows that are small too often, in one round or over the
training. The measure of a row is the sum of ``-log(min(h, 1))`` over its coordinates;
Chernoff's inequality bounds how large it plausibly is.

An h that is small but plausible remains possible: in the paper's scheme the recommender may draw
until it gets one, and knows it.
"""

import math
from functools import lru_cache

import numpy as np

from hdpmf.common.privacy.mechanisms import H_FLOOR
from hdpmf.errors import PrivacyError

FALSE_ALARM = 1e-9
"""Probability, at most, that an honest recommender's draws are refused anywhere in a training."""


class HPlausibility:
    """Checks the h of one training; what it refuses it does not remember.

    Args:
        n_factors: Length of a row.
        rounds: Rounds that draw h anew.

    Attributes:
        seen: Rounds that were looked at.
        total: The sum of the measure over them, per row; None before the first.
    """

    def __init__(self, n_factors: int, rounds: int) -> None:
        self._n_factors = n_factors
        self._rounds = rounds
        self.seen = 0
        self.total: np.ndarray | None = None

    def check(self, h: np.ndarray) -> None:
        """Raise PrivacyError where no honest draw would be this small."""
        smallest = float(h.min())
        if smallest < H_FLOOR:
            raise PrivacyError(
                f"refused: the round's smallest h is {smallest:.2g}, and the law that it is to "
                "be drawn from gives "
                f"nothing below {H_FLOOR:.2g}; the gradients would go out without noise"
            )
        if self.total is not None and len(self.total) != len(h):
            raise PrivacyError(
                "refused: h was drawn per item in one round and for all items in another"
            )
        row = -np.log(np.minimum(h, np.float32(1.0))) @ np.ones(self._n_factors, np.float32)
        total = row if self.total is None else self.total + row
        log_error = math.log(FALSE_ALARM) - math.log(2.0 * len(h) * self._rounds)
        for measured, rounds, when in (
            (row, 1, "in this round"),
            (total, self.seen + 1, "over the rounds so far"),
        ):
            if float(measured.max()) > largest_plausible(rounds * self._n_factors, log_error):
                raise PrivacyError(
                    f"refused: row {int(measured.argmax())} of h is so small {when} that honest "
                    f"draws would be so with a probability below {FALSE_ALARM:g}; the gradients "
                    "would have too little noise"
                )
        self.total, self.seen = total, self.seen + 1


@lru_cache(maxsize=1024)
def largest_plausible(n: int, log_error: float) -> float:
    """Return a bound on the sum of ``-log(min(h, 1))`` over ``n`` draws.

    It is exceeded with probability at most ``exp(log_error)``.
    """
    s, log_moments = _moments()
    return float(np.min((n * log_moments - log_error) / s))


@lru_cache(maxsize=1)
def _moments() -> tuple[np.ndarray, np.ndarray]:
    """Return some s in (0, 1), and the log of ``E[min(h, 1)^-s]`` for each, with h ~ Exp(1).

    The expectation is the integral of ``h^-s e^-h`` up to 1, plus e^-1 for the rest. The floor
    makes h larger, so that the bound holds for floored draws, too.
    """
    from scipy.special import gamma, gammainc

    s = np.linspace(0.005, 0.995, 199)
    return s, np.log(gamma(1.0 - s) * gammainc(1.0 - s, 1.0) + math.exp(-1.0))
