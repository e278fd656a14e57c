"""Contributions to a one-round design: sent once in a rating's life."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from hdpmf.common.data import Ratings
from hdpmf.common.privacy.coding import (
    RULER_SHARE,
    WEIGHT_UNITS,
    Channels,
    Coding,
    bit_probability,
    make_coding,
    make_ruler,
    sum_channels,
    weight_units,
)
from hdpmf.common.privacy.mechanisms import bound_weights
from hdpmf.common.privacy.sampling import Noise, require_released
from hdpmf.common.privacy.weights import PrivacyWeights
from hdpmf.common.protocol import (
    BitContribution,
    ItemFacts,
    SumContribution,
    Survey,
)
from hdpmf.errors import PrivacyError, ProtocolError
from hdpmf.private.client.outgoing import compose

_BLOCK = 1 << 22  # ratings that are coded at a time: bounds the memory; no mutant: not the result


@dataclass(frozen=True, slots=True)
class SurveyCharge:
    """The survey that a client's ratings have paid for, and its epsilon.

    A rating of privacy weight W has paid W times that.
    """

    survey: Survey
    epsilon: float


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


class OneRoundClient:
    """One or more users on the private side of a one-round design.

    A survey that asks for more than was agreed, comes a second time, or differs from the one
    accepted is refused with a ProtocolError; what has been spent then stays as it was. From the
    first answer on all of it is spent.

    Args:
        ratings: The ratings of these users; the items are those of the recommender's catalogue, in
            its order.
        epsilon: The largest budget that these users agree to, once.
        catalogue: Fingerprint of the item table that these users know.
        simulation: Allow seeded noise. Never for anything that leaves this process.
    """

    def __init__(
        self,
        ratings: Ratings,
        weights: PrivacyWeights,
        noise: Noise,
        *,
        epsilon: float,
        catalogue: str,
        simulation: bool = False,
    ) -> None:
        self._ratings = ratings
        self._weights = weights
        self._noise = noise if simulation else require_released(noise)
        self._epsilon = epsilon
        self._catalogue = catalogue
        self._survey: Survey | None = None
        self._spent: SurveyCharge | None = None
        self._answered = False
        self._n_silent = 0

    def __repr__(self) -> str:
        spent = "spent" if self._spent else "nothing spent"
        return f"OneRoundClient({self._ratings.n_users} users, {spent})"

    @property
    def spent(self) -> SurveyCharge | None:
        """The price that these ratings have paid, or None. They pay only once."""
        return self._spent

    @property
    def holds(self) -> tuple[Ratings, PrivacyWeights]:
        """The ratings that take part, and their weights. PRIVATE."""
        return self._ratings, self._weights

    @property
    def n_silent(self) -> int:
        """Ratings that sent nothing, because their weight is below 1/64."""
        return self._n_silent

    def accept(self, survey: Survey) -> None:
        """Agree to a survey, or refuse it."""
        if self._spent is not None:
            raise ProtocolError(
                "refused: these ratings have spent their budget; a second survey gets no answer"
            )
        if self._survey is not None and survey != self._survey:
            raise ProtocolError(
                "refused: the survey is not the one that was accepted; it must not change"
            )
        if survey.epsilon > self._epsilon:
            raise ProtocolError(
                f"refused: the survey asks for epsilon {survey.epsilon:g}; the users here "
                f"agreed to {self._epsilon:g}"
            )
        scale = self._ratings.scale
        if survey.n_items != self._ratings.n_items or (
            (survey.scale_low, survey.scale_high, survey.scale_step)
            != (scale.low, scale.high, scale.step)
        ):
            raise ProtocolError(
                f"refused: the survey is for {survey.n_items} items rated {survey.scale_low:g} to "
                f"{survey.scale_high:g}; this client knows {self._ratings.n_items} items rated "
                f"{scale}"
            )
        if survey.catalogue != self._catalogue:
            raise ProtocolError(
                "refused: the survey is about another item table than the one these users know"
            )
        self._survey = survey

    def contribute(self) -> SumContribution | BitContribution:
        """The answer to the accepted survey. There is one."""
        survey = self._survey
        if survey is None:
            raise ProtocolError("there is no survey to answer; accept one first")
        if self._answered:
            raise ProtocolError(
                "refused: these ratings have spent their budget; the answer is given once"
            )
        answer = self._bits(survey) if survey.design == "L" else self._sums(survey)
        self._spent, self._answered = SurveyCharge(survey, survey.epsilon), True
        return answer

    def check(self, facts: ItemFacts) -> ItemFacts:
        """Item facts that belong to the answered survey, or a refusal. Nothing is sent in reply."""
        if not self._answered:
            raise ProtocolError("item facts arrived before the survey was answered")
        if facts.catalogue != self._catalogue or len(facts.bias) != self._ratings.n_items:
            raise ProtocolError(
                "refused: the item facts are about another item table than the survey was"
            )
        return facts

    def _channels(self, survey: Survey) -> tuple[Coding, Channels]:
        coding = make_coding(survey.coding, self._ratings.scale, survey.epsilon)
        return coding, sum_channels(coding, survey.epsilon)

    def _sums(self, survey: Survey) -> SumContribution:
        ratings = self._ratings
        coding, channels = self._channels(survey)
        ruler = make_ruler(ratings.scale)
        size = ratings.n_items
        scores, weights, total = np.zeros(size, np.int64), np.zeros(size, np.int64), 0
        silent = 0
        for block, units in self._blocks():
            positions, values = ratings.item_codes[block], ratings.values[block]
            # Whole numbers far below 2^53: the float sums of bincount are exact.
            scores += np.bincount(positions, units * coding.encode(values), size).astype(np.int64)
            weights += np.bincount(positions, units, size).astype(np.int64)
            total += int((units * ruler.encode(values)).sum())
            silent += int(np.count_nonzero(units == 0))
        scores += self._noise.discrete_laplace(channels.score.scale, size)
        weights += self._noise.discrete_laplace(channels.weight.scale, size)
        total += int(self._noise.discrete_laplace(channels.total.scale, 1)[0])
        self._n_silent = silent
        return compose(SumContribution, scores=scores, weights=weights, total=total)

    def _bits(self, survey: Survey) -> BitContribution:
        ratings = self._ratings
        coding = make_coding(survey.coding, ratings.scale, survey.epsilon)
        ruler = make_ruler(ratings.scale)
        none = np.zeros(0, np.int64)
        senders, items, kept_units, plus, rulers = [none], [none], [none], [none], [none]
        silent = 0
        for block, units in self._blocks():
            speaks = units > 0
            silent += int(np.count_nonzero(~speaks))
            values, units = ratings.values[block][speaks], units[speaks]
            budgets = survey.epsilon * units / WEIGHT_UNITS
            # Drawn without a look at the rating: which curve a bit is about tells nothing of it.
            about = self._noise.uniforms(len(values)) < RULER_SHARE
            chances = np.where(
                about,
                bit_probability(ruler.encode(values), units, ruler, survey.epsilon),
                bit_probability(coding.encode(values), units, coding, survey.epsilon),
            )
            drawn = self._noise.bits(chances, budgets)
            senders.append(ratings.user_codes[block][speaks].astype(np.int64))
            items.append(ratings.item_codes[block][speaks].astype(np.int64))
            kept_units.append(units)
            plus.append(drawn.astype(np.int64))
            rulers.append(about.astype(np.int64))
        self._n_silent = silent
        return compose(
            BitContribution,
            senders=np.concatenate(senders),
            items=np.concatenate(items),
            units=np.concatenate(kept_units),
            plus=np.concatenate(plus),
            ruler=np.concatenate(rulers),
        )

    def _blocks(self) -> Iterator[tuple[slice, np.ndarray]]:
        """Ratings in blocks, with their weights in 64ths."""
        ratings, weights = self._ratings, self._weights
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
                yield (
                    block,
                    weight_units(
                        beta[ratings.user_codes[block]] * gamma[ratings.item_codes[block]]
                    ),
                )
