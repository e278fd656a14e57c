"""Taste labels on the private side: drawn once, at the stated odds, from what was rated and
never from how.
"""

import math
from fractions import Fraction

import numpy as np
import pytest

from hdpmf.common.data import Ratings
from hdpmf.common.privacy import PrivacyWeights
from hdpmf.common.privacy.coding import (
    make_coding,
    rare_label_probability,
    sum_channels,
    weight_units,
)
from hdpmf.common.privacy.sampling import ReleasedNoise, SeededNoise, bit_thresholds
from hdpmf.common.protocol import Grouping, Popularity, decode, encode
from hdpmf.errors import PrivacyError, ProtocolError, RatingsError
from hdpmf.private.client.contributions import OneRoundClient
from hdpmf.untrusted.recommender.one_round import facts_from_labels

from . import surveys
from .surveys import WEIGHTS, WORLD

SCORES = np.random.default_rng(3).integers(-64, 65, 40)
HEADS = np.arange(3, 38)
GROUPING = Grouping(scores=SCORES, heads=HEADS)
FEATURES = np.random.default_rng(4).normal(size=(40, 3))


class Silent:
    """No noise, and labels as the scores say."""

    def discrete_laplace(self, scale, size):
        return np.zeros(size, np.int64)

    def laplace_share(self, scale, n_shares, size, *, count=1):
        return np.zeros(size, np.int64)

    def bits(self, p_plus, epsilon=None):
        return np.zeros(len(p_plus), bool)


def survey_for(ratings=WORLD, **changes):
    return surveys.survey_for(ratings, **({"labels": True} | changes))


def make_shard(ratings=WORLD, noise=None, weights=WEIGHTS, **changes):
    options = {"epsilon": 1.0, "catalogue": "c", "simulation": True} | changes
    return OneRoundClient(ratings, weights, noise or Silent(), **options)


def answers(shard, survey, grouping=GROUPING):
    shard.accept(decode(encode(survey)))
    counted = decode(encode(shard.count()))
    shard.group(decode(encode(grouping)))
    return counted, decode(encode(shard.contribute()))


def test_heads_are_summed_per_label_and_nothing_is_lost():
    counted, reply = answers(make_shard(), survey_for())
    plain = make_shard()
    plain.accept(survey_for(labels=False))
    whole = plain.contribute()
    units = weight_units(WEIGHTS.for_ratings(WORLD))
    votes = np.bincount(WORLD.user_codes, units * SCORES[WORLD.item_codes], 60) > 0
    assert 5 < votes.sum() < 55
    for name in ("scores", "weights"):
        here, all_ = getattr(reply, name), getattr(whole, name)
        assert len(here) == 40 + len(HEADS)
        together = here[:40].copy()
        together[HEADS] += here[40:]
        assert np.array_equal(together, all_)
    of_ones = np.bincount(WORLD.item_codes, units * votes[WORLD.user_codes], 40)[HEADS]
    assert np.array_equal(reply.weights[40:], of_ones)
    assert np.array_equal(counted.weights, whole.weights)
    assert reply.total == whole.total


def test_a_shard_made_anew_goes_on_with_the_labels_that_were_drawn():
    class Undrawn(Silent):
        def bits(self, p_plus, epsilon=None):
            raise AssertionError("a label is drawn again")

    first = make_shard(noise=SeededNoise(1))
    first.accept(survey_for())
    first.count()
    first.group(GROUPING)
    again, silent = make_shard(noise=Undrawn()), make_shard()
    for one in (again, silent):
        one.accept(survey_for())
    again.resume(GROUPING, first.labels)
    silent.resume()
    silent.group(GROUPING)
    units = weight_units(WEIGHTS.for_ratings(WORLD))
    of_ones = np.bincount(WORLD.item_codes, units * first.labels[WORLD.user_codes], 40)[HEADS]
    reply = again.contribute()
    assert np.array_equal(reply.weights[40:], of_ones)
    assert not np.array_equal(reply.weights, silent.contribute().weights)
    for step in (
        again.count,
        again.contribute,
        lambda: again.group(GROUPING),
        lambda: again.resume(),
    ):
        with pytest.raises(ProtocolError):
            step()


