"""A released data set: it comes back whole with its claim, has no rating in it, and damage is noticed."""

from __future__ import annotations

import numpy as np
import pytest

from hdpmf.errors import ModelFileError
from hdpmf.models import HDPBit, HDPSum
from hdpmf.privacy import PrivacySpec
from hdpmf.ratings import Ratings, synthetic_world
from hdpmf.recommender.release import Release

WORLD = synthetic_world(n_users=60, n_items=40, n_ratings=900, rng=2)
WEIGHTS = PrivacySpec().draw(WORLD, rng=0)


@pytest.fixture(scope="module")
def released():
    return HDPBit(epsilon=0.5, rng=1).fit(WORLD, WEIGHTS)


def test_it_comes_back_whole(released, tmp_path):
    released.release_.save(tmp_path / "ratings.release")
    again = Release.load(tmp_path / "ratings.release")
    first = released.release_
    assert again.survey == first.survey
    assert again.claim == first.claim == released.privacy
    assert again.claim.status == "proved"
    assert again.items == first.items
    for name in ("senders", "items", "units", "plus"):
        assert (getattr(again.bits, name) == getattr(first.bits, name)).all()
    assert again.origin == WORLD.name


def test_it_has_who_rated_what_and_not_how(released, tmp_path):
    presence = released.release_.presence
    rated = set(zip(WORLD.user_codes.tolist(), WORLD.item_codes.tolist(), strict=True))
    assert len(presence.users) == len(WORLD) - released.n_silent_
    assert set(zip(presence.users.tolist(), presence.items.tolist(), strict=True)) <= rated
    # Other values with the same noise: only bits differ, and at this epsilon few of them.
    other = Ratings.from_arrays(WORLD.user_ids, WORLD.item_ids, 6.0 - WORLD.values, scale=WORLD.scale)
    opposite = HDPBit(epsilon=0.5, rng=1).fit(other, WEIGHTS).release_.bits
    bits = released.release_.bits
    assert (opposite.items == bits.items).all()
    assert (opposite.units == bits.units).all()
    assert 0 < np.mean(opposite.plus != bits.plus) < 0.3


@pytest.mark.parametrize("damage", ["cut", "flipped", "other"])
def test_damage_is_noticed(released, tmp_path, damage):
    path = tmp_path / "ratings.release"
    released.release_.save(path)
    data = bytearray(path.read_bytes())
    if damage == "cut":
        del data[-5:]
    elif damage == "flipped":
        data[-1] ^= 1
    else:
        data = bytearray(b"user,item,rating\n1,2,3\n")
    path.write_bytes(bytes(data))
    with pytest.raises(ModelFileError, match=r"ratings\.release"):
        Release.load(path)
    with pytest.raises(ModelFileError):
        Release.load(tmp_path / "absent")


def test_sums_release_no_data_set():
    assert not hasattr(HDPSum(rng=0).fit(WORLD, WEIGHTS), "release_")
