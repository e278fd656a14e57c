"""A device recommends by itself what the library would recommend to the same user."""

from __future__ import annotations

import numpy as np
import pytest

from hdpmf.common.data import ItemFilter, synthetic_world
from hdpmf.common.privacy import PrivacySpec
from hdpmf.common.privacy.weights import PrivacyWeights
from hdpmf.common.protocol import encode
from hdpmf.common.protocol.catalogue import catalogue_table
from hdpmf.errors import NotFittedError
from hdpmf.models import HDPSum
from hdpmf.models.base import Estimator
from hdpmf.private.device.recommendations import (
    LocalModel,
    keep_model,
    local_model,
    recommend,
)
from hdpmf.private.device.store.device_store import DeviceStore

WORLD = synthetic_world(25, 40, 500, rng=2)


def _device(user: int, weights: PrivacyWeights, numbers: bytes) -> DeviceStore:
    store = DeviceStore.create(":memory:")
    own = WORLD.take(WORLD.user_ids == user)
    store.add(own)
    store.set_weights(weights, own)
    store.pin_catalogue(catalogue_table(WORLD.items, WORLD.scale, WORLD.item_table))
    model = LocalModel(
        recommender="r", run="ab", method="hdp-sum", view="sums", survey=None, numbers=numbers
    )
    keep_model(store, model)
    return store


NOW = float(WORLD.timestamps.max())  # type: ignore[union-attr]


def _agrees(store: DeviceStore, model: Estimator, user: int) -> None:
    ours = recommend(store, 5, now=NOW)
    theirs = model.recommend(user, 5, now=NOW)
    assert [one.item for one in ours] == [str(one.item) for one in theirs]
    assert [one.score for one in ours] == pytest.approx([one.score for one in theirs], abs=1e-4)
    assert [one.title for one in ours] == [one.title for one in theirs]
    assert [one.reason for one in ours] == [one.reason for one in theirs]
    wanted = ItemFilter(genres=["Drama"], items=[str(item) for item in WORLD.items.ids[:30]])
    same = ItemFilter(genres=["Drama"], items=WORLD.items.ids[:30])
    some = recommend(store, 5, keep_rated=True, only=wanted, now=NOW)
    assert [one.item for one in some] == [
        str(one.item) for one in model.recommend(user, 5, keep_rated=True, only=same, now=NOW)
    ]


def test_from_item_facts() -> None:
    drawn = PrivacySpec().draw(WORLD, 0)
    # The library corrects popularity for item weights that hold for everybody; a device knows only
    # its owner's.
    weights = PrivacyWeights(WORLD.users, WORLD.items, drawn.beta, np.ones(WORLD.n_items))
    model = HDPSum(rng=0).fit(WORLD, weights)
    for user in WORLD.users.ids[:6].tolist():
        store = _device(user, weights, encode(model.facts_))
        _agrees(store, model, user)
    assert local_model(store) is not None
    store.forget()
    with pytest.raises(NotFittedError, match="no model"):
        recommend(store)
