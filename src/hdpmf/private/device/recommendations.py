"""Recommendations and predictions on the device, from public numbers and its owner's vector.

Nothing is sent.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256

import msgspec
import numpy as np

from hdpmf.common.base.threads import Workers
from hdpmf.common.data import ItemFilter
from hdpmf.common.model.device_fit import device_fit
from hdpmf.common.model.taste import taste_columns
from hdpmf.common.protocol import ItemFacts, decode
from hdpmf.errors import NotFittedError, StorageError
from hdpmf.private.client.devices import (
    Devices,
    fit_vectors,
    predict,
    ratings_by_user,
    times_by_user,
)
from hdpmf.private.client.ranking import (
    ChooseAndLike,
    ListMaker,
    Recommendation,
)
from hdpmf.private.device.store.catalogues import PinnedCatalogue, id_of
from hdpmf.private.device.store.device_store import DeviceStore
from hdpmf.private.device.store.schema import HiddenItem, LocalModel


def keep_model(store: DeviceStore, model: LocalModel) -> None:
    """Keep a finished model, instead of the one before."""
    own = msgspec.structs.replace(model, recommender_id=store.recommender_id)
    store.tables.models.put(own)


def local_model(store: DeviceStore) -> LocalModel | None:
    """Return the finished run that recommendations come from."""
    return store.tables.models.find(store.recommender_id)


def recommend(
    store: DeviceStore,
    n: int = 10,
    *,
    keep_rated: bool = False,
    only: ItemFilter | None = None,
    model: LocalModel | None = None,
    now: float | None = None,
) -> list[Recommendation]:
    """Return the ``n`` items that the owner would most likely choose and like, with reasons.

    Best first. Nothing is sent.

    Args:
        keep_rated: Keep items that the owner has rated.
        only: What items have to be like; ids are texts.
        model: A finished run; without it the one in the store.
        now: When the list is asked for, in seconds since 1970: what was rated shortly before
            counts more. None: by this machine's clock, to the hour.

    Raises:
        NotFittedError: No run has finished here yet.
    """
    ready = prepare(store, model)
    here = ready.devices
    here = here.at_full_hour(time.time()) if now is None else here.at_time(now)
    ready = replace(ready, devices=here)
    if only is not None and only.items is not None:
        ids = ready.catalogue.by_id.items
        only = replace(only, items=[ids.parse(str(item)) for item in only.items])
    found = next(iter(ready.maker.lists(_OWNER, n, keep_rated=keep_rated, only=only)))
    return [replace(entry, item=str(entry.item)) for entry in found]


def prepare(store: DeviceStore, model: LocalModel | None = None) -> PredictionInputs:
    """User vectors and item factors, ready for predictions; arguments as for `recommend`."""
    model, pinned = local_model(store) if model is None else model, store.pinned_catalogue
    if model is None or pinned is None:
        raise NotFittedError(
            "this device has no model yet; it comes at the end of a run (hdpmf device join)"
        )
    facts = decode(model.numbers)
    # The model knows the items that there were when its run began; those that came since wait for
    # the next one.
    catalogue = pinned.named(facts.catalogue) if isinstance(facts, ItemFacts) else None
    if catalogue is None or not isinstance(facts, ItemFacts):
        raise StorageError("the model lacks a part: the store is damaged")
    ready = _after_facts(store, catalogue, facts)
    return replace(ready, retired=pinned.known.retired)


@dataclass(frozen=True, slots=True, repr=False)
class PredictionInputs:
    """All that a prediction takes.

    Attributes:
        devices: The owner with their vector. PRIVATE.
        factors: A row per item.
        popularity: How often items are chosen.
        features: What tastes are about, where that is known.
        stranger: The vector of a user without ratings.
        retired: Positions of items that are recommended no more, by the newest version of the
            catalogue.
    """

    catalogue: PinnedCatalogue
    devices: Devices
    factors: np.ndarray
    popularity: np.ndarray
    stranger: np.ndarray
    features: np.ndarray | None = None
    feature_names: tuple[str, ...] = ()
    retired: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))

    def predicted(self, users: np.ndarray) -> np.ndarray:
        """Predicted ratings of all items, one row for each of these users."""
        devices = self.devices
        return np.asarray(devices.scale.clip(devices.vectors[users] @ self.factors.T))

    @property
    def maker(self) -> ListMaker:
        """Makes lists for the users here."""
        order = ChooseAndLike(
            self.devices, self.predicted, self.popularity, self.features, self.feature_names
        )
        known, candidates = self.catalogue.by_id, np.ones(len(self.factors), bool)
        candidates[self.retired[self.retired < len(candidates)]] = False
        return ListMaker(
            self.devices, order, self.expected, candidates, known.items, known.item_table
        )

    def expected(self, users: np.ndarray, items: np.ndarray) -> np.ndarray:
        """Predict ratings for pairs of user and item positions; -1 means unknown."""
        return predict(self.devices, users, items, self.factors, self.stranger)


def _after_facts(
    store: DeviceStore,
    catalogue: PinnedCatalogue,
    facts: ItemFacts,
) -> PredictionInputs:
    """Vectors fitted to the item facts, from all ratings that there are now."""
    table = store.over(catalogue)
    ratings, weights = table.ratings, table.weights
    fit = device_fit(facts, catalogue.known.features)
    by_user = ratings_by_user(ratings)
    with Workers(1) as workers:
        vectors = fit_vectors(fit, by_user, workers)
    stranger = fit.stranger
    vectors[by_user.counts == 0] = stranger
    sorted_ratings = by_user.start, by_user.partner, by_user.target
    devices = Devices.after_training(
        ratings,
        vectors,
        weights.beta,
        weights.gamma,
        sorted_ratings,
        times_by_user(ratings, by_user.start),
    )
    # Item weights are the owner's own: nobody else's are known here.
    popularity = facts.popularity.astype(np.float64)
    names, columns = taste_columns(fit, popularity)
    return PredictionInputs(
        catalogue=catalogue,
        devices=devices,
        factors=fit.factors(ratings.scale),
        popularity=popularity,
        features=columns,
        feature_names=names,
        stranger=stranger,
    )


def predict_ratings(
    store: DeviceStore,
    items: Sequence[str],
    *,
    model: LocalModel | None = None,
) -> np.ndarray:
    """Return the ratings that the owner would give these items.

    Items that the catalogue lacks are predicted by the owner's mean. Without ``model`` it is the
    one in the store.

    Raises:
        NotFittedError: No run has finished here yet.
    """
    ready = prepare(store, model)
    positions = np.array([ready.catalogue.positions.get(item, -1) for item in items], np.int64)
    return ready.expected(np.repeat(_OWNER, len(items)), positions)


_MOST_HIDDEN = 10_000
_OWNER = np.zeros(1, np.int64)
"""The place of a device's only user."""


