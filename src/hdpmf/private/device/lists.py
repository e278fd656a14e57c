"""The owner's lists and stars, from a published model and their own ratings. Nothing is sent."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from hdpmf.common.base.threads import Workers
from hdpmf.common.data import IdIndex, ItemFilter, Ratings
from hdpmf.common.model.device_fit import device_fit
from hdpmf.common.model.list_model import ListModel
from hdpmf.common.model.taste import taste_columns
from hdpmf.common.protocol import ItemFacts
from hdpmf.errors import NotFittedError
from hdpmf.private.client.devices import (
    Devices,
    fit_vectors,
    predict,
    ratings_by_user,
    times_by_user,
)
from hdpmf.private.client.ranking import ByPairs, ChooseAndLike, ListMaker, Recommendation
from hdpmf.private.device.ledger import WHOLE
from hdpmf.private.device.public import Items, items_named, items_of, model_of
from hdpmf.private.device.state import Joined, State

_OWNER = np.zeros(1, np.int64)


class OwnModel:
    """A published model, fitted to the owner's ratings as they are now. PRIVATE.

    Raises:
        NotFittedError: No model has come yet.
    """

    def __init__(self, state: State, joined: Joined) -> None:
        if not joined.model:
            raise NotFittedError(
                "this device has no model yet; it comes at the end of a run (hdpmf device join)"
            )
        facts, lists = model_of(state, joined)
        # The items that there were when the model's run began.
        self._items = items = items_named(state, joined, facts.catalogue)
        self._fit(state, joined, items, facts, lists)

    def __repr__(self) -> str:
        return "OwnModel(...)"

    def _fit(
        self, state: State, joined: Joined, items: Items, facts: ItemFacts, lists: ListModel
    ) -> None:
        known = items.known
        ratings, gamma = _own_ratings(state, joined, items)
        fit = device_fit(facts, known.features)
        by_user = ratings_by_user(ratings)
        with Workers(1) as workers:
            vectors = fit_vectors(fit, by_user, workers)
        vectors[by_user.counts == 0] = fit.stranger
        times = times_by_user(ratings, by_user.start)
        rated = by_user.start, by_user.partner, by_user.target
        beta = np.array([state.wish / WHOLE])
        devices = Devices.after_training(ratings, vectors, beta, gamma, rated, times)
        devices = devices.at_full_hour(time.time())
        factors, popularity = fit.factors(ratings.scale), facts.popularity.astype(np.float64)
        names, columns = taste_columns(fit, popularity)

        def predicted(users: np.ndarray) -> np.ndarray:
            return np.asarray(devices.scale.clip(devices.vectors[users] @ factors.T))

        def expected(users: np.ndarray, positions: np.ndarray) -> np.ndarray:
            return predict(devices, users, positions, factors, fit.stranger)

        candidates = np.ones(len(factors), bool)
        retired = items_of(state, joined).known.retired
        candidates[retired[retired < len(candidates)]] = False
        stars = ChooseAndLike(
            devices, predicted, popularity, columns, names, margin=facts.popularity_margin
        )
        order = ByPairs(devices, lists, stars)
        self._expected = expected
        self._maker = ListMaker(
            devices, order, expected, candidates, ratings.items, known.item_table
        )

    def recommend(
        self, n: int = 10, *, keep_rated: bool = False, only: ItemFilter | None = None
    ) -> list[Recommendation]:
        """Return the ``n`` items that the owner would soonest choose and like, best first.

        Args:
            keep_rated: Keep items that the owner has rated.
            only: What items have to be like; ids are texts.
        """
        if only is not None and only.items is not None:
            ids = self._items.known.items
            only = replace(only, items=[ids.parse(str(item)) for item in only.items])
        found = next(iter(self._maker.lists(_OWNER, n, keep_rated=keep_rated, only=only)))
        return [replace(entry, item=str(entry.item)) for entry in found]

    def predict(self, items: Sequence[str]) -> np.ndarray:
        """Return the ratings that the owner would give these items; others by their own mean."""
        positions = [self._items.positions.get(item, -1) for item in items]
        return self._expected(np.repeat(_OWNER, len(items)), np.array(positions, np.int64))


def _own_ratings(state: State, joined: Joined, items: Items) -> tuple[Ratings, np.ndarray]:
    """Return the owner's ratings of these items, and all items' weights."""
    own = {
        items.positions[item]: rated
        for item, rated in state.ratings_of(joined.address).items()
        if item in items.positions
    }
    known = items.known
    gamma = np.ones(len(known.items))
    for position, rated in own.items():
        gamma[position] = rated.weight / WHOLE
    ratings = Ratings(
        users=IdIndex(np.array(["me"])),
        items=known.items,
        user_codes=np.zeros(len(own), np.int32),
        item_codes=np.array(list(own), np.int32),
        values=np.array([rated.value for rated in own.values()], np.float32),
        timestamps=np.array([rated.at for rated in own.values()], np.int64),
        scale=known.scale,
        item_table=None,
        name="mine",
    )
    return ratings, gamma
