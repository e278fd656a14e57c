"""The owner's lists and stars, from a published model and their own ratings. Nothing is sent."""

import time
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from hdpmf.common.base.threads import Workers
from hdpmf.common.data import IdIndex, ItemFilter
from hdpmf.common.model.device_fit import device_fit, to_stars
from hdpmf.common.model.list_model import ListModel
from hdpmf.common.model.taste import taste_columns
from hdpmf.common.protocol import ItemFacts
from hdpmf.errors import NotFittedError
from hdpmf.private.client.devices import Devices, fit_vectors, predict
from hdpmf.private.client.ranking import ByPairs, ChooseAndLike, ListMaker, Recommendation
from hdpmf.private.device.public import Items, items_named, items_of, model_of
from hdpmf.private.device.state import Joined, State
from hdpmf.private.kernels.batch import GroupedRatings

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
        own = {
            items.positions[item]: rated
            for item, rated in state.ratings_of(joined.address).items()
            if item in items.positions
        }
        positions = np.array(list(own), np.int32)
        values = np.array([rated.value for rated in own.values()], np.float32)
        stars, start = to_stars(values, known.scale), np.array([0, len(own)])
        fit = device_fit(facts, known.features)
        with Workers(1) as workers:
            vectors = fit_vectors(fit, GroupedRatings(start, positions, stars, None), workers)
        devices = Devices(
            users=IdIndex(np.array(["me"])),
            vectors=vectors,
            beta=np.ones(1),
            gamma=np.ones(len(known.items)),
            means=np.array([values.mean() if own else np.nan]),
            rated_start=start,
            rated=positions,
            stars=stars,
            scale=known.scale,
            times=np.array([rated.at for rated in own.values()], np.int64),
        ).at_full_hour(time.time())
        factors, popularity = fit.factors(known.scale), facts.popularity.astype(np.float64)
        names, columns = taste_columns(fit, popularity)

        def predicted(users: np.ndarray) -> np.ndarray:
            return np.asarray(devices.scale.clip(devices.vectors[users] @ factors.T))

        def expected(users: np.ndarray, positions: np.ndarray) -> np.ndarray:
            return predict(devices, users, positions, factors, fit.stranger)

        candidates = np.ones(len(factors), bool)
        retired = items_of(state, joined).known.retired
        candidates[retired[retired < len(candidates)]] = False
        apart = ChooseAndLike(
            devices, predicted, popularity, columns, names, margin=facts.popularity_margin
        )
        order = ByPairs(devices, lists, apart)
        self._expected = expected
        self._maker = ListMaker(devices, order, expected, candidates, known.items, known.item_table)

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
