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

import numpy as np

from hdpmf.audit.bounds import Halves, Scores, discriminated
from hdpmf.audit.designs import Design, moved_by, rating_in_worlds, with_rating
from hdpmf.audit.laws import log_discrete_laplace, log_share
from hdpmf.audit.world import Target
from hdpmf.privacy import PrivacyWeights
from hdpmf.privacy.coding import bit_height, bit_probability, sum_channels, weight_units
from hdpmf.privacy.sampling import SeededNoise
from hdpmf.protocol import BitContribution, ItemFacts, SumContribution
from hdpmf.ratings import Ratings
from hdpmf.recommender.item_bias import coding_of

Progress = Callable[[int], None]

_SUMS, _BITS, _FINAL, _FINAL_LABELLED = 900_000, 900_010, 900_020, 900_040  # streams of the seed
_TOLD_EVERY = 500


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
        alone, weights = _alone(target, rating)
        recommender = design.recommender(design.survey(alone, contributors))
        noise = SeededNoise(seed, _SUMS + world)
        entries = np.empty((runs, 3), np.int64)
        for run in range(runs):
            (sent,) = recommender.hear([design.shard(alone, weights, noise, n_users)])
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
            recommender = design.recommender(design.survey(copies, copies.n_users))
            (sent,) = recommender.hear([design.shard(copies, weights, noise, copies.n_users)])
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
) -> Halves:
    """Scores against what the recommender publishes."""
    worlds = []
    ratings = target.ratings
    # With labels: a public feature of about half of the items; the audited item is among those it speaks for.
    feature = np.where((np.arange(ratings.n_items) - target.item) % 2 == 0, 1.0, -1.0) if design.labels else None
    recommender = design.recommender(design.survey(ratings, ratings.n_users), feature)
    for world, rating in enumerate(rating_in_worlds(target, adjacency)):
        present, weights = with_rating(target, rating)
        noise = SeededNoise(seed, (_FINAL_LABELLED if design.labels else _FINAL) + world)
        published = []
        for run in range(pilot + runs):
            shard = design.shard(present, weights, noise, ratings.n_users)
            published.append(_published(recommender.facts(recommender.hear([shard])), target.item))
            tell(progress, run, pilot + runs)
        worlds.append(np.array(published))
    return discriminated(worlds[0], worlds[1], pilot).split(pilot)


def _published(facts: ItemFacts, item: int) -> tuple[float, ...]:
    """What is said about the audited item."""
    about = (facts.mean, facts.bias[item], facts.variance[item])
    return (*about, facts.popularity[item], facts.patterns[item, 0]) if facts.labels else about


def _alone(target: Target, rating: float | None) -> tuple[Ratings, PrivacyWeights]:
    """A world of the one rating: what else is in the sums, the attacker knows and subtracts."""
    shown = target.ends[1] if rating is None else rating
    world = Ratings.from_arrays([0], [0], [shown], scale=target.ratings.scale, name="one rating")
    if rating is None:
        world = world.take(np.zeros(0, np.int64))
    return world, PrivacyWeights.per_rating(world, np.full(len(world), target.weight))
