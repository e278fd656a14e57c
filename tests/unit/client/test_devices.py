"""Predictions of all items at once are those of the pairs."""

from __future__ import annotations

import numpy as np
import pytest

from hdpmf.common.data import RatingScale
from hdpmf.common.data.ids import IdIndex
from hdpmf.common.privacy.mechanisms import Mechanism, NoPrivacy, Stretch
from hdpmf.private.client import Devices

USERS, ITEMS, WIDTH = 5, 7, 3


@pytest.fixture
def devices() -> Devices:
    rng = np.random.default_rng(0)
    made = Devices.nobody(ITEMS, WIDTH, RatingScale(1, 5))
    made.users = IdIndex(np.arange(USERS))
    made.vectors = rng.normal(1, 0.5, (USERS, WIDTH)).astype(np.float32)
    made.beta = rng.uniform(0.2, 1, USERS).astype(np.float32)
    made.gamma = rng.uniform(0.2, 1, ITEMS)
    made.means = rng.uniform(1, 5, USERS).astype(np.float32)
    made.means[2] = np.nan  # a user without ratings
    return made


@pytest.mark.parametrize("mechanism", [NoPrivacy(), Stretch(True)], ids=["mf", "hdpmf"])
def test_all_items_at_once_are_the_pairs(devices: Devices, mechanism: Mechanism) -> None:
    factors = np.random.default_rng(1).normal(1, 0.5, (ITEMS, WIDTH)).astype(np.float32)
    trained = np.arange(ITEMS) != 4
    users = np.array([3, 0, 2])
    pairs = np.repeat(users, ITEMS), np.tile(np.arange(ITEMS), len(users))
    expected = devices.predict(*pairs, factors, trained, mechanism).reshape(len(users), ITEMS)
    np.testing.assert_allclose(
        devices.predict_all(users, factors, trained, mechanism), expected, rtol=1e-5
    )


def test_with_nobody_there_are_no_vectors_ratings_or_means_and_all_items() -> None:
    nobody = Devices.nobody(ITEMS, WIDTH, RatingScale(1, 5))
    assert len(nobody.users) == len(nobody.beta) == len(nobody.means) == 0
    assert nobody.vectors.shape == (0, WIDTH)
    assert len(nobody.rated) == len(nobody.stars) == 0
    assert nobody.rated_start.tolist() == [0]
    assert len(nobody.gamma) == ITEMS
