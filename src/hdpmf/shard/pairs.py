"""What a shard says about who rates what with whom: once, with all of its noise."""

from __future__ import annotations

import numpy as np

from hdpmf.errors import ProtocolError
from hdpmf.privacy.coding import weight_units
from hdpmf.privacy.pairs import pair_sigma, pair_sums
from hdpmf.privacy.sampling import Noise, require_released
from hdpmf.privacy.weights import PrivacyWeights
from hdpmf.protocol.pairs import PairContribution, PairSurvey
from hdpmf.ratings import Ratings
from hdpmf.shard.contribution import OneRoundShard
from hdpmf.shard.outgoing import compose


class PairShard:
    """All users whose pairs are summed, in one process: it adds the whole noise.

    Args:
        ratings: The ratings of these users; the items are those of the recommender's catalogue, in its order.
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
        self._ratings, self._weights = ratings, weights
        self._noise = noise if simulation else require_released(noise)
        self._epsilon, self._catalogue = epsilon, catalogue
        self._spent = False

    @classmethod
    def after(cls, shard: OneRoundShard, noise: Noise, *, simulation: bool = False) -> PairShard:
        """The users of a shard that has answered a survey: the same ratings, catalogue and epsilon once more."""
        if shard.spent is None:
            raise ProtocolError("refused: pairs come after the survey, which these users have not answered")
        ratings, weights = shard.holds
        survey = shard.spent.survey
        return cls(ratings, weights, noise, epsilon=survey.epsilon, catalogue=survey.catalogue, simulation=simulation)

    def __repr__(self) -> str:
        return f"PairShard({self._ratings.n_users} users, {'spent' if self._spent else 'nothing spent'})"

    def answer(self, survey: PairSurvey) -> PairContribution:
        """The answer. There is one."""
        if self._spent:
            raise ProtocolError("refused: these ratings have spent their budget; the answer is given once")
        if survey.epsilon > self._epsilon:
            raise ProtocolError(
                f"refused: the survey asks for epsilon {survey.epsilon:g}; the users here agreed to {self._epsilon:g}"
            )
        if survey.catalogue != self._catalogue or survey.n_items != self._ratings.n_items:
            raise ProtocolError("refused: the survey is about another item table than the one these users know")
        sigma = pair_sigma(survey.epsilon, survey.bound, len(survey.heads))
        sums = pair_sums(self._rows(survey.heads), survey.bound)
        self._spent = True
        sums += self._noise.discrete_gaussian(np.full(len(sums), float(sigma)))
        return compose(PairContribution, sums=sums)

    def _rows(self, heads: np.ndarray) -> np.ndarray:
        """Each user's weights of the heads, in 64ths."""
        ratings = self._ratings
        column = np.full(ratings.n_items, -1)
        column[heads] = np.arange(len(heads))
        there = np.flatnonzero(column[ratings.item_codes] >= 0)
        rows = np.zeros((ratings.n_users, len(heads)), np.int64)
        weights = np.asarray(self._weights.for_ratings(ratings))[there]
        rows[ratings.user_codes[there], column[ratings.item_codes[there]]] = weight_units(weights)
        return rows
