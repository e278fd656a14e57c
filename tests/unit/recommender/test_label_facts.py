"""What the recommender makes of sums per label."""

import numpy as np
import pytest
from msgspec.structs import replace

from hdpmf.common.data import Ratings
from hdpmf.common.privacy import PrivacyWeights
from hdpmf.common.privacy.sampling import SeededNoise
from hdpmf.common.protocol import Popularity, Survey
from hdpmf.errors import ProtocolError
from hdpmf.private.client.contributions import OneRoundClient
from hdpmf.untrusted.recommender.deconvolution import deconvolve, deconvolve_twice
from hdpmf.untrusted.recommender.one_round import facts_from_labels, make_grouping

N_USERS, N_ITEMS = 3000, 80


def two_tribes(seed=0):
    """Users of two kinds rate different items more often, and the same items differently."""
    rng = np.random.default_rng(seed)
    kind = rng.random(N_USERS) < 0.5
    feature = rng.choice([-1.0, 1.0], N_ITEMS)
    taste = rng.normal(0, 0.4, N_ITEMS)
    rated = rng.random((N_USERS, N_ITEMS)) < np.where(
        feature[None] == np.where(kind, 1, -1)[:, None], 0.35, 0.15
    )
    users, items = np.nonzero(rated)
    values = 3.4 + np.where(kind[users], 0.5, -0.5) * taste[items] + rng.normal(0, 0.8, len(users))
    values = np.clip(np.rint(values), 1, 5)
    return Ratings.from_arrays(users, items, values, scale=(1, 5, 1)), feature, taste


def run(table, feature, epsilon, seed=0):
    survey = Survey(
        design="A",
        coding="soft",
        epsilon=epsilon,
        n_items=N_ITEMS,
        catalogue="c",
        contributors=N_USERS,
        scale_low=1,
        scale_high=5,
        scale_step=1,
        labels=True,
    )
    shard = OneRoundClient(
        table,
        PrivacyWeights.uniform(table),
        SeededNoise(seed),
        epsilon=epsilon,
        catalogue="c",
        simulation=True,
    )
    shard.accept(survey)
    counted = shard.count()
    grouping = make_grouping(survey, [counted], feature[:, None], np.ones(1), 0.0)
    shard.group(grouping)
    return (
        survey,
        counted,
        grouping,
        facts_from_labels(survey, [counted], grouping, [shard.contribute()], feature[:, None]),
    )


@pytest.mark.parametrize(("epsilon", "least"), [(1.0, 0.7), (8.0, 0.9)])
def test_the_contrast_is_what_tells_the_tribes_apart(epsilon, least):
    table, feature, taste = two_tribes()
    survey, _, grouping, facts = run(table, feature, epsilon)
    assert np.array_equal(np.sign(grouping.scores), np.sign(feature))
    assert len(grouping.heads) == N_ITEMS
    assert np.corrcoef(facts.patterns[:, 0], taste)[0, 1] > least
    assert abs(np.average(facts.patterns[:, 0], weights=facts.popularity)) < 0.05
    shuffled = np.random.default_rng(1).permutation(feature)
    assert (
        abs(np.corrcoef(run(table, shuffled, epsilon)[3].patterns[:, 0], taste)[0, 1]) < least / 2
    )
    truth = np.bincount(table.item_codes, minlength=N_ITEMS)
    assert np.abs(facts.popularity - truth).mean() < 12 / epsilon
    assert survey.labels


def test_four_noises_are_reckoned_as_one_of_twice_the_scale():
    """Noise of twice the scale is that of half of epsilon; two servers add two."""
    table, feature, _ = two_tribes()
    whole, counted, grouping, _ = run(table, feature, 2.0)
    shard = OneRoundClient(
        table,
        PrivacyWeights.uniform(table),
        SeededNoise(1),
        epsilon=2.0,
        catalogue="c",
        simulation=True,
    )
    shard.accept(whole)
    shard.count()
    shard.group(grouping)
    answer, half = shard.contribute(), replace(whole, epsilon=1.0)
    found = make_grouping(whole, [counted], feature[:, None], np.ones(1), 0.5, 4)
    expected = make_grouping(half, [counted], feature[:, None], np.ones(1), 0.5)
    np.testing.assert_array_equal(found.scores, expected.scores)
    np.testing.assert_array_equal(found.heads, expected.heads)
    counted_all = facts_from_labels(whole, [counted], grouping, [answer], feature[:, None], 4)
    as_half = facts_from_labels(half, [counted], grouping, [answer], feature[:, None])
    ignored = facts_from_labels(whole, [counted], grouping, [answer], feature[:, None])
    for name in ("bias", "variance", "popularity", "patterns"):
        np.testing.assert_allclose(
            getattr(counted_all, name), getattr(as_half, name), rtol=1e-4, atol=1e-5
        )
    assert counted_all.variance.mean() > 1.02 * ignored.variance.mean()


def test_few_heads_make_no_contrast():
    table, feature, _ = two_tribes()
    few = table.take(np.flatnonzero(table.user_codes < 200))
    _, _, grouping, facts = run(few, feature, 1.0)
    assert 0 <= len(grouping.heads) < 30
    assert not facts.patterns.any()
    assert np.isfinite(facts.bias).all()


def test_scores_are_whole_and_bounded_whatever_the_weights():
    table, feature, _ = two_tribes()
    survey, counted, _, _ = run(table, feature, 1.0)
    wild = np.column_stack([feature * 1e6, np.zeros(N_ITEMS)])
    for weights in (np.array([1e6, 0.0]), np.zeros(2)):
        grouping = make_grouping(survey, [counted], wild, weights, 0.0)
        assert np.abs(grouping.scores).max() <= 64
    with pytest.raises(ProtocolError, match="not about"):
        make_grouping(survey, [Popularity(weights=counted.weights[1:])], wild, np.zeros(2), 0.0)


def test_two_releases_say_more_than_either():
    rng = np.random.default_rng(0)
    truth = rng.gamma(0.3, 60.0, 4000)
    first, second = truth + rng.laplace(0, 8, 4000), truth + rng.laplace(0, 6, 4000)
    errors = [np.sqrt(((one.mean - truth) ** 2).mean()) for one in (
        deconvolve(first, 8.0), deconvolve(second, 6.0),
        deconvolve_twice(first, 8.0, second, np.full(4000, 6.0)),
    )]  # fmt: skip
    assert errors[2] < 0.9 * min(errors[:2])
