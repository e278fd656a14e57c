"""What one user's report to two servers says: the sums of masked runs, user by user and without
noise.
"""

from __future__ import annotations

import numpy as np
import pytest

from hdpmf.common.data import Ratings, RatingScale
from hdpmf.common.privacy import PrivacyWeights
from hdpmf.common.privacy.sampling import SeededNoise
from hdpmf.common.protocol import Grouping
from hdpmf.common.protocol.layout import survey_circuit
from hdpmf.errors import PrivacyError, ProtocolError, RatingsError
from hdpmf.private.client.contributions import OneRoundClient

from .surveys import WEIGHTS, WORLD, survey_for

GROUPING = Grouping(scores=np.arange(40) * 3 - 60, heads=np.array([2, 3, 17, 39]))


class Silent(SeededNoise):
    """Labels are drawn, all else is off."""

    def laplace_share(self, scale, n_shares, size, *, count=1):
        return np.zeros(size, np.int64)


def make_shard(survey, ratings=WORLD, weights=WEIGHTS, **options):
    settings = {"epsilon": 1.0, "catalogue": "c", "simulation": True} | options
    shard = OneRoundClient(ratings, weights, Silent(1), **settings)
    shard.accept(survey)
    return shard


def added_up(circuit, entries):
    """What the circuit makes of all users' entries."""
    codes, rulers = np.array(circuit.codes), np.array(circuit.rulers)
    scores, totals, total = np.zeros(circuit.items, np.int64), np.zeros(circuit.items, np.int64), 0
    for weights, levels in entries:
        assert weights.shape == levels.shape == (circuit.items,)
        assert ((weights >= 0) & (weights <= 64)).all()
        scores += weights * codes[levels]
        totals += weights
        total += int((weights * rulers[levels]).sum())
    return scores, totals, total


@pytest.mark.parametrize("n_users", [None, 60, 63])
@pytest.mark.parametrize(("design", "coding"), [("A", "soft"), ("A", "threshold"), ("A", "linear")])
def test_users_entries_add_up_to_the_sums_without_noise(design, coding, n_users):
    survey = survey_for(design=design, coding=coding)
    circuit, _ = survey_circuit(survey)
    entries = list(make_shard(survey).entries(n_users))
    sums = make_shard(survey).contribute()
    assert len(entries) == (n_users or 60)
    assert all(not weights.any() for weights, _ in entries[60:])
    scores, weights, total = added_up(circuit, entries)
    assert np.array_equal(scores, sums.scores)
    assert np.array_equal(weights, sums.weights)
    assert total == sums.total
    assert sums.weights.sum() > 1000


def test_each_users_are_their_own():
    survey = survey_for()
    entries = list(make_shard(survey).entries())
    for user in (0, 17, 59):
        rows = np.flatnonzero(WORLD.user_codes == user)
        alone = make_shard(survey, WORLD.take(rows), WEIGHTS.take(rows), n_users=1).contribute()
        assert np.array_equal(entries[user][0], alone.weights)


def test_counts_have_no_levels():
    survey = survey_for(labels=True)
    assert not any(levels.any() for _, levels in make_shard(survey).entries())


def test_an_answer_is_given_once():
    shard = make_shard(survey_for())
    list(shard.entries())
    with pytest.raises(ProtocolError, match="once"):
        shard.entries()
    with pytest.raises(ProtocolError, match="once"):
        shard.contribute()
    labelled = make_shard(survey_for(labels=True))
    labelled.entries()
    with pytest.raises(ProtocolError, match="once"):
        labelled.entries()
    labelled.group(GROUPING)
    labelled.entries()
    with pytest.raises(ProtocolError, match="once"):
        labelled.entries()


def test_what_cannot_be_answered_is_refused():
    unasked = OneRoundClient(WORLD, WEIGHTS, Silent(1), epsilon=1.0, catalogue="c", simulation=True)
    with pytest.raises(ProtocolError, match="accept"):
        unasked.entries()
    with pytest.raises(ProtocolError, match="sums"):
        make_shard(survey_for(design="L", coding="threshold")).entries()
    with pytest.raises(PrivacyError, match="more than"):
        list(make_shard(survey_for()).entries(59))


def test_nobody_has_rated():
    nothing = WORLD.take(np.zeros(0, np.intp))
    entries = list(
        make_shard(survey_for(nothing), nothing, WEIGHTS.take(np.zeros(0, np.intp))).entries(3)
    )
    assert len(entries) == 3
    assert not any(weights.any() or levels.any() for weights, levels in entries)


def test_counts_too_refuse_what_is_off_the_scale():
    table = Ratings.from_arrays([0, 1], [0, 1], [1.0, 5.0], scale=RatingScale(1, 5, 1))
    weights = PrivacyWeights.uniform(table)
    broken = make_shard(survey_for(table, labels=True), table, weights)
    table.values.setflags(write=True)
    table.values[0] = 7.0
    with pytest.raises(RatingsError, match="scale"):
        list(broken.entries())
