"""The distinguishing game against the one-round designs, played with the real ``OneRoundShard``.

What the attacker knows of the other users it subtracts, so a shard that holds the one rating is enough:

* hdp-sum, ``sums``: the shard answers for all contributors, so its entries have the noise of the whole sum. The score
  is the exact log-likelihood ratio of the entries that differ between the worlds (its item's score and, in design A,
  the total).
* hdp-sum, ``messages``: what one user submits, with that user's share of the noise alone, as if there were no secure
  aggregation. Nobody claims anything for this view; it is here to show why.
* hdp-bit, ``messages``: the log-likelihood ratio of the bit. ``sums``: the sum of the bits of the item's raters.
* hdp-sum, neighbours by ``presence``: the rating is the highest, or it is not there. Both of the item's entries move.
* ``final``: the recommender's real post-processing of a small world; Fisher's discriminant of what it publishes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from msgspec.structs import replace

from hdpmf.audit.bounds import Scores, fisher
from hdpmf.audit.laws import log_discrete_laplace, log_share
from hdpmf.audit.world import Target
from hdpmf.models.one_round import HDPBit, HDPSum
from hdpmf.privacy import PrivacyWeights
from hdpmf.privacy.coding import Coding, bit_height, bit_probability, make_ruler, sum_channels, weight_units
from hdpmf.privacy.sampling import SeededNoise
from hdpmf.protocol import BitContribution, SumContribution, Survey
from hdpmf.ratings import Ratings
from hdpmf.recommender.item_bias import coding_of
from hdpmf.shard.contribution import OneRoundShard

Progress = Callable[[int], None]

_CATALOGUE = "audit"
_SUMS, _BITS, _FINAL = 900_000, 900_010, 900_020  # streams of the seed
_TOLD_EVERY = 500


@dataclass(frozen=True, slots=True)
class Design:
    """A one-round design as it is audited.

    Attributes:
        kind: ``A`` or ``S`` (sums), ``L`` (bits).
        epsilon: Of the survey.
        noise_factor: 1 for the design as it is. Less makes a broken one, with so much of its noise, which an audit
            has to find out: a control. The attacker knows the factor.
    """

    kind: str
    epsilon: float
    noise_factor: float = 1.0

    @property
    def model(self) -> HDPSum | HDPBit:
        """The estimator that runs it."""
        return HDPBit(epsilon=self.epsilon) if self.kind == "L" else HDPSum(epsilon=self.epsilon, design=self.kind)

    def survey(self, ratings: Ratings, contributors: int) -> Survey:
        """What the recommender asks."""
        return replace(self.model._survey(ratings, _CATALOGUE), contributors=contributors)

    def answer(
        self, ratings: Ratings, weights: PrivacyWeights, n_users: int, survey: Survey, noise: SeededNoise
    ) -> SumContribution | BitContribution:
        """What a shard with these ratings sends, holding ``n_users`` of all contributors."""
        source: Any = noise if self.noise_factor == 1.0 else Less(noise, self.noise_factor)
        shard = OneRoundShard(
            ratings, weights, source, epsilon=self.epsilon, catalogue=_CATALOGUE, n_users=n_users, simulation=True
        )
        shard.accept(survey)
        return shard.contribute()


class Less:
    """Noise with a smaller scale than asked for: a mistake, made on purpose."""

    def __init__(self, noise: SeededNoise, factor: float, label_factor: float = 1.0) -> None:
        self._noise, self._factor, self._label_factor = noise, factor, label_factor

    def discrete_laplace(self, scale: Fraction, size: int) -> np.ndarray:
        """As ``SeededNoise``, with less of it."""
        return self._noise.discrete_laplace(float(scale) * self._factor, size)

    def laplace_share(self, scale: Fraction, n_shares: int, size: int, *, count: int = 1) -> np.ndarray:
        """As ``SeededNoise``, with less of it."""
        return self._noise.laplace_share(float(scale) * self._factor, n_shares, size, count=count)

    def bits(self, rare: np.ndarray) -> np.ndarray:
        """Lots that are drawn less at random."""
        return self._noise.bits(self.sharpened(rare, self._label_factor))

    @staticmethod
    def sharpened(rare: np.ndarray, factor: float) -> np.ndarray:
        """The probabilities whose logits are those of ``rare`` over ``factor``."""
        return np.asarray(1.0 / (1.0 + np.exp((np.log1p(-rare) - np.log(rare)) / factor)))


def sum_scores(
    target: Target,
    design: Design,
    view: str,
    runs: int,
    seed: int,
    progress: Progress = lambda done: None,
    *,
    adjacency: str = "value",
) -> Scores:
    """Scores against designs A and S in the view ``sums`` or ``messages``."""
    contributors = max(target.ratings.n_users, 2)
    n_users = contributors if view == "sums" else 1
    coding = coding_of(design.survey(target.ratings, contributors))
    channels = sum_channels(design.kind, coding, design.epsilon)
    worlds = []
    for world, rating in enumerate(rating_in_worlds(target, adjacency)):
        one, weights = _alone(target, rating)
        survey = design.survey(one, contributors)
        noise = SeededNoise(seed, _SUMS + world)
        entries = np.empty((runs, 3), np.int64)
        for run in range(runs):
            sent = design.answer(one, weights, n_users, survey, noise)
            if isinstance(sent, SumContribution):
                entries[run] = sent.scores[0], sent.weights[0], sent.total
            tell(progress, run, runs)
        worlds.append(entries)
    moved = [moved_by(target, coding, rating, target.row) for rating in rating_in_worlds(target, adjacency)]

    def ratio(seen: np.ndarray) -> np.ndarray:
        total = np.zeros(len(seen))
        for column, channel in enumerate((channels.score, channels.weight, channels.total)):
            if channel is None or moved[0][column] == moved[1][column]:
                continue
            scale = float(channel.scale) * design.noise_factor
            for by, sign in ((moved[1], 1.0), (moved[0], -1.0)):
                noise = seen[:, column] - by[column]
                law = log_discrete_laplace(noise, scale) if view == "sums" else log_share(noise, scale, contributors)
                total += sign * law
        # The law of a sum has a plateau: equal ratios must not differ by rounding, or a threshold would split them.
        return np.asarray(np.round(total, 9))

    return Scores(ratio(worlds[0]), ratio(worlds[1]))


def tell(progress: Progress, run: int, runs: int) -> None:
    """Report every so many runs, and at the end."""
    if run % _TOLD_EVERY == _TOLD_EVERY - 1 or run == runs - 1:
        progress(run % _TOLD_EVERY + 1)


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


def bit_scores(target: Target, epsilon: float, view: str, runs: int, seed: int) -> Scores:
    """Scores against design L in the view ``messages`` or ``sums``."""
    design = Design("L", epsilon)
    ratings = target.ratings
    rows = np.array([target.row]) if view == "messages" else np.flatnonzero(ratings.item_codes == target.item)
    size = max(1, 200_000 // len(rows))
    worlds = []
    for world, rating in enumerate(target.ends):
        noise = SeededNoise(seed, _BITS + world)
        values, blocks = target.values(rating)[rows], []
        for begin in range(0, runs, size):
            n = min(size, runs - begin)
            copies = Ratings.from_arrays(
                np.arange(n * len(rows)), np.repeat(np.arange(n), len(rows)), np.tile(values, n), scale=ratings.scale
            )
            weights = PrivacyWeights.per_rating(copies, np.tile(target.weights[rows], n))
            survey = design.survey(copies, copies.n_users)
            sent = design.answer(copies, weights, copies.n_users, survey, noise)
            if isinstance(sent, BitContribution):
                blocks.append(_bit_sums(sent, n, epsilon))
        worlds.append(np.concatenate(blocks))
    scores = Scores(worlds[0], worlds[1])
    return scores if view == "sums" else _bit_ratios(target, design, scores)


def _bit_sums(sent: BitContribution, n: int, epsilon: float) -> np.ndarray:
    """What the recommender adds up for an item: bits with inverse-variance weights."""
    signs = (2.0 * sent.plus - 1.0) / bit_height(sent.units, epsilon)
    return np.round(np.bincount(sent.items, signs, n), 9)


def _bit_ratios(target: Target, design: Design, scores: Scores) -> Scores:
    """Log-likelihood ratios of single bits, from their signs."""
    coding = coding_of(design.survey(target.ratings, 1))
    units = weight_units(np.array([target.weight, target.weight]))
    plus = bit_probability(coding.encode(np.array(target.ends, np.float32)), units, coding, design.epsilon)
    if units[0] == 0:  # too small a weight: nothing was sent
        return scores
    up, down = np.log(plus[1] / plus[0]), np.log((1.0 - plus[1]) / (1.0 - plus[0]))
    return Scores(np.where(scores.low > 0, up, down), np.where(scores.high > 0, up, down))


def final_scores(
    target: Target,
    design: Design,
    pilot: int,
    runs: int,
    seed: int,
    progress: Progress = lambda done: None,
    *,
    adjacency: str = "value",
) -> tuple[Scores, Scores]:
    """Scores of pilot and measured runs against what the recommender publishes after a one-round design."""
    worlds = []
    contributors = target.ratings.n_users
    survey, model = design.survey(target.ratings, contributors), design.model
    for world, rating in enumerate(rating_in_worlds(target, adjacency)):
        ratings, weights = with_rating(target, rating)
        noise = SeededNoise(seed, _FINAL + world)
        published = np.empty((pilot + runs, 3))
        for run in range(pilot + runs):
            sent = design.answer(ratings, weights, contributors, survey, noise)
            facts = model._post_process(survey, sent, None)
            published[run] = facts.mean, facts.bias[target.item], facts.variance[target.item]
            tell(progress, run, pilot + runs)
        worlds.append(published)
    low, high = worlds
    direction = fisher(low[:pilot], high[:pilot])
    low_scores, high_scores = low @ direction, high @ direction
    return Scores(low_scores[:pilot], high_scores[:pilot]), Scores(low_scores[pilot:], high_scores[pilot:])


def _alone(target: Target, rating: float | None) -> tuple[Ratings, PrivacyWeights]:
    """A world of the one rating: what else is in the sums, the attacker knows and subtracts."""
    shown = target.ends[1] if rating is None else rating
    one = Ratings.from_arrays([0], [0], [shown], scale=target.ratings.scale, name="one rating")
    if rating is None:
        one = one.take(np.zeros(0, np.int64))
    return one, PrivacyWeights.per_rating(one, np.full(len(one), target.weight))


def with_rating(target: Target, rating: float | None) -> tuple[Ratings, PrivacyWeights]:
    """The whole world with this rating in the audited place, or without one there."""
    ratings, weights = target.ratings, target.weights
    values = ratings.values if rating is None else target.values(rating)
    world = Ratings.from_arrays(ratings.user_codes, ratings.item_codes, values, scale=ratings.scale, name=ratings.name)
    if rating is None:
        others = np.delete(np.arange(len(ratings)), target.row)
        world, weights = world.take(others), weights[others]
    return world, PrivacyWeights.per_rating(world, weights)
