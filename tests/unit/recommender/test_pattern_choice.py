"""The choice whether to use who rated what, made from released bits alone."""

from __future__ import annotations

import numpy as np
import pytest

from hdpmf import HDPBit, Ratings
from hdpmf.untrusted.recommender import pattern_choice
from hdpmf.untrusted.recommender.bits import StarBits
from hdpmf.untrusted.recommender.pattern_choice import PATTERNS, choose_patterns, held_out_gains

N_USERS, N_ITEMS, PER_USER = 400, 800, 30


def two_circles(liked_by_circle: bool, seed: int = 0) -> Ratings:
    """People of two circles, each with items of its own.

    Where ``liked_by_circle`` is set, items of the first circle are better; otherwise items differ
    as much, but not by circle.
    """
    generator = np.random.default_rng(seed)
    circle = np.arange(N_USERS) % 2
    users, items = [], []
    for user in range(N_USERS):
        likely = np.where(np.arange(N_ITEMS) % 2 == circle[user], 1.0, 0.1)
        users += [user] * PER_USER
        items += generator.choice(
            N_ITEMS, PER_USER, replace=False, p=likely / likely.sum()
        ).tolist()
    good = np.arange(N_ITEMS) % 2 == 0
    if not liked_by_circle:
        good = generator.permutation(good)
    # Everybody rates some of both kinds, so that a person's own mean does not explain it.
    stars = np.where(good[items], 4.4, 2.6) + generator.normal(0, 0.5, len(items))
    return Ratings.from_arrays(users, items, np.clip(np.rint(stars), 1, 5))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("liked_by_circle", "chosen"), [(True, PATTERNS), (False, 0)])
def test_patterns_are_used_where_they_say_how_items_are_liked(liked_by_circle, chosen, seed):
    train = two_circles(liked_by_circle, seed)
    model = HDPBit(2.0, rng=seed).fit(train)
    assert model.n_patterns_ == chosen
    assert (model.facts_.similarity is not None) == bool(chosen)


def test_a_number_that_is_given_is_used_whatever_bits_say():
    train = two_circles(liked_by_circle=False)
    model = HDPBit(2.0, rng=0, patterns=PATTERNS).fit(train)
    assert model.n_patterns_ == PATTERNS
    assert model.facts_.similarity is not None
    assert HDPBit(2.0, rng=0, patterns=0).fit(two_circles(True)).facts_.similarity is None


def test_bits_that_tell_too_little_do_not_choose(monkeypatch):
    train = two_circles(liked_by_circle=False)
    release = HDPBit(0.25, rng=0).release(train)
    asked = release.survey, release.bits, None
    assert choose_patterns(*asked) == PATTERNS
    monkeypatch.setattr(pattern_choice, "ENOUGH", 0.0)
    assert choose_patterns(*asked) == 0


def test_nobody_answered():
    release = HDPBit(1.0, rng=0).release(two_circles(True))
    nothing = release.bits.__class__(
        **{name: getattr(release.bits, name)[:0] for name in ("senders", "items", "units", "plus")}
    )
    assert choose_patterns(release.survey, nothing, None) == PATTERNS


def test_a_bit_does_not_help_to_predict_itself(monkeypatch):
    """A gain is by what the other folds say: neither a bit nor its presence is known."""
    generator = np.random.default_rng(0)
    users, items = np.nonzero(generator.random((60, 20)) < 0.5)
    bits = StarBits(users, items, generator.normal(0, 1, len(users)), np.ones(len(users)))
    known: list[set[tuple[int, int]]] = []
    found = pattern_choice.rating_patterns

    def recorded(users, items, n_items, n_patterns):
        known.append(set(zip(users.tolist(), items.tolist(), strict=True)))
        return found(users, items, n_items, n_patterns)

    monkeypatch.setattr(pattern_choice, "rating_patterns", recorded)
    first = held_out_gains(bits, 20, None)
    pairs = set(zip(users.tolist(), items.tolist(), strict=True))
    left_out = [pairs - each for each in known]
    assert sorted(pair for each in left_out for pair in each) == sorted(pairs)
    # Flipping the values of one fold changes the gains of that fold by itself linearly in the
    # value: the predictions behind them, and so the sum of both signs, stay.
    of_first = np.array([pair in left_out[0] for pair in zip(users, items, strict=True)])
    flipped = bits._replace(values=np.where(of_first, -bits.values, bits.values))
    other = held_out_gains(flipped, 20, None)
    zero = held_out_gains(bits._replace(values=np.where(of_first, 0.0, bits.values)), 20, None)
    np.testing.assert_allclose((first + other)[of_first], 2 * zero[of_first], atol=1e-9)
    assert np.abs(first - zero)[of_first].max() > 1e-4
