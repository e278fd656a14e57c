"""A released data set: it comes back whole with its claim, has no rating in it, and damage is
noticed.
"""

from __future__ import annotations

import json

import numpy as np
import pytest
from scipy.sparse import identity

from hdpmf.common.data import Ratings, synthetic_world
from hdpmf.common.privacy import PrivacySpec
from hdpmf.errors import ModelFileError
from hdpmf.models import HDPBit, HDPSum
from hdpmf.untrusted.recommender.release import Release, _checksum

WORLD = synthetic_world(n_users=60, n_items=40, n_ratings=900, rng=2)
WEIGHTS = PrivacySpec().draw(WORLD, rng=0)
_EACH = identity(WORLD.n_items, format="csr")


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
    for name in ("senders", "items", "units", "plus", "ruler"):
        assert (getattr(again.bits, name) == getattr(first.bits, name)).all()
    assert again.origin == WORLD.name


def test_it_has_who_rated_what_and_not_how(released, tmp_path):
    presence = released.release_.presence
    rated = set(zip(WORLD.user_codes.tolist(), WORLD.item_codes.tolist(), strict=True))
    assert len(presence.users) == len(WORLD) - released.n_silent_
    assert set(zip(presence.users.tolist(), presence.items.tolist(), strict=True)) <= rated
    # Other values with the same noise: only bits differ, and at this epsilon few of them.
    other = Ratings.from_arrays(
        WORLD.user_ids, WORLD.item_ids, 6.0 - WORLD.values, scale=WORLD.scale
    )
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


def test_a_model_of_the_release_is_the_model_of_the_ratings(released):
    again = HDPBit.from_release(released.release_, rng=1)
    for name in ("bias", "variance", "popularity"):
        assert (getattr(again.facts_, name) == getattr(released.facts_, name)).all()
    assert (again.lists_.many(_EACH) == released.lists_.many(_EACH)).all()
    assert again.feature_names_ == released.feature_names_
    assert again.privacy == released.privacy


def _rewritten(path, target, **changes):
    """A release with other parts and a right checksum."""
    from safetensors import safe_open
    from safetensors.numpy import save

    with safe_open(path, "numpy") as stored:
        arrays = {name: stored.get_tensor(name) for name in stored.keys()}  # noqa: SIM118
        about = json.loads(stored.metadata()["release"])
    for name, change in changes.items():
        where = arrays if name in arrays else about
        where[name] = change(where[name])
    text = json.dumps(about)
    target.write_bytes(save(arrays, {"release": text, "sha256": _checksum(text, arrays)}))


@pytest.mark.parametrize(
    "changes",
    [
        {"items": lambda items: items + 1000},
        {"items": lambda items: items[:-1]},
        {"units": lambda units: units * 0},
        {"plus": lambda plus: plus + 2},
        {"senders": lambda senders: -senders - 1},
        {"features": lambda features: features[:-1]},
        {"features": lambda features: features + 1},
        {"survey": lambda survey: survey | {"design": "A"}},
        {"survey": lambda survey: survey | {"epsilon": -1.0}},
        {"catalogue": lambda table: table | {"ids": table["ids"][::-1]}},
        {"claim": lambda claim: claim | {"epsilon": "none"}},
        {"claim": lambda claim: 7},
        {"format": lambda number: 99},
        {"format": lambda number: [[]]},
    ],
)
def test_parts_that_do_not_belong_together_are_refused(released, tmp_path, changes):
    released.release_.save(tmp_path / "good")
    _rewritten(tmp_path / "good", tmp_path / "same")
    assert Release.load(tmp_path / "same").survey == released.release_.survey
    _rewritten(tmp_path / "good", tmp_path / "wrong", **changes)
    with pytest.raises(ModelFileError, match="wrong"):
        Release.load(tmp_path / "wrong")


def test_numbers_of_people_that_are_far_apart_take_no_memory(released, tmp_path):
    released.release_.save(tmp_path / "good")
    _rewritten(tmp_path / "good", tmp_path / "far", senders=lambda senders: senders * 30_000_000)
    far = Release.load(tmp_path / "far")
    assert far.presence.n_users == released.release_.presence.n_users
    assert (HDPBit.from_release(far).lists_.many(_EACH) == released.lists_.many(_EACH)).all()
