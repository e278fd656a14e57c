"""A device recommends by itself what the library would recommend to the same user."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

from hdpmf.common.data import ItemFilter, Ratings, synthetic_world
from hdpmf.common.privacy import PrivacySpec
from hdpmf.common.privacy.weights import PrivacyWeights
from hdpmf.common.protocol import Plan, Round, encode
from hdpmf.common.protocol.catalogue import catalogue_table
from hdpmf.errors import NotFittedError, UnknownIdError
from hdpmf.models import HDPMF, HDPSum
from hdpmf.models.base import Estimator
from hdpmf.private.device.recommendations import (
    LocalModel,
    keep_model,
    local_model,
    prepare,
    recommend,
    recommend_each,
)
from hdpmf.private.device.store.device_store import DeviceStore

WORLD = synthetic_world(25, 40, 500, rng=2)


def _silo(ratings: Ratings, weights: PrivacyWeights) -> DeviceStore:
    store = DeviceStore.create(":memory:", users=ratings.n_users)
    store.add(ratings)
    store.set_weights(weights, ratings)
    store.pin_catalogue(catalogue_table(WORLD.items, WORLD.scale, WORLD.item_table))
    return store


NOW = float(WORLD.timestamps.max())  # type: ignore[union-attr]


def _agrees(store: DeviceStore, model: Estimator, users: list[int]) -> None:
    for user in users:
        ours = recommend(store, 5, user=str(user), now=NOW)
        theirs = model.recommend(user, 5, now=NOW)
        assert [one.item for one in ours] == [str(one.item) for one in theirs]
        assert [one.score for one in ours] == pytest.approx([one.score for one in theirs], abs=1e-4)
        assert [one.title for one in ours] == [one.title for one in theirs]
        assert [one.reason for one in ours] == [one.reason for one in theirs]
        wanted = ItemFilter(genres=["Drama"], items=[str(item) for item in WORLD.items.ids[:30]])
        same = ItemFilter(genres=["Drama"], items=WORLD.items.ids[:30])
        some = recommend(store, 5, user=str(user), keep_rated=True, only=wanted, now=NOW)
        assert [one.item for one in some] == [
            str(one.item) for one in model.recommend(user, 5, keep_rated=True, only=same, now=NOW)
        ]
    each = dict(recommend_each(store, n=5, now=NOW))
    assert list(each) == list(map(str, store.ratings().users.ids.tolist()))
    assert [one.item for one in each[str(users[0])]] == [
        one.item for one in recommend(store, 5, user=str(users[0]), now=NOW)
    ]


def test_from_item_facts() -> None:
    drawn = PrivacySpec().draw(WORLD, 0)
    # The library corrects popularity for item weights that hold for everybody; a device knows only
    # its owner's.
    weights = PrivacyWeights(WORLD.users, WORLD.items, drawn.beta, np.ones(WORLD.n_items))
    model = HDPSum(rng=0).fit(WORLD, weights)
    store = _silo(WORLD, weights)
    keep_model(
        store,
        LocalModel(
            recommender="r",
            run="ab",
            method="hdp-sum",
            view="sums",
            plan=None,
            numbers=encode(model.facts_),
        ),
    )
    _agrees(store, model, WORLD.users.ids[:6].tolist())
    assert local_model(store) is not None
    store.forget()
    with pytest.raises(NotFittedError, match="no model"):
        recommend(store)


def test_predictions_from_any_item_facts_are_on_the_scale() -> None:
    model = HDPSum(rng=0).fit(WORLD)
    bias = np.where(np.arange(WORLD.n_items) % 2, 50.0, -50.0).astype(model.facts_.bias.dtype)
    store = _silo(WORLD, PrivacySpec().draw(WORLD, 0))
    numbers = encode(msgspec.structs.replace(model.facts_, bias=bias))
    keep_model(
        store,
        LocalModel(
            recommender="r", run="ab", method="hdp-sum", view="sums", plan=None, numbers=numbers
        ),
    )
    ready, users = prepare(store), np.arange(WORLD.n_users)
    at_once = ready.predicted(users)
    assert (at_once.min(), at_once.max()) == (WORLD.scale.low, WORLD.scale.high)
    items = np.arange(WORLD.n_items)
    one_by_one = ready.expected(np.repeat(users, len(items)), np.tile(items, len(users)))
    np.testing.assert_allclose(at_once.ravel(), one_by_one, rtol=1e-5)


def _rounds(model: HDPMF, *, with_vectors: bool) -> LocalModel:
    catalogue = model.catalogue_
    plan = Plan(
        n_items=WORLD.n_items,
        n_factors=4,
        epochs=5,
        learning_rate=0.01,
        reg=0.01,
        mechanism="stretch",
        epsilon=1.0,
        scale_low=WORLD.scale.low,
        scale_high=WORLD.scale.high,
        scale_steps=True,
        fresh_noise=True,
    )
    last = Round(
        number=6, item_factors=catalogue.factors, raters=catalogue.raters.astype(np.int64), h=None
    )
    users = tuple(map(str, WORLD.users.ids.tolist())) if with_vectors else ()
    vectors = model.devices_.vectors.astype(np.float32).tobytes() if with_vectors else b""
    return LocalModel(
        recommender="r",
        run="ab",
        method="hdpmf",
        view="sums",
        plan=encode(plan),
        numbers=encode(last),
        users=users,
        vectors=vectors,
    )


def test_from_rounds_with_the_vectors_of_the_run() -> None:
    weights = PrivacySpec().draw(WORLD, 0)
    model = HDPMF(4, 0.01, 0.01, 5, rng=0).fit(WORLD, weights)
    store = _silo(WORLD, weights)
    keep_model(store, _rounds(model, with_vectors=True))
    _agrees(store, model, WORLD.users.ids[:6].tolist())
    with pytest.raises(UnknownIdError, match="no such user"):
        recommend(store, user="nobody")


def test_from_rounds_of_others() -> None:
    """Somebody who was no part of the run is folded in, on the device."""
    weights = PrivacySpec().draw(WORLD, 0)
    model = HDPMF(4, 0.01, 0.01, 5, rng=0).fit(WORLD, weights)
    newcomers = WORLD.take(np.isin(WORLD.user_codes, [0, 3])).compact()
    store = _silo(newcomers, weights)
    model.fold_in(newcomers, weights, replace=True)
    keep_model(store, _rounds(model, with_vectors=False))
    _agrees(store, model, newcomers.users.ids.tolist())
