"""How much similarity counts, and the mean of ratings, by released bits alone."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

from hdpmf import HDPBit, Ratings, UserMean, synthetic_world
from hdpmf.untrusted.recommender.bits import PATTERNS, bits_in_stars, facts_from_bits

N_USERS, N_ITEMS, PER_USER = 400, 200, 30


def two_circles(agreeing: bool, seed: int = 0) -> Ratings:
    """People who rate what their circle rates, and like it alike or not.

    Items of a circle come in two kinds. Where people are ``agreeing``, everybody of a circle likes
    one kind of it more; otherwise tastes have nothing to do with who rates what.
    """
    generator = np.random.default_rng(seed)
    users, items, likes = [], [], []
    kind = np.arange(N_ITEMS) % 4
    for user in range(N_USERS):
        group = user % 4
        chance = np.where(kind == group, 1.0, 0.3)
        own = generator.choice(N_ITEMS, PER_USER, replace=False, p=chance / chance.sum())
        users += [user] * PER_USER
        items += own.tolist()
        taste = (
            np.where(kind == group, 1.2, -0.4) if agreeing else generator.normal(0, 0.7, N_ITEMS)
        )
        likes += taste[own].tolist()
    stars = 3.3 + np.array(likes) + generator.normal(0, 0.6, len(items))
    return Ratings.from_arrays(users, items, np.clip(np.rint(stars), 1, 5), scale=(1, 5, 1))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("agreeing", [True, False])
def test_similarity_counts_where_people_who_rate_alike_like_alike(agreeing: bool, seed: int):
    train, test = two_circles(agreeing, seed).hold_out(5, rng=seed)
    model = HDPBit(4.0, rng=seed).fit(train)
    without = HDPBit(4.0, rng=seed, patterns=0).fit(train)
    assert not agreeing or model.n_patterns_ == PATTERNS
    gain = without.score(test)["mse"] - model.score(test)["mse"]
    assert gain > 0.1 if agreeing else gain > -0.02


def test_a_number_that_is_given_is_used_whatever_bits_say():
    train = two_circles(agreeing=False)
    model = HDPBit(4.0, rng=0, patterns=PATTERNS).fit(train)
    assert model.n_patterns_ == PATTERNS
    assert model.facts_.similarity is not None
    assert HDPBit(4.0, rng=0, patterns=0).fit(two_circles(True)).facts_.similarity is None


def test_nobody_answered():
    release = HDPBit(1.0, rng=0).release(two_circles(True))
    names = ("senders", "items", "units", "plus", "ruler")
    nothing = msgspec.structs.replace(
        release.bits, **{name: getattr(release.bits, name)[:0] for name in names}
    )
    (mean, variance), bits = bits_in_stars(release.survey, nothing)
    assert (1 <= mean <= 5, variance > 0.05, len(bits.items)) == (True, True, 0)


@pytest.mark.parametrize(
    ("scale", "mean"), [((1, 5, 1), 4.5), ((0, 10, 1), 7.4), ((0.5, 5, 0.5), 2.1), ((-10, 10), 1.0)]
)
@pytest.mark.parametrize("coding", ["auto", "soft", "linear"])
def test_the_mean_is_found_on_any_scale(scale, mean: float, coding: str):
    """It was read off films: 3.35 stars where the truth was 3.90."""
    train, test = synthetic_world(
        600, 200, 24_000, rng=1, scale=scale, mean=mean, features=False
    ).hold_out(5, rng=0)
    model = HDPBit(1.0, rng=0, coding=coding).fit(train)
    stars = 1 + 4 * (float(train.values.mean()) - scale[0]) / (scale[1] - scale[0])
    facts = model.facts_
    assert abs(facts.mean - stars) < 4 * np.sqrt(facts.mean_variance) < 0.5
    assert model.score(test)["mse"] < UserMean().fit(train).score(test)["mse"]


def test_the_mean_is_found_where_all_give_the_lowest_or_the_highest():
    """The curve of a threshold alone, on which ratings are spread as usual, is half a star off."""
    world = synthetic_world(600, 200, 24_000, rng=1, features=False)
    high = world.values > np.median(world.values)
    extreme = Ratings.from_arrays(world.user_ids, world.item_ids, np.where(high, 5.0, 1.0))
    found = [HDPBit(1.0, rng=seed, patterns=0).fit(extreme).facts_.mean for seed in range(3)]
    assert abs(np.mean(found) - extreme.values.mean()) < 0.2


def test_the_slope_of_a_threshold_follows_the_mean():
    """Where nearly everybody gives the highest, a threshold at four of five tells little."""
    slopes = {}
    for mean in (3.3, 4.6):
        world = synthetic_world(600, 100, 12_000, rng=1, mean=mean, features=False)
        release = HDPBit(2.0, rng=0).release(world)
        _, bits = bits_in_stars(release.survey, release.bits)
        of_curve = release.bits.ruler == 0
        slopes[mean] = float(1 / np.sqrt(bits.variance[of_curve][0]))
        assert facts_from_bits(release.survey, release.bits, None).bias.std() > 0.05
    assert slopes[4.6] < 0.8 * slopes[3.3]
