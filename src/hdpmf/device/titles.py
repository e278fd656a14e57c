"""The items that a device's owner sees: the recommender's or, before there is any, a file's."""

from __future__ import annotations

import os

import msgspec

from hdpmf.device.named_values import FIRST
from hdpmf.device.public import PinnedCatalogue, pinned
from hdpmf.device.rated import ME
from hdpmf.device.store import OWN_ITEMS, DeviceStore
from hdpmf.errors import ConfigError, ProtocolError, RatingsError, UnknownIdError
from hdpmf.protocol.catalogue import catalogue_table
from hdpmf.ratings import RatingScale
from hdpmf.ratings.item_file import read_item_table

_NO_ITEMS = "there are no items yet: load a catalogue from a file, or join a recommender, which brings one"


def load_catalogue(
    store: DeviceStore, path: str | os.PathLike[str], scale: RatingScale | None = None
) -> PinnedCatalogue:
    """Take items from a file, to search and rate before the first recommender. A recommender's own replaces them.

    Args:
        store: The device.
        path: A CSV, TSV or Parquet file (see ``read_item_table``).
        scale: What items are rated on: by default the owner's scale, or one to five stars.

    Raises:
        ConfigError: A recommender's catalogue is pinned already, or the owner rates on another scale.
        RatingsError: It is no such file.
    """
    if any(store.at(place).pinned_catalogue is not None for place in store.places):
        raise ConfigError("a recommender's catalogue is here already, and ratings are about its items")
    own = store.scale
    chosen = scale or own or RatingScale(1.0, 5.0, 1.0)
    if own is not None and (own.low, own.high) != (chosen.low, chosen.high):
        raise ConfigError(f"you rate on the scale {own} here; a catalogue for {chosen} does not fit")
    items = read_item_table(path)
    try:
        data = msgspec.msgpack.encode(catalogue_table(items.index, chosen, items))
        found = pinned(data)
    except ProtocolError as error:
        raise RatingsError(str(error)) from error
    store.put(OWN_ITEMS, data)
    return found


def shown_items(store: DeviceStore) -> PinnedCatalogue | None:
    """The items that the owner sees."""
    known = store.pinned_catalogue
    if known is not None:
        return known
    data = store.get(OWN_ITEMS) if store.place == FIRST else None
    return None if data is None else pinned(data)


def all_titles(store: DeviceStore) -> dict[str, str]:
    """The titles of all recommenders' items, by their names on this device."""
    found: dict[str, str] = {}
    for place in store.places:
        shown = shown_items(store.at(place))
        if shown is not None:
            found |= zip(shown.table.ids, shown.table.titles, strict=False)
    return found


def rate_known(store: DeviceStore, item: str, value: float) -> float | None:
    """Rate an item that the owner sees; the rating that it had before.

    Raises:
        UnknownIdError: There is no such item.
        RatingsError: The value is not on the scale, or not on one of its steps. Nothing was changed.
    """
    shown = shown_items(store)
    if shown is None:
        raise ConfigError(_NO_ITEMS)
    if item not in shown.positions:
        raise UnknownIdError("the catalogue has no such item; nothing was changed")
    import numpy as np

    if not bool(shown.fit(np.array([value]))[0]):
        scale = shown.known.scale
        steps = "" if scale.step is None else f" in steps of {scale.step:g}"
        raise RatingsError(f"a rating must be from {scale.low:g} to {scale.high:g}{steps}; nothing was changed")
    with store.transaction():
        before = rating_of(store, item)
        store.rate(item, value)
    return before


def rating_of(store: DeviceStore, item: str) -> float | None:
    """The owner's rating of an item."""
    return store.rated.values_of(ME, [item]).get(item)
