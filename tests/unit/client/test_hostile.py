"""Bad input and hostile peers of a one-round design: refused with a reason, and what was spent
stays as it was.
"""

import math

import numpy as np
import pytest

from hdpmf.common.data import Ratings
from hdpmf.common.privacy import PrivacyWeights
from hdpmf.common.privacy.sampling import SeededNoise
from hdpmf.common.protocol import Survey, decode, encode
from hdpmf.errors import PrivacyError, ProtocolError, RatingsError
from hdpmf.private.client.contributions import OneRoundClient

DESIGNS = ("A", "S", "L")


def shard_of(ratings, weights=None, epsilon=1.0):
    weights = PrivacyWeights.uniform(ratings, 1.0) if weights is None else weights
    noise = SeededNoise(0)
    return OneRoundClient(ratings, weights, noise, epsilon=epsilon, catalogue="c", simulation=True)


def survey_for(ratings, design="A", **changes):
    scale = ratings.scale
    fields = {
        "design": design,
        "coding": "soft",
        "epsilon": 1.0,
        "n_items": ratings.n_items,
        "catalogue": "c",
        "contributors": 5,
        "scale_low": scale.low,
        "scale_high": scale.high,
        "scale_step": scale.step,
    }
    return Survey(**(fields | changes))


def some_ratings(values=(1.0, 4.0, 5.0)):
    return Ratings.from_arrays([1, 1, 2], [10, 11, 11], list(values), scale=(1, 5, 1))


@pytest.mark.parametrize("design", DESIGNS)
@pytest.mark.parametrize("wrong", [0.0, 6.0, -1e6, math.nan, math.inf])
def test_a_rating_off_the_scale_is_refused_and_nothing_is_spent(design, wrong):
    with pytest.raises(RatingsError):
        some_ratings((1.0, 4.0, wrong))  # at the door
    ratings = some_ratings()
    ratings.values.setflags(write=True)  # past the door: a device whose memory or file was changed
    ratings.values[2] = wrong
    shard = shard_of(ratings)
    shard.accept(survey_for(ratings, design))
    with pytest.raises(RatingsError, match="off the public scale") as refusal:
        shard.contribute()
    assert "nothing was sent" in str(refusal.value)
    assert shard.spent is None
    ratings.values[2] = 5.0
    shard.contribute()
    assert shard.spent is not None


@pytest.mark.parametrize("wrong", [math.nan, math.inf, 0.0, -1.0])
def test_an_epsilon_that_is_no_budget_makes_no_survey(wrong):
    with pytest.raises(ProtocolError, match="epsilon must be a positive number"):
        survey_for(some_ratings(), epsilon=wrong)


@pytest.mark.parametrize("field", ["epsilon", "scale_high"])
def test_numbers_that_are_none_do_not_come_over_the_wire(field):
    good = encode(survey_for(some_ratings()))
    for word in (
        b"\xcb\x7f\xf8" + 6 * b"\0",
        b"\xcb\x7f\xf0" + 6 * b"\0",
    ):  # NaN and infinity in MessagePack
        place = good.index(field.encode()) + len(field)
        assert good[place : place + 1] == b"\xcb"
        with pytest.raises(ProtocolError):
            decode(good[:place] + word + good[place + 9 :])


@pytest.mark.parametrize("design", DESIGNS)
def test_weights_of_other_ratings_are_refused_and_nothing_is_spent(design):
    ratings = some_ratings()
    shard = shard_of(ratings, PrivacyWeights.per_rating(ratings.take([0, 1]), [1.0, 1.0]))
    shard.accept(survey_for(ratings, design))
    with pytest.raises(PrivacyError, match="table of 2 ratings"):
        shard.contribute()
    assert shard.spent is None


@pytest.mark.parametrize("design", DESIGNS)
def test_weights_below_the_grid_send_noise_or_nothing_and_are_counted(design):
    ratings = some_ratings()
    shard = shard_of(ratings, PrivacyWeights.per_rating(ratings, [1 / 65, 1 / 1000, 1.0]))
    shard.accept(survey_for(ratings, design))
    sent = shard.contribute()
    assert shard.n_silent == 2
    if design == "L":
        assert np.array_equal(sent.items, [1])


def test_what_was_agreed_to_holds_for_everything_that_comes_after():
    ratings = some_ratings()
    shard = shard_of(ratings)
    shard.accept(survey_for(ratings))
    for change in (
        {"epsilon": 0.9},
        {"catalogue": "d"},
        {"contributors": 9},
        {"coding": "linear"},
        {"design": "L"},
    ):
        with pytest.raises(ProtocolError, match="refused"):
            shard.accept(survey_for(ratings, **change))
    assert shard.spent is None
    shard.contribute()
    before = shard.spent
    for attack in (shard.contribute, lambda: shard.accept(survey_for(ratings, epsilon=1e-6))):
        with pytest.raises(ProtocolError, match="spent their budget"):
            attack()
    assert shard.spent == before
    assert before.epsilon == 1.0
