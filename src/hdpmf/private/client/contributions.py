"""What devices send in a one-round design, once in a rating's life. Simulated here."""

from collections.abc import Iterator
from fractions import Fraction

import numpy as np

from hdpmf.common.data import Ratings
from hdpmf.common.privacy.coding import (
    RULER_SHARE,
    WEIGHT_UNITS,
    Coding,
    bit_probability,
    make_coding,
    make_ruler,
    sum_channels,
    weight_units,
)
from hdpmf.common.privacy.mechanisms import bound_weights
from hdpmf.common.privacy.sampling import Noise
from hdpmf.common.privacy.weights import PrivacyWeights
from hdpmf.common.protocol import BitContribution, SumContribution, Survey
from hdpmf.errors import PrivacyError

_BLOCK = 1 << 22  # ratings that are coded at a time: bounds the memory; no mutant: not the result


def bound_in_sums(
    ratings: Ratings, weights: PrivacyWeights, most: int, draws: np.ndarray
) -> tuple[Ratings, PrivacyWeights]:
    """Return the ratings that enter sums under a limit, with the weights that are left.

    Each user's have the weight of ``most`` ratings of weight 1 at most (`bound_weights`).
    """
    units = weight_units(weights.for_ratings(ratings))
    entered = bound_weights(ratings.user_codes, most, draws, units)
    # Those that are too light to be sent are kept: a client says how many there are.
    rows = np.flatnonzero((entered > 0) | (units == 0))
    taken, short = ratings.take(rows), entered[rows] < units[rows]
    limits = np.where(short, entered[rows] / WEIGHT_UNITS, 1.0)
    return taken, weights.take(rows).at_most(taken, limits)


def noisy_weights(
    ratings: Ratings, weights: PrivacyWeights, noise: Noise, epsilon: float
) -> np.ndarray:
    """Return how much weight each item has, in 64ths, summed over all users with noise.

    The presence of a rating of weight W costs W epsilon, its value nothing.
    """
    units = weight_units(weights.for_ratings(ratings))
    sums = np.bincount(ratings.item_codes, units, ratings.n_items).astype(np.int64)
    scale = WEIGHT_UNITS / Fraction(epsilon)
    return np.asarray(sums + noise.discrete_laplace(scale, ratings.n_items))


def sums(
    ratings: Ratings, weights: PrivacyWeights, survey: Survey, noise: Noise
) -> SumContribution:
    """Return what the devices with these ratings send together to a survey about sums."""
    coding, ruler = _curves(survey)
    channels, size = sum_channels(coding, survey.epsilon), ratings.n_items
    scores, held, total = np.zeros(size, np.int64), np.zeros(size, np.int64), 0
    for block, units in _blocks(ratings, weights):
        positions, values = ratings.item_codes[block], ratings.values[block]
        # Whole numbers far below 2^53: the float sums of bincount are exact.
        scores += np.bincount(positions, units * coding.encode(values), size).astype(np.int64)
        held += np.bincount(positions, units, size).astype(np.int64)
        total += int((units * ruler.encode(values)).sum())
    scores += noise.discrete_laplace(channels.score.scale, size)
    held += noise.discrete_laplace(channels.weight.scale, size)
    total += int(noise.discrete_laplace(channels.total.scale, 1)[0])
    return SumContribution(scores, held, total)


def bits(
    ratings: Ratings, weights: PrivacyWeights, survey: Survey, noise: Noise
) -> BitContribution:
    """Return what the devices with these ratings send to a survey about bits."""
    coding, ruler = _curves(survey)
    none = np.zeros(0, np.int64)
    senders, items, kept_units, plus, rulers = [none], [none], [none], [none], [none]
    for block, units in _blocks(ratings, weights):
        speaks = units > 0
        values, units = ratings.values[block][speaks], units[speaks]
        budgets = survey.epsilon * units / WEIGHT_UNITS
        # Drawn without a look at the rating: which curve a bit is about tells nothing of it.
        about = noise.uniforms(len(values)) < RULER_SHARE
        chances = np.where(
            about,
            bit_probability(ruler.encode(values), units, ruler, survey.epsilon),
            bit_probability(coding.encode(values), units, coding, survey.epsilon),
        )
        drawn = noise.bits(chances, budgets)
        senders.append(ratings.user_codes[block][speaks].astype(np.int64))
        items.append(ratings.item_codes[block][speaks].astype(np.int64))
        kept_units.append(units)
        plus.append(drawn.astype(np.int64))
        rulers.append(about.astype(np.int64))
    return BitContribution(
        senders=np.concatenate(senders),
        items=np.concatenate(items),
        units=np.concatenate(kept_units),
        plus=np.concatenate(plus),
        ruler=np.concatenate(rulers),
    )


def n_silent(ratings: Ratings, weights: PrivacyWeights) -> int:
    """Count the ratings that send nothing, because their weight is below 1/64."""
    return sum(int(np.count_nonzero(units == 0)) for _, units in _blocks(ratings, weights))


def _curves(survey: Survey) -> tuple[Coding, Coding]:
    """Return what scores are coded by, and the ruler that says their mean."""
    return make_coding(survey.coding, survey.scale, survey.epsilon), make_ruler(survey.scale)


def _blocks(ratings: Ratings, weights: PrivacyWeights) -> Iterator[tuple[slice, np.ndarray]]:
    """Yield ratings in blocks, with their weights in 64ths."""
    own = weights.rating_weights
    if own is not None and len(own) != len(ratings):
        raise PrivacyError(
            f"these weights belong to a table of {len(own)} ratings, not {len(ratings)}"
        )
    beta, gamma = weights.for_users(ratings.users), weights.for_items(ratings.items)
    for begin in range(0, len(ratings), _BLOCK):
        block = slice(begin, begin + _BLOCK)
        if own is not None:
            yield block, weight_units(own[block])
        else:
            users, items = ratings.user_codes[block], ratings.item_codes[block]
            yield block, weight_units(beta[users] * gamma[items])
