"""The conversation of a one-round design, both sides in one process: what the recommender asks and makes of it."""

from __future__ import annotations

import numpy as np

from hdpmf.errors import ConfigError
from hdpmf.privacy.sampling import SeededNoise
from hdpmf.privacy.weights import PrivacyWeights
from hdpmf.protocol import BitContribution, ItemFacts, SumContribution, Survey
from hdpmf.public.priors import POPULARITY, Labels
from hdpmf.ratings import Ratings
from hdpmf.ratings.item_features import ItemFeatures
from hdpmf.recommender.item_bias import facts_from_bits, facts_from_sums
from hdpmf.recommender.labels import facts_from_labels, make_grouping
from hdpmf.shard.contribution import OneRoundShard


def ask(
    survey: Survey,
    ratings: Ratings,
    weights: PrivacyWeights,
    seed: int,
    *,
    features: ItemFeatures | None,
    labels: Labels | None = None,
    n_patterns: int = 0,
) -> tuple[ItemFacts, int]:
    """Simulate the round.

    Args:
        survey: What is asked.
        ratings: Of all users.
        weights: Their privacy weights.
        seed: Of the simulated noise.
        features: Public item features.
        labels: By what devices draw taste labels, where the survey is by labels.
        n_patterns: How many rating patterns to look for in bits.

    Returns:
        The item facts, and how many ratings sent nothing.
    """
    shard = OneRoundShard(
        ratings,
        weights,
        SeededNoise(seed, stream=3),
        epsilon=survey.epsilon,
        catalogue=survey.catalogue,
        simulation=True,
    )
    shard.accept(survey)
    if survey.labels:
        return shard.check(_ask_by_labels(survey, shard, features, labels)), shard.n_silent
    facts = post_process(survey, shard.contribute(), None if features is None else features.matrix, n_patterns)
    return shard.check(facts), shard.n_silent


def post_process(
    survey: Survey, answer: SumContribution | BitContribution, features: np.ndarray | None, n_patterns: int = 0
) -> ItemFacts:
    """What the recommender makes of the answer of all shards."""
    if isinstance(answer, BitContribution):
        return facts_from_bits(survey, [answer], features, n_patterns)
    return facts_from_sums(survey, [answer], features)


def _ask_by_labels(
    survey: Survey, shard: OneRoundShard, features: ItemFeatures | None, labels: Labels | None
) -> ItemFacts:
    if labels is None or features is None:
        raise ConfigError(
            "taste labels are drawn by a public score of item features; give features, and a prior that knows a score "
            "(films, films-100k, or one of: hdpmf prior learn)"
        )
    counted = shard.count()
    weights = labels.weights(features.names)
    grouping = make_grouping(survey, [counted], features.matrix, weights, labels.score.get(POPULARITY, 0.0))
    shard.group(grouping)
    answer = shard.contribute()
    if isinstance(answer, BitContribution):
        raise ConfigError("taste labels are for sums over users, not for bits")
    return facts_from_labels(survey, [counted], grouping, [answer], features.matrix)
