"""Many canaries in one run: a lower bound on epsilon without repeating anything.

A device has m ratings. Each is the lowest or the highest value (or there or not), by a fair coin of its own. The
attacker sees what leaves the device once, and guesses the coins it feels sure about. If a change of any one rating
changes the probability of whatever leaves by a factor of at most ``e^epsilon``, then given all that was seen, each
guess is right with a probability of at most ``e^epsilon / (1 + e^epsilon)``, whatever the others are: the number of
right guesses among r is at most binomial (Steinke, Nasr and Jagielski 2023, for pure privacy). So c right guesses of r
prove ``epsilon >= logit(p)``, p being Clopper and Pearson's lower bound.

How many guesses to make is not known beforehand: an attacker who guesses less is right more often. Here all, the
surest half, quarter, eighth and sixteenth are tried, each with a fifth of the error, so that the best of the five
bounds is wrong with a probability of at most ``1 - confidence``. No pilot runs are needed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from hdpmf.audit.bounds import CONFIDENCE, clopper_pearson
from hdpmf.errors import ConfigError

PARTS = (1, 2, 4, 8, 16)
"""One of so many canaries is guessed: the surest."""


@dataclass(frozen=True, slots=True)
class OneRunBound:
    """What the right guesses prove.

    Attributes:
        epsilon: The lower bound; 0 where the guesses prove nothing.
        right: Right guesses, where that bound comes from.
        guesses: Of so many.
        canaries: All there were.
        confidence: Probability, at least, that the bound is right.
    """

    epsilon: float
    right: int
    guesses: int
    canaries: int
    confidence: float


def one_run_bound(scores: np.ndarray, truth: np.ndarray, confidence: float = CONFIDENCE) -> OneRunBound:
    """What an attacker proves.

    Args:
        scores: One per canary; positive guesses "high" (or "there"), and the larger, the surer.
        truth: The coins: which canaries are high, or there.
        confidence: Of the bound.
    """
    if len(scores) != len(truth) or len(truth) < PARTS[-1] or np.isnan(scores).any():
        raise ConfigError(f"a run needs {PARTS[-1]} canaries or more, with a score for each")
    # Equal scores in an order that has nothing to do with the coins: that of the items.
    surest = np.argsort(-np.abs(scores), kind="stable")
    right = np.cumsum(((scores > 0) == truth)[surest])
    best = (-1.0, 0, 0)
    for part in PARTS:
        guesses = len(truth) // part
        lower, _ = clopper_pearson(right[guesses - 1 : guesses], guesses, (1.0 - confidence) / len(PARTS))
        best = max(best, (float(lower[0]), int(right[guesses - 1]), guesses))
    p, count, guesses = best
    epsilon = max(0.0, math.log(p / (1.0 - p))) if 0.0 < p < 1.0 else 0.0
    return OneRunBound(epsilon, count, guesses, len(truth), confidence)


def one_run_ceiling(canaries: int, confidence: float = CONFIDENCE) -> float:
    """The largest bound that so many canaries can prove: that of an attacker who is never wrong."""
    truth = np.ones(canaries, np.bool_)
    return one_run_bound(np.ones(canaries), truth, confidence).epsilon