def test_labels_of_others_are_refused():
    fresh = make_shard()
    with pytest.raises(ProtocolError):
        fresh.resume()
    fresh.accept(survey_for())
    other = Grouping(scores=SCORES[:-1], heads=HEADS[:-1])
    for wrong in (
        (GROUPING, None),
        (None, np.zeros(60, bool)),
        (GROUPING, np.zeros(59, bool)),
        (GROUPING, np.zeros(60, int)),
        (other, np.zeros(60, bool)),
    ):
        with pytest.raises(ProtocolError):
            fresh.resume(*wrong)
    assert fresh.spent is None
    fresh.resume(GROUPING, np.zeros(60, bool))
    assert fresh.spent is not None


@pytest.mark.parametrize(
    "wrong",
    [
        {"scores": np.array([-(2**63), *SCORES[1:]])},
        {"heads": np.array([5, -(2**63) + 2, 0])},
        {"heads": np.array([5, 2**63 - 1])},
    ],
)
def test_numbers_that_wrap_around_are_outside_the_bounds(wrong):
    with pytest.raises(ProtocolError, match="Grouping refused"):
        Grouping(**({"scores": SCORES, "heads": HEADS} | wrong))


def test_any_partition_into_shards_gives_the_same_facts():
    survey, results = survey_for(), []
    for n in (1, 2, 7, 60):
        owners = WORLD.user_codes % n
        parts = [
            (WORLD.take(np.flatnonzero(owners == k)), int((np.arange(60) % n == k).sum()))
            for k in range(n)
        ]
        pairs = [answers(make_shard(part, n_users=users), survey) for part, users in parts]
        counted, replies = [list(column) for column in zip(*pairs, strict=True)]
        results.append(facts_from_labels(survey, counted, GROUPING, replies, FEATURES))
    for facts in results[1:]:
        assert np.array_equal(facts.bias, results[0].bias)
        assert np.array_equal(facts.patterns, results[0].patterns)
    assert results[0].patterns.shape == (40, 1)
    assert np.abs(results[0].patterns).max() > 0.5


@pytest.mark.slow
@pytest.mark.parametrize("epsilon", [1e-4, 0.1, 1.0, 8.0])
def test_labels_never_tell_more_of_a_rating_than_is_paid_for(epsilon):
    """By the whole numbers that labels are really drawn with: both labels, sums that a rating of
    any weight moves.
    """
    rng = np.random.default_rng(0)
    largest = int(40 / epsilon * 4096)
    sums = np.concatenate(
        [rng.integers(-largest, largest, 300), np.arange(-5, 6), [-largest, largest]]
    )
    for weight in (1, 7, 64):
        for score in (1, -64, 64):
            moved = sums + weight * score
            allowed = 0.2 * epsilon * weight / 64 * abs(score) / 64
            one = [_chances(int(s), epsilon) for s in sums]
            other = [_chances(int(s), epsilon) for s in moved]
            for left, right in zip(one, other, strict=True):
                for a, b in zip(left, right, strict=True):
                    assert abs(math.log1p(float(Fraction(a - b, b)))) <= allowed


def _chances(total: int, epsilon: float) -> tuple[int, int]:
    """Of the labels 1 and 0, in 2^-63, as ``group`` draws them."""
    rare = int(bit_thresholds(rare_label_probability(np.array([float(total)]), epsilon))[0])
    return (2**63 - rare, rare) if total > 0 else (rare, 2**63 - rare)


def test_labels_are_close_to_the_stated_odds():
    total = np.array([0.0, 4096.0, 40 * 4096.0, -40 * 4096.0])
    expected = 1 / (1 + np.exp(0.2 * np.abs(total) / 4096))
    np.testing.assert_allclose(rare_label_probability(total, 1.0), expected, rtol=0.01)
    with pytest.raises(PrivacyError, match="at least"):
        rare_label_probability(total, 1e-5)


def test_the_law_of_labels_is_the_stated_one():
    """4,000 devices with the same two ratings, with the operating system's entropy; level 1e-6."""
    n = 4000
    users = np.repeat(np.arange(n), 2)
    table = Ratings.from_arrays(users, np.tile([0, 1], n), np.full(2 * n, 3.0), scale=(1, 5, 1))
    shard = OneRoundClient(
        table, PrivacyWeights.uniform(table), ReleasedNoise(), epsilon=4.0, catalogue="c"
    )
    shard.accept(survey_for(table, epsilon=4.0))
    shard.count()
    shard.group(Grouping(scores=np.array([64, 32]), heads=np.array([0, 1])))
    part = shard.contribute().weights[2:].mean() / 64 / n
    p = 1 / (1 + math.exp(-0.2 * 4 * 1.5))
    assert abs(part - p) < 5 * math.sqrt(p * (1 - p) / n) + 3 * 6 / 4 / n


