"""What a shard says about who rates what with whom: once, with all of its noise."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from hdpmf.common.data import Ratings
from hdpmf.common.model.list_model import ListModel
from hdpmf.common.privacy.coding import weight_units
from hdpmf.common.privacy.pairs import pair_sigma, pair_sums
from hdpmf.common.privacy.sampling import Noise, require_released
from hdpmf.common.privacy.weights import PrivacyWeights
from hdpmf.common.protocol.pairs import PairContribution, PairSurvey
from hdpmf.errors import ProtocolError
from hdpmf.private.client.contributions import OneRoundShard
from hdpmf.private.client.outgoing import compose
from hdpmf.private.client.ranking import ChooseAndLike, heights, list_parts
from hdpmf.private.client.reasons import Parts


class PairShard:
    """All users whose pairs are summed, in one process: it adds the whole noise.

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
        self._ratings, self._weights = ratings, weights
        self._noise = noise if simulation else require_released(noise)
        self._epsilon, self._catalogue = epsilon, catalogue
        self._spent = False

    @classmethod
    def after(cls, shard: OneRoundShard, noise: Noise, *, simulation: bool = False) -> PairShard:
        """The users of a shard that has answered a survey: the same ratings, catalogue and
        epsilon once more.
        """
        if shard.spent is None:
            raise ProtocolError(
                "refused: pairs come after the survey, which these users have not answered"
            )
        ratings, weights = shard.holds
        survey = shard.spent.survey
        return cls(
            ratings,
            weights,
            noise,
            epsilon=survey.epsilon,
            catalogue=survey.catalogue,
            simulation=simulation,
        )

    def __repr__(self) -> str:
        return (
            f"PairShard({self._ratings.n_users} users, "
            f"{'spent' if self._spent else 'nothing spent'})"
        )

    def answer(self, survey: PairSurvey) -> PairContribution:
        """The answer. There is one."""
        if self._spent:
            raise ProtocolError(
                "refused: these ratings have spent their budget; the answer is given once"
            )
        if survey.epsilon > self._epsilon:
            raise ProtocolError(
                f"refused: the survey asks for epsilon {survey.epsilon:g}; the users here "
                f"agreed to {self._epsilon:g}"
            )
        if survey.catalogue != self._catalogue or survey.n_items != self._ratings.n_items:
            raise ProtocolError(
                "refused: the survey is about another item table than the one these users know"
            )
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


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class WithPairs:
    """Choose and like, plus a linear model of much-rated items, which the others are left out of.

    What the model says is brought to a deviation of 1 over its items before it counts: how large it
    is depends on how much noise its regularisation had to stand.

    Attributes:
        taste: The order without it.
        pairs: The model; ``about["blend"]`` is how much it counts.
        item_weights: Of every item, the same for all people: what it says of an item is in
            proportion to that.
    """

    taste: ChooseAndLike
    pairs: ListModel
    item_weights: np.ndarray

    def scores(self, users: np.ndarray) -> np.ndarray:
        """Scores of all items, one row per user."""
        scores = self.taste.scores(users)
        told = self._told(users)
        scores[:, self.pairs.heads] += self._factors(told)[:, None] * told
        return scores

    def parts(self, users: np.ndarray, lists: Sequence[np.ndarray]) -> Iterator[Parts]:
        """What the scores of each user's list are made of."""
        own, factors = heights(self.taste.devices, users), self._factors(self._told(users))
        for row, (parts, items) in enumerate(
            zip(self.taste.parts(users, lists), lists, strict=True)
        ):
            here = slice(own.indptr[row], own.indptr[row + 1])
            told = list_parts(self.pairs, own.indices[here].astype(np.int64), own.data[here], items)
            yield replace(
                parts, rated=told.rated, own=factors[row] * told.own / self.item_weights[items]
            )

    def _told(self, users: np.ndarray) -> np.ndarray:
        heads = self.pairs.heads
        return np.asarray(
            self.pairs.many(heights(self.taste.devices, users))[:, heads] / self.item_weights[heads]
        )

    def _factors(self, told: np.ndarray) -> np.ndarray:
        spread = told.std(axis=1)
        known = spread > 0
        return np.asarray(
            np.where(known, self.pairs.about["blend"] / np.where(known, spread, 1.0), 0.0)
        )
