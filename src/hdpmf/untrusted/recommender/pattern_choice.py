"""Choose from released bits whether to use who rated what. Post-processing only: it costs nothing.

Where people who rate the same things do not like the same things, patterns and similarity only add
noise. Films and books gain by them, the Yelp sample loses (docs/designs.md).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hdpmf.common.data.item_features import ItemFeatures
from hdpmf.common.model.device_fit import NOISE, OWN_MEAN_RIDGE
from hdpmf.common.protocol import BitContribution, ItemFacts, Survey
from hdpmf.untrusted.recommender.bits import (
    MOST_USERS,
    StarBits,
    bits_in_stars,
    facts_from_bits,
    item_biases,
    known_groups,
    mean_weight,
    rating_patterns,
)

PATTERNS = 8
"""How many are used where they help."""

ENOUGH = 1200.0
"""The precision of all bits together from which on they choose. Patterns that explain 0.03 stars
squared of ratings gain 0.015 times this, 18, with a standard error of 6: three of them. Below it
patterns are used: they are worth most where bits tell least (ML-100K at epsilon 0.25: 0.1)."""

_FOLDS = 5


def facts_by_choice(
    survey: Survey,
    answer: BitContribution,
    features: ItemFeatures | None,
    n_patterns: int | None,
) -> ItemFacts:
    """Return item facts from bits, which choose the number of patterns where it is None."""
    if n_patterns is None:
        n_patterns = choose_patterns(survey, answer, features)
    return facts_from_bits(survey, answer, features, n_patterns)


def choose_patterns(survey: Survey, answer: BitContribution, features: ItemFeatures | None) -> int:
    """Return how many patterns to look for: ``PATTERNS``, or 0 if they do not help."""
    _, bits = bits_in_stars(survey, answer)
    if len(bits.items) == 0:
        return PATTERNS
    bits = bits.of_some(MOST_USERS)
    if float((1.0 / bits.variance).sum()) < ENOUGH:
        return PATTERNS
    gains = held_out_gains(bits, survey.n_items, features, mean_weight(answer.units))
    # As for every choice by what people show: a gain has to exceed its standard error.
    return PATTERNS if gains.sum() > gains.std() * np.sqrt(len(gains)) else 0


def held_out_gains(
    bits: StarBits, n_items: int, features: ItemFeatures | None, weight: float = 1.0
) -> np.ndarray:
    """Return how much likelier patterns make each bit, by folds: a difference of log likelihoods.

    A fold's bits and the presence of its ratings are both left out, as those of test ratings are.

    Args:
        bits: What users said.
        weight: The mean weight of a rating.
    """
    fold = np.random.default_rng(0).integers(0, _FOLDS, len(bits.items))
    gains = np.zeros(len(bits.items))
    for number in range(_FOLDS):
        held_out = fold == number
        known, unknown = bits.only(~held_out), bits.only(held_out)
        if len(known.items) == 0:
            continue
        popularity = np.bincount(known.items, minlength=n_items) * weight
        groups = known_groups(popularity, features)
        patterns = rating_patterns(known.users, known.items, n_items, PATTERNS)
        without = _squared_errors(known, unknown, groups)
        gains[held_out] = (without - _squared_errors(known, unknown, [*groups, patterns])) / 2.0
    return gains


def _squared_errors(known: StarBits, unknown: StarBits, groups: Sequence[np.ndarray]) -> np.ndarray:
    """Errors of item biases and people's own means on unknown bits, in units of their noise."""
    bias, variance = item_biases(known, groups)
    n_users = int(max(known.users.max(), unknown.users.max(initial=0))) + 1
    told = 1.0 / (known.variance + variance[known.items])
    said = np.bincount(known.users, told * (known.values - bias[known.items]), n_users)
    own = said / (np.bincount(known.users, told, n_users) + OWN_MEAN_RIDGE / NOISE)
    left = unknown.values - bias[unknown.items] - own[unknown.users]
    return np.asarray(left**2 / unknown.variance)
