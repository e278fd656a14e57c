"""Known answers: how ratings become whole numbers, and with how much noise they go."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from hdpmf.common.data import RatingScale
from hdpmf.common.privacy.coding import (
    bit_height,
    bit_probability,
    levels_of,
    make_coding,
    make_ruler,
    n_levels,
    sum_channels,
    weight_units,
)
from hdpmf.errors import ConfigError, PrivacyError, RatingsError

STARS, HALVES, ANY = RatingScale(1, 5, 1), RatingScale(0.5, 5, 0.5), RatingScale(-10, 10)


@pytest.mark.parametrize(
    ("name", "scale", "entries", "unit"),
    [
        ("soft", STARS, [-5, -5, -2, 3, 5], 0.1),
        ("threshold", STARS, [-5, -5, -5, 5, 5], 0.1),
        ("linear", STARS, [-2, -1, 0, 1, 2], 0.25),
        ("linear", HALVES, [-9, -7, -5, -3, -1, 1, 3, 5, 7, 9], 1 / 18),
        ("threshold", HALVES, [-5] * 7 + [5] * 3, 0.1),
        ("soft", RatingScale(0, 8, 1), [-10, -10, -10, -7, -4, 1, 6, 8, 10], 0.05),
    ],
)
def test_entries(name: str, scale: RatingScale, entries: list[int], unit: float) -> None:
    coding = make_coding(name, scale, 1.0)
    assert coding.entries.tolist() == entries
    assert coding.unit == pytest.approx(unit)
    assert coding.value_step == max(entries) - min(entries)
    assert coding.presence_step == max(map(abs, entries))
    every = np.linspace(scale.low, scale.high, len(entries), dtype=np.float32)
    assert coding.encode(every).tolist() == entries
    assert not coding.entries.flags.writeable


def test_a_scale_without_steps_is_cut_finely() -> None:
    assert n_levels(ANY) == 1000
    coding = make_coding("soft", ANY, 1.0)
    assert len(coding.entries) == 1001
    assert (coding.entries.min(), coding.entries.max(), coding.unit) == (-5, 5, 0.1)
    assert levels_of(np.array([-10, 0, 0.01, 10], np.float32), ANY).tolist() == [0, 500, 500, 1000]


def test_the_curve_goes_by_epsilon() -> None:
    assert [make_coding("auto", STARS, epsilon).name for epsilon in (0.1, 3.99, 4.0)] == [
        "soft",
        "soft",
        "linear",
    ]
    assert make_ruler(STARS).name == "linear"
    with pytest.raises(ConfigError, match="coding must be"):
        make_coding("steep", STARS, 1.0)
    with pytest.raises(ConfigError, match="do not fit"):
        n_levels(RatingScale(1, 5, 0.3))


def test_what_is_off_the_scale_is_refused() -> None:
    for off in (0.99, 5.01, float("nan")):
        with pytest.raises(RatingsError, match="off the public scale"):
            levels_of(np.array([3.0, off], np.float32), STARS)
    assert levels_of(np.array([0.9999, 5.0001, 2.4], np.float32), STARS).tolist() == [0, 4, 1]


def test_noise_of_sums() -> None:
    coding = make_coding("soft", STARS, 0.5)
    plain = sum_channels(coding, 0.5)
    assert plain.score.scale == Fraction(64 * 10, 1) / (Fraction(1, 2) * Fraction(49, 50))
    assert plain.total.scale == Fraction(64 * 4 * 100)
    assert plain.weight.scale == 64 * 4 * 2
    # One step of a weight unit costs a 64th of what a whole rating does.
    assert plain.value_cost == Fraction(1, 2)
    assert plain.presence_cost == Fraction(3, 8)
    for epsilon in (0.0, -1.0, float("inf"), float("nan")):
        with pytest.raises(PrivacyError, match="positive number"):
            sum_channels(coding, epsilon)


def test_weights_are_rounded_down() -> None:
    assert weight_units(np.array([1.0, 0.999, 0.5, 1 / 64, 0.0156, 0.001])).tolist() == [
        64,
        63,
        32,
        1,
        0,
        0,
    ]


def test_bits() -> None:
    coding = make_coding("soft", STARS, 1.0)
    units = np.array([64, 32, 64, 64, 64])
    np.testing.assert_allclose(
        bit_probability(coding.entries, units, coding, 2.0),
        0.5 + np.array([-0.5, -0.5, -0.2, 0.3, 0.5]) * np.tanh([1.0, 0.5, 1.0, 1.0, 1.0]),
    )
    np.testing.assert_allclose(bit_height(units[:2], 2.0), 0.5 / np.tanh([1.0, 0.5]))
