"""The distinguishing game against one-round designs, on the real client.

The attacker knows everybody else's ratings: the sums of one rating alone are what is left of all
sums when it has subtracted those. Its score is the exact log-likelihood ratio; against what is
published it is Fisher's discriminant of the item's numbers.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from hdpmf.common.data import Ratings
from hdpmf.common.privacy import PrivacyWeights
from hdpmf.common.privacy.coding import (
    Coding,
    bit_height,
    bit_probability,
    make_ruler,
    sum_channels,
    weight_units,
)
from hdpmf.common.privacy.sampling import SeededNoise
from hdpmf.common.protocol import BitContribution, ItemFacts, SumContribution, Survey
from hdpmf.lab.audit.scores import Halves, Scores, discriminated, log_discrete_laplace
from hdpmf.lab.audit.world import Target, rating_in_worlds, with_rating
from hdpmf.models.hdp_bit import HDPBit
from hdpmf.private.client.contributions import bits, sums
from hdpmf.untrusted.recommender.bits import facts_from_bits
from hdpmf.untrusted.recommender.sums import coding_of, facts_from_sums, make_survey

# streams of the seed
_SUMS = 900_000
_BITS = 900_010
_FINAL = 900_020


@dataclass(frozen=True, slots=True)
class Design:
    """A one-round design as it is audited.

    Attributes:
        kind: ``A`` (sums) or ``L`` (bits).
    """

    kind: str
    epsilon: float

    def survey(self, ratings: Ratings) -> Survey:
        """Return the recommender's survey."""
        return make_survey(
            self.kind,
            self.epsilon,
            ratings.scale,
            n_items=ratings.n_items,
            catalogue="audit",
        )

    def facts(self, survey: Survey, sent: SumContribution | BitContribution) -> ItemFacts:
        """Return what the recommender publishes."""
        if isinstance(sent, BitContribution):
            return facts_from_bits(survey, sent, None, HDPBit.patterns)
        return facts_from_sums(survey, sent, None)

    def answer(
        self, survey: Survey, ratings: Ratings, weights: PrivacyWeights, noise: SeededNoise
    ) -> Any:
        """Return what devices with these ratings send."""
        return (bits if self.kind == "L" else sums)(ratings, weights, survey, noise)


def sum_scores(
    target: Target,
    design: Design,
    runs: int,
    seed: int,
    *,
    adjacency: str = "value",
) -> Scores:
    """Return scores against the sums of design A."""
    coding = coding_of(design.survey(target.ratings))
    channels = sum_channels(coding, design.epsilon)
    worlds = []
    for world, rating in enumerate(rating_in_worlds(target, adjacency)):
        alone, weights = _alone(target, rating)
        survey = design.survey(alone)
        noise = SeededNoise(seed, _SUMS + world)
        entries = np.empty((runs, 3), np.int64)
        for run in range(runs):
            sent = design.answer(survey, alone, weights, noise)
            entries[run] = sent.scores[0], sent.weights[0], sent.total
        worlds.append(entries)
    moved = [_moved_by(target, coding, each) for each in rating_in_worlds(target, adjacency)]

    def ratio(seen: np.ndarray) -> np.ndarray:
        total = np.zeros(len(seen))
        for column, channel in enumerate((channels.score, channels.weight, channels.total)):
            if channel is None or moved[0][column] == moved[1][column]:
                continue
            scale = float(channel.scale)
            for by, sign in ((moved[1], 1.0), (moved[0], -1.0)):
                noise = seen[:, column] - by[column]
                total += sign * log_discrete_laplace(noise, scale)
        # The law of a sum has a plateau: equal ratios must not differ by rounding, or a threshold
        # would split them.
        return np.asarray(np.round(total, 9))

    return Scores(ratio(worlds[0]), ratio(worlds[1]))


