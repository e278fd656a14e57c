"""Whose epsilon: all ratings of one person together, and at most so many of them."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hdpmf.common.data import Ratings, synthetic_world
from hdpmf.common.methods.builtin import HDP_SUM
from hdpmf.common.privacy import PrivacySpec, PrivacyWeights
from hdpmf.common.privacy.accounting import Setting, cost, epsilon_at, person_costs
from hdpmf.common.privacy.accounting.accountants import Composed, PureRelease
from hdpmf.common.privacy.mechanisms import bound_contributions
from hdpmf.errors import ConfigError
from hdpmf.models import HDPBit, HDPSum

WORLD = synthetic_world(n_users=60, n_items=80, n_ratings=1800, rng=3)
WEIGHTS = PrivacySpec().draw(WORLD, rng=0)
OTHER_VALUES = Ratings(
    WORLD.users,
    WORLD.items,
    WORLD.user_codes,
    WORLD.item_codes,
    6 - WORLD.values,
    scale=WORLD.scale,
)


@given(st.lists(st.integers(0, 6), max_size=60), st.integers(1, 12), st.integers(0, 2**32))
def test_at_most_so_many_of_each_and_never_fewer_than_there_are(
    users: list[int], most: int, seed: int
) -> None:
    codes = np.array(users, np.int64)
    kept = bound_contributions(codes, most, np.random.default_rng(seed).random(len(codes)))
    assert (np.diff(kept) > 0).all()
    assert np.bincount(codes[kept], minlength=7).tolist() == [
        min(users.count(user), most) for user in range(7)
    ]


def test_every_rating_is_as_likely_to_be_sent() -> None:
    """2,000 users with 5 ratings of whom 2 are sent: 800 each, standard deviation 22, at 5 of
    them.
    """
    users, draws = np.repeat(np.arange(2000), 5), np.random.default_rng(0).random(10_000)
    assert np.abs(np.bincount(bound_contributions(users, 2, draws) % 5) - 800).max() < 5 * 22


@pytest.mark.parametrize("kind", [HDPSum, HDPBit])
def test_values_have_no_say_in_what_is_sent(kind: type[HDPSum] | type[HDPBit]) -> None:
    """Other values of the same items: the same items are spoken of, and the rest is not looked
    at.
    """
    sent = []
    for ratings in (WORLD, OTHER_VALUES):
        model = kind(epsilon=1e5, max_ratings=3, rng=4, features=False).fit(
            ratings, PrivacyWeights.uniform(ratings)
        )
        sent.append(np.round(model.facts_.popularity, 1))
    np.testing.assert_array_equal(*sent)
    assert sent[0].sum() == pytest.approx(3 * 60, rel=0.05)


@pytest.mark.parametrize("kind", [HDPSum, HDPBit])
def test_a_limit_that_nobody_reaches_changes_nothing(kind: type[HDPSum] | type[HDPBit]) -> None:
    train, test = WORLD.hold_out(3, rng=0)
    weights = PrivacySpec().draw(train, rng=0)
    free, wide, narrow = (
        kind(max_ratings=most, rng=0).fit(train, weights).score(test)["mse"]
        for most in (None, 80, 2)
    )
    assert free == wide != narrow


def test_weights_of_single_ratings_go_with_them() -> None:
    weights = PrivacyWeights.per_rating(WORLD, np.linspace(0.01, 1, len(WORLD)))
    kept = bound_contributions(WORLD.user_codes, 5, np.zeros(len(WORLD)))
    np.testing.assert_array_equal(
        weights.take(kept).for_ratings(WORLD.take(kept)), weights.for_ratings(WORLD)[kept]
    )
    assert HDPSum(max_ratings=5, rng=0).fit(WORLD, weights).n_silent_ == np.count_nonzero(
        weights.for_ratings(WORLD) < 1 / 64
    )


def test_a_person_pays_for_the_heaviest_that_may_be_sent() -> None:
    """Bits are limited by their number, sums by the weight that enters them."""
    weights = [0.25, 1.0, 0.5, 0.125]
    expected = {
        "hdp-sum": [1.875, 1.875, 1.875, 1.875, 1.0],
        "hdp-bit": [1.875, 1.875, 1.75, 1.5, 1],
    }
    for method, view in (("hdp-sum", "sums"), ("hdp-bit", "messages")):
        costs = [
            cost(method, view, unit="user", weight=weights, max_ratings=most).pure
            for most in (None, 4, 3, 2, 1)
        ]
        assert costs == pytest.approx(expected[method])
        assert cost(method, view, weight=0.5, max_ratings=1).pure == pytest.approx(0.5)


def test_one_more_rating_may_push_out_another_that_is_as_heavy() -> None:
    """Presence where there is a limit: the rating itself and one that it takes the place of."""
    about = {"neighbours": "presence", "weight": 0.5}
    assert cost("hdp-sum", "sums", **about).pure == pytest.approx(0.75 * 0.5)
    assert cost("hdp-sum", "sums", max_ratings=9, **about).pure == pytest.approx(0.75 * 1.0)
    everyone = cost(
        "hdp-sum", "sums", max_ratings=1, neighbours="presence", weight=[0.5, 0.25], unit="user"
    ).pure
    assert everyone == pytest.approx(0.75 * 0.75)  # nobody is pushed out where all are gone


def test_the_limit_is_for_designs_that_have_it() -> None:
    with pytest.raises(ConfigError, match="one-round"):
        Setting("hdpmf-paid", max_ratings=3)
    with pytest.raises(ConfigError, match="at least 1"):
        Setting("hdp-sum", max_ratings=0)
    with pytest.raises(ConfigError, match="max_ratings"):
        HDPSum(max_ratings=0).fit(WORLD)


def test_the_median_and_the_heaviest_person() -> None:
    found = person_costs(Setting("hdp-bit"), "messages", WORLD, WEIGHTS)
    totals = np.bincount(WORLD.user_codes, np.floor(64 * WEIGHTS.for_ratings(WORLD)) / 64)
    assert found.heaviest.cost.pure == pytest.approx(totals.max(), rel=0.02)
    assert np.quantile(totals, 0.4) <= found.median.cost.pure <= np.quantile(totals, 0.6)
    assert found.median.cost.epsilon_at_delta <= found.median.cost.pure
    assert found.fields()["median"]["ratings"] == found.median.ratings
    limited = person_costs(Setting("hdp-bit", max_ratings=2), "messages", WORLD, WEIGHTS)
    assert limited.heaviest.cost.pure <= 2
    assert "at the median (" in str(found)


def test_a_persons_presence_is_another_question_than_values() -> None:
    people = person_costs(Setting("hdp-sum"), "sums", WORLD, WEIGHTS)
    assert people.average is not None
    for person in (people.average, people.median, people.heaviest):
        assert person.cost.neighbours == "value"
        assert person.presence.pure == pytest.approx(0.75 * person.cost.pure)
        assert person.presence.epsilon_at_delta < person.cost.epsilon_at_delta
    assert people.average.ratings == round(len(WORLD) / WORLD.n_users)
    assert people.average.weight == pytest.approx(
        people.average.ratings * WEIGHTS.for_ratings(WORLD).mean()
    )
    bits = person_costs(Setting("hdp-bit"), "messages", WORLD, WEIGHTS)
    assert math.isinf(bits.median.presence.epsilon_at_delta)
    assert str(bits).startswith("a whole person pays, history against none: no finite epsilon; ")
    counts = person_costs(Setting("private-popular"), "sums", WORLD, WEIGHTS)
    assert counts.median.cost == counts.median.presence
    assert "about values" not in str(counts)


def test_weights_do_not_depend_on_values() -> None:
    """The proofs need it: a weight of hdp-bit is in plain sight."""
    np.testing.assert_array_equal(
        PrivacySpec().draw(OTHER_VALUES, rng=0).for_ratings(OTHER_VALUES),
        WEIGHTS.for_ratings(WORLD),
    )


@pytest.mark.slow
def test_releases_that_are_alike_are_counted_and_cost_the_same() -> None:
    sizes = np.random.default_rng(1).choice([0.1, 0.3, 0.5], 300).tolist()
    alike = epsilon_at(Composed(tuple(map(PureRelease, sizes))), 1e-5)
    apart = epsilon_at(
        Composed(tuple(PureRelease(s + 1e-12 * k) for k, s in enumerate(sizes))), 1e-5
    )
    assert alike == pytest.approx(apart, rel=1e-6)
    assert alike < math.fsum(sizes)


def test_the_words_say_what_presence_costs_at_a_limit() -> None:
    """As much as any limit costs, by the proof and by the accountant."""
    form = HDP_SUM.form
    factor = form.claims["sums"].presence
    assert factor is not None
    assert f"hidden at {factor:g} W epsilon" in form.stays_open
    assert f"(max_ratings) it is {2 * factor:g} W epsilon" in form.stays_open
    for weight in (0.25, 1.0):
        at_limit = cost(
            "hdp-sum",
            "sums",
            max_ratings=9,
            weight=weight,
            neighbours="presence",
        ).pure
        assert at_limit == pytest.approx(2 * factor * weight, rel=1e-3)