def owner_recommendations(
    store: DeviceStore, n: int = 20, *, only: ItemFilter | None = None, keep_rated: bool = False
) -> list[Recommendation]:
    """Return the ``n`` best items for the owner, without those that the owner hid.

    Raises:
        NotFittedError: No run has finished here yet.
    """
    hidden = hidden_ids(store)
    found = recommend(store, n + len(hidden), only=only, keep_rated=keep_rated)
    return [entry for entry in found if str(entry.item) not in hidden][:n]


def popular_positions(store: DeviceStore, catalogue: PinnedCatalogue) -> list[int]:
    """Return the positions of items by what the last model says of their popularity.

    Items that it does not know come after, in the order of the catalogue; retired ones are left
    out.
    """
    n = len(catalogue.table.ids)
    popularity = np.zeros(n)
    model = local_model(store)
    numbers = None if model is None else decode(model.numbers)
    known: np.ndarray | None = None
    if isinstance(numbers, ItemFacts):
        known = numbers.popularity
    if known is not None:
        popularity[: min(n, len(known))] = known[:n]
    order = np.argsort(-popularity, kind="stable")
    retired = set(catalogue.known.retired.tolist())
    return [position for position in order.tolist() if position not in retired]


def facts_digest(store: DeviceStore) -> str:
    """Return the SHA-256 of the public numbers of the model here; empty without a model."""
    model = local_model(store)
    return "" if model is None else sha256(model.numbers).hexdigest()


def hidden_ids(store: DeviceStore) -> set[str]:
    """Return the ids of this recommender's items that the owner hid."""
    return {id_of(name) for name in hidden_items(store) if name == store.name_of(id_of(name))}


def hidden_items(store: DeviceStore) -> tuple[str, ...]:
    """Return the items that the owner hid, by their names on this device, the oldest first."""
    return tuple(row.item for row in store.tables.hidden_items.rows())


def hide(store: DeviceStore, item: str, hidden: bool = True) -> None:
    """Leave an item out of the owner's lists from now on, or show it again. Nothing is sent."""
    with store.transaction():
        if not hidden:
            store.tables.hidden_items.delete(item)
            return
        store.tables.hidden_items.put(HiddenItem(item=item))
        for oldest in hidden_items(store)[:-_MOST_HIDDEN]:
            store.tables.hidden_items.delete(oldest)