def test_values_have_no_say_in_labels_and_move_one_entry():
    rng = np.random.default_rng(1)
    channels = sum_channels("A", make_coding("soft", WORLD.scale, 1.0), 1.0, labels=True)
    units = weight_units(WEIGHTS.for_ratings(WORLD))
    _, before = answers(make_shard(), survey_for())
    for row in rng.choice(len(WORLD), 20, replace=False):
        values = WORLD.values.copy()
        values[row] = 6 - values[row]
        changed = Ratings(
            WORLD.users, WORLD.items, WORLD.user_codes, WORLD.item_codes, values, scale=WORLD.scale
        )
        _, after = answers(make_shard(changed), survey_for())
        moved = np.abs(after.scores - before.scores)
        assert np.count_nonzero(moved) <= 1
        assert moved.sum() <= units[row] * channels.score.value_step
        assert np.array_equal(after.weights, before.weights)


def test_presence_costs_what_the_channels_say():
    channels = sum_channels("A", make_coding("soft", WORLD.scale, 1.0), 1.0, labels=True)
    assert float(channels.value_cost) == 1.0
    assert float(channels.presence_cost) == pytest.approx(0.2 + 1 / 8 + 0.49 + 1 / 6 + 0.01)
    assert float(channels.presence_cost) <= 0.992
    assert float(channels.popularity.scale) == 64 * 8
    assert float(channels.weight.scale) == 64 * 6


def test_each_step_comes_once_and_in_its_turn():
    shard = make_shard(noise=SeededNoise(0))
    with pytest.raises(ProtocolError, match="no survey with taste labels"):
        shard.count()
    shard.accept(survey_for())
    for early in (lambda: shard.group(GROUPING), shard.contribute):
        with pytest.raises(ProtocolError, match="refused"):
            early()
    assert shard.spent is None
    shard.count()
    spent = shard.spent
    assert spent.epsilon == 1.0  # all of it, from the first answer on
    for wrong in (shard.count, shard.contribute, lambda: shard.accept(survey_for())):
        with pytest.raises(ProtocolError, match="refused"):
            wrong()
    with pytest.raises(ProtocolError, match="another item table"):
        shard.group(Grouping(scores=SCORES[1:], heads=HEADS[:3]))
    shard.group(GROUPING)
    with pytest.raises(ProtocolError, match="drawn once"):
        shard.group(GROUPING)
    shard.contribute()
    for again in (shard.contribute, shard.count, lambda: shard.group(GROUPING)):
        with pytest.raises(ProtocolError, match="refused"):
            again()
    assert shard.spent == spent


def test_labels_are_not_for_those_who_did_not_agree():
    shard = make_shard(noise=SeededNoise(0))
    shard.accept(survey_for(labels=False))
    with pytest.raises(ProtocolError, match="no survey with taste labels"):
        shard.count()
    with pytest.raises(ProtocolError, match="not agreed on"):
        shard.group(GROUPING)
    shard.contribute()
    with pytest.raises(ProtocolError, match="not agreed on"):
        shard.group(GROUPING)


@pytest.mark.parametrize(
    "change",
    [
        {"scores": np.array([65, 0])},
        {"scores": np.array([-65, 0])},
        {"scores": np.array([[1, 0]])},
        {"scores": np.array([0.5, 0.5])},
        {"heads": np.array([1, 1])},
        {"heads": np.array([1, 0])},
        {"heads": np.array([2])},
        {"heads": np.array([-1])},
    ],
)
def test_groupings_that_make_no_sense_are_refused(change):
    with pytest.raises(ProtocolError):
        Grouping(**({"scores": np.array([1, -1]), "heads": np.array([0, 1])} | change))
    with pytest.raises(ProtocolError, match="only design A"):
        survey_for(design="S")
    with pytest.raises(ProtocolError, match="int64"):
        Popularity(weights=np.array([0.5]))


def test_a_rating_off_the_scale_is_found_before_anything_is_sent():
    table = Ratings.from_arrays([1, 1, 2], [10, 11, 11], [1.0, 4.0, 5.0], scale=(1, 5, 1))
    table.values.setflags(write=True)
    table.values[2] = 6.0
    shard = make_shard(table, weights=PrivacyWeights.uniform(table))
    shard.accept(survey_for(table))
    with pytest.raises(RatingsError, match="nothing was sent"):
        shard.count()
    assert shard.spent is None
