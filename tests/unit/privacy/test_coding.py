"""What the guarantee of the one-round designs stands on, checked by brute force on many scales."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hdpmf.common.data import RatingScale
from hdpmf.common.privacy.coding import (
    CURVES,
    WEIGHT_UNITS,
    bit_height,
    bit_probability,
    levels_of,
    make_coding,
    make_ruler,
    sum_channels,
    weight_units,
)
from hdpmf.common.privacy.sampling import bit_thresholds
from hdpmf.errors import ConfigError, PrivacyError, RatingsError

SCALES = [
    RatingScale(1, 5, 1),
    RatingScale(1, 5),
    RatingScale(0.5, 5, 0.5),
    RatingScale(1, 10, 1),
    RatingScale(0, 100, 1),
    RatingScale(0, 100),
    RatingScale(-1, 1, 2),
    RatingScale(0, 1, 0.1),
    RatingScale(-10, 10, 0.25),
]
EPSILONS = st.floats(1e-3, 100)


def every_rating(scale):
    step = scale.step or scale.width / 997
    return np.append(np.arange(scale.low, scale.high, step), scale.high).astype(np.float32)


def test_the_published_coding_on_stars():
    soft = make_coding("soft", RatingScale(1, 5, 1), 1.0)
    assert soft.encode(np.arange(1, 6, dtype=np.float32)).tolist() == [-5, -5, -2, 3, 5]
    assert soft.unit * WEIGHT_UNITS**-1 == pytest.approx(1 / 640)
    assert make_coding("threshold", RatingScale(1, 5, 1), 1.0).entries.tolist() == [
        -5,
        -5,
        -5,
        5,
        5,
    ]
    half = make_coding("soft", RatingScale(1, 5, 0.5), 1.0)
    assert (half.entries * half.unit + 0.5).tolist() == pytest.approx(
        [0, 0, 0, 0.15, 0.3, 0.55, 0.8, 0.9, 1]
    )


@pytest.mark.parametrize("scale", SCALES, ids=str)
@pytest.mark.parametrize("name", CURVES)
def test_entries_are_whole_centred_and_bounded_by_their_steps(name, scale):
    coding = make_coding(name, scale, 1.0)
    entries = coding.encode(every_rating(scale))
    assert entries.dtype == np.int64
    # Brute force over every pair of ratings on the scale.
    assert int(entries.max() - entries.min()) == coding.value_step
    assert int(np.abs(entries).max()) == coding.presence_step
    assert 2 * coding.presence_step == coding.value_step
    assert (entries * coding.unit).max() == pytest.approx(0.5)
    assert (np.diff(entries) >= 0).all()


@pytest.mark.parametrize("scale", SCALES, ids=str)
def test_the_ruler_measures_ratings(scale):
    ruler = make_ruler(scale)
    ratings = every_rating(scale)
    measured = scale.middle + ruler.encode(ratings) * ruler.unit * scale.width
    assert np.abs(measured - ratings).max() <= (
        scale.width / 2000 + 1e-5 if scale.step is None else 1e-4
    )


@pytest.mark.parametrize("scale", SCALES, ids=str)
@pytest.mark.parametrize("name", CURVES)
@given(epsilon=EPSILONS)
def test_the_theorem_holds_exactly(name, scale, epsilon):
    """Value: W epsilon. Presence: three quarters of it. In fractions."""
    budget = Fraction(epsilon)
    channels = sum_channels(make_coding(name, scale, epsilon), epsilon)
    assert channels.value_cost == budget
    assert channels.presence_cost == budget * 3 / 4


def test_the_noise_on_stars_is_the_published_one():
    channels = sum_channels(make_coding("soft", RatingScale(1, 5, 1), 1.0), 1.0)
    assert channels.score.scale == Fraction(640) / Fraction(98, 100)
    assert channels.weight.scale == 64 * 4
    # Units of a 64th of half a star's range: 4/em stars are 4 * 64 * (4 units per 4 stars) / em.
    assert channels.total.scale == Fraction(64 * 4) / Fraction(2, 100)


@given(weights=st.lists(st.floats(1e-9, 1.0), min_size=1, max_size=20))
def test_weights_are_never_rounded_up(weights):
    units = weight_units(np.array(weights))
    assert (units / WEIGHT_UNITS <= np.array(weights)).all()
    assert (units >= 0).all()
    assert ((units == 0) == (np.array(weights) < 1 / 64)).all()


@given(epsilon=EPSILONS, unit=st.integers(1, 64))
def test_bits_keep_their_ratio_and_are_unbiased(epsilon, unit):
    for name in CURVES:
        coding = make_coding(name, RatingScale(1, 5, 1), 1.0)
        units = np.full(len(coding.entries), unit)
        plus = bit_probability(coding.entries, units, coding, epsilon)
        budget = epsilon * unit / WEIGHT_UNITS
        # What is really drawn: whole multiples of 2^-63, after every rounding on the way.
        thresholds = bit_thresholds(plus, np.full(len(plus), budget)).astype(object)
        for drawn in (thresholds, 2**63 - thresholds):
            assert math.log(max(drawn)) - math.log(min(drawn)) <= budget * (1 + 1e-15)
        mean = (2 * plus - 1) * bit_height(units, epsilon)
        np.testing.assert_allclose(mean, coding.entries / coding.value_step, atol=1e-12)


def test_what_cannot_be_coded_is_refused():
    with pytest.raises(RatingsError, match="off the public scale"):
        levels_of(np.array([3.0, 5.5], np.float32), RatingScale(1, 5, 1))
    with pytest.raises(RatingsError, match="off the public scale"):
        levels_of(np.array([np.nan], np.float32), RatingScale(1, 5, 1))
    with pytest.raises(ConfigError, match="do not fit the scale"):
        make_coding("soft", RatingScale(0, 1, 0.3), 1.0)
    with pytest.raises(ConfigError, match="coding must be"):
        make_coding("loud", RatingScale(1, 5), 1.0)
    for epsilon in (0.0, -1.0, float("nan"), float("inf")):
        with pytest.raises(PrivacyError, match="epsilon"):
            sum_channels(make_coding("soft", RatingScale(1, 5), 1.0), epsilon)


def test_a_rating_just_above_the_top_of_a_fine_scale_has_the_top_level() -> None:
    """What is allowed for rounding grows with the levels, and is more than half a one here."""
    scale = RatingScale(0, 1_000_000, 1)
    top = np.array([1_000_000.6, 1_000_000.0, 0.0], np.float32)
    assert levels_of(top, scale).tolist() == [1_000_000, 1_000_000, 0]
