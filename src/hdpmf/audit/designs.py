"""The one-round designs as they are audited: the real shard and the real recommender, or one with too little noise."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from hdpmf.audit.world import Target
from hdpmf.models.hdp_bit import HDPBit
from hdpmf.privacy import PrivacyWeights
from hdpmf.privacy.coding import Coding, make_ruler, weight_units
from hdpmf.privacy.sampling import SeededNoise
from hdpmf.protocol import Survey
from hdpmf.ratings import Ratings
from hdpmf.ratings.item_features import ItemFeatures
from hdpmf.recommender import OneRoundRecommender
from hdpmf.recommender.one_round import make_survey
from hdpmf.shard.contribution import OneRoundShard

_CATALOGUE = "audit"


@dataclass(frozen=True, slots=True)
class Design:
    """A one-round design as it is audited.

    Attributes:
        kind: ``A`` or ``S`` (sums), ``L`` (bits).
        noise_factor: 1 for the design as it is. Less makes a broken one, with so much of its noise, which an audit
            has to find out: a control. The attacker knows the factor.
        labels: Whether the sums are by taste labels.
        label_factor: As ``noise_factor``, for the draw of labels, whose logit is divided by it.
    """

    kind: str
    epsilon: float
    noise_factor: float = 1.0
    labels: bool = False
    label_factor: float = 1.0

    def survey(self, ratings: Ratings, contributors: int) -> Survey:
        """What the recommender asks."""
        return make_survey(
            self.kind,
            self.epsilon,
            ratings.scale,
            n_items=ratings.n_items,
            catalogue=_CATALOGUE,
            contributors=contributors,
            labels=self.labels,
        )

    def recommender(self, survey: Survey, feature: np.ndarray | None = None) -> OneRoundRecommender:
        """Who makes item facts of the answers; ``feature`` is what items are scored by for labels."""
        features = None
        if feature is not None:
            features = ItemFeatures(("score",), feature[:, None], np.ones(1), "audit")
        patterns = HDPBit.patterns if self.kind == "L" else 0
        return OneRoundRecommender(survey, features, score={"score": 1.0}, n_patterns=patterns)

    def shard(self, ratings: Ratings, weights: PrivacyWeights, noise: SeededNoise, n_users: int) -> OneRoundShard:
        """A shard with these ratings, which holds ``n_users`` of all contributors."""
        broken = (self.noise_factor, self.label_factor) != (1.0, 1.0)
        source: Any = Less(noise, self.noise_factor, self.label_factor) if broken else noise
        return OneRoundShard(
            ratings, weights, source, epsilon=self.epsilon, catalogue=_CATALOGUE, n_users=n_users, simulation=True
        )


class Less:
    """Noise with a smaller scale than asked for: a mistake, made on purpose."""

    def __init__(self, noise: SeededNoise, factor: float, label_factor: float = 1.0) -> None:
        self._noise, self._factor, self._label_factor = noise, factor, label_factor

    def laplace_share(self, scale: Fraction, n_shares: int, size: int, *, count: int = 1) -> np.ndarray:
        """As ``SeededNoise``, with less of it."""
        return self._noise.laplace_share(float(scale) * self._factor, n_shares, size, count=count)

    def bits(self, rare: np.ndarray) -> np.ndarray:
        """Labels that are drawn less at random."""
        return self._noise.bits(self.sharpened(rare, self._label_factor))

    @staticmethod
    def sharpened(rare: np.ndarray, factor: float) -> np.ndarray:
        """The probabilities whose logits are those of ``rare`` over ``factor``."""
        return np.asarray(1.0 / (1.0 + np.exp((np.log1p(-rare) - np.log(rare)) / factor)))


def rating_in_worlds(target: Target, adjacency: str) -> tuple[float | None, float]:
    """The rating in the two worlds; None where it is not there."""
    low, high = target.ends
    return (None if adjacency == "presence" else low), high


def moved_by(target: Target, coding: Coding, rating: float | None, row: int) -> tuple[int, int, int]:
    """What a rating in this row adds to its item's score, its item's weight and the total."""
    if rating is None:
        return 0, 0, 0
    units = int(weight_units(target.weights[row : row + 1])[0])
    value = np.array([rating], np.float32)
    ruler = make_ruler(target.ratings.scale)
    return units * int(coding.encode(value)[0]), units, units * int(ruler.encode(value)[0])


def with_rating(target: Target, rating: float | None) -> tuple[Ratings, PrivacyWeights]:
    """The whole world with this rating in the audited place, or without one there."""
    ratings, weights = target.ratings, target.weights
    values = ratings.values if rating is None else target.values(rating)
    world = Ratings.from_arrays(ratings.user_codes, ratings.item_codes, values, scale=ratings.scale, name=ratings.name)
    if rating is None:
        others = np.delete(np.arange(len(ratings)), target.row)
        world, weights = world.take(others), weights[others]
    return world, PrivacyWeights.per_rating(world, weights)