def _moved_by(target: Target, coding: Coding, rating: float | None) -> tuple[int, int, int]:
    """Return what the rating adds to its item's score, its item's weight and the total."""
    if rating is None:
        return 0, 0, 0
    units = int(weight_units(target.weights[[target.row]])[0])
    value = np.array([rating], np.float32)
    ruler = make_ruler(target.ratings.scale)
    return units * int(coding.encode(value)[0]), units, units * int(ruler.encode(value)[0])


def bit_scores(target: Target, epsilon: float, view: str, runs: int, seed: int) -> Scores:
    """Return scores against bits in the view ``messages`` or ``sums``."""
    design = Design("L", epsilon)
    ratings = target.ratings
    rows = (
        np.array([target.row])
        if view == "messages"
        else np.flatnonzero(ratings.item_codes == target.item)
    )
    size = max(1, 200_000 // len(rows))
    worlds = []
    for world, rating in enumerate(target.ends):
        noise = SeededNoise(seed, _BITS + world)
        values = target.values(rating)[rows]
        blocks = []
        for begin in range(0, runs, size):
            n = min(size, runs - begin)
            copies = Ratings.from_arrays(
                np.arange(n * len(rows)),
                np.repeat(np.arange(n), len(rows)),
                np.tile(values, n),
                scale=ratings.scale,
            )
            weights = PrivacyWeights.per_rating(copies, np.tile(target.weights[rows], n))
            survey = design.survey(copies)
            sent = design.answer(survey, copies, weights, noise)
            blocks.append(_bit_sums(sent, n, epsilon))
        worlds.append(np.concatenate(blocks))
    scores = Scores(worlds[0], worlds[1])
    return scores if view == "sums" else _bit_ratios(target, design, scores)


def _bit_sums(sent: BitContribution, n: int, epsilon: float) -> np.ndarray:
    """Return an item's sum of bits with inverse-variance weights."""
    signs = (2.0 * sent.plus - 1.0) / bit_height(sent.units, epsilon)
    return np.round(np.bincount(sent.items, signs, n), 9)


def _bit_ratios(target: Target, design: Design, scores: Scores) -> Scores:
    """Return log-likelihood ratios of single bits, from their signs."""
    coding = coding_of(design.survey(target.ratings))
    units = weight_units(np.array([*target.weights[[target.row, target.row]]]))
    plus = bit_probability(
        coding.encode(np.array(target.ends, np.float32)), units, coding, design.epsilon
    )
    if units[0] == 0:  # too small a weight: nothing was sent
        return scores
    up = np.log(plus[1] / plus[0])
    down = np.log((1.0 - plus[1]) / (1.0 - plus[0]))
    return Scores(np.where(scores.low > 0, up, down), np.where(scores.high > 0, up, down))


def final_scores(
    target: Target,
    design: Design,
    pilot: int,
    runs: int,
    seed: int,
    *,
    adjacency: str = "value",
) -> Halves:
    """Return scores against what the recommender publishes."""
    worlds = []
    ratings = target.ratings
    survey = design.survey(ratings)
    for world, rating in enumerate(rating_in_worlds(target, adjacency)):
        present, weights = with_rating(target, rating)
        noise = SeededNoise(seed, _FINAL + world)
        published = []
        for _ in range(pilot + runs):
            sent = design.answer(survey, present, weights, noise)
            published.append(_published(design.facts(survey, sent), target.item))
        worlds.append(np.array(published))
    return discriminated(worlds[0], worlds[1], pilot).split(pilot)


def _published(facts: ItemFacts, item: int) -> tuple[float, ...]:
    return facts.mean, facts.bias[item], facts.variance[item]


def _alone(target: Target, rating: float | None) -> tuple[Ratings, PrivacyWeights]:
    """Return a world of the one rating: the attacker knows and subtracts all others."""
    shown = target.ends[1] if rating is None else rating
    world = Ratings.from_arrays([0], [0], [shown], scale=target.ratings.scale, name="one rating")
    if rating is None:
        world = world.take(np.zeros(0, np.int64))
    return world, PrivacyWeights.per_rating(
        world, np.full(len(world), float(target.weights[target.row]))
    )
