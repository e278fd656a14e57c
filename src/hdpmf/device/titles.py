"""The items that a device's owner sees: the recommender's or, before there is any, a file's; and their search."""

from __future__ import annotations

import os
import unicodedata
from bisect import bisect_right

import msgspec

from hdpmf.device.public import PinnedCatalogue, pinned
from hdpmf.device.store import DeviceStore
from hdpmf.errors import ConfigError, ProtocolError, RatingsError, UnknownIdError
from hdpmf.protocol.catalogue import catalogue_table
from hdpmf.ratings import RatingScale
from hdpmf.ratings.item_file import read_item_table

_OWN = "own catalogue"
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
    if store.pinned_catalogue is not None:
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
    store.put(_OWN, data)
    return found


def shown_items(store: DeviceStore) -> PinnedCatalogue | None:
    """The items that the owner sees."""
    known = store.pinned_catalogue
    if known is not None:
        return known
    data = store.get(_OWN)
    return None if data is None else pinned(data)


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
    return next((record.value for record in store.records() if record.item == item), None)


class TitleSearch:
    """Finds items by parts of their titles, as fast as one types.

    Args:
        shown: The items.
    """

    def __init__(self, shown: PinnedCatalogue) -> None:
        self.shown = shown
        titles = shown.table.titles or shown.table.ids
        self._lines = [f" {plain(title or item)}" for title, item in zip(titles, shown.table.ids, strict=True)]
        self._text = "\n".join(self._lines)
        self._starts: list[int] = []
        at = 0
        for line in self._lines:
            self._starts.append(at)
            at += len(line) + 1

    def __repr__(self) -> str:
        return f"TitleSearch({len(self._lines):,} items)"

    def find(self, wanted: str, most: int = 20) -> list[int]:
        """Positions of items with all of these words in the title: first where the title begins so, then a word."""
        words = plain(wanted).split()
        if not words:
            return []
        whole = " ".join(words)
        rarest = words[0] if len(words) == 1 else min(words, key=self._text.count)
        found: dict[int, None] = {}
        if self._lines[0].startswith(f" {whole}"):
            found[0] = None
        needles: list[tuple[str, list[str]]] = [(f"\n {whole}", []), (f" {whole}", []), (rarest, words)]
        for needle, every in needles:
            at = self._text.find(needle)
            while at >= 0 and len(found) < most:
                line = bisect_right(self._starts, at + needle.startswith("\n")) - 1
                if line not in found and all(word in self._lines[line] for word in every):
                    found[line] = None
                ends = self._starts[line + 1] - 1 if line + 1 < len(self._starts) else len(self._text)
                at = self._text.find(needle, ends)
            if len(found) >= most:
                break
        return list(found)


def plain(text: str) -> str:
    """Small letters without accents, words apart by one space."""
    bare = unicodedata.normalize("NFKD", text.casefold())
    return " ".join("".join(letter for letter in bare if not unicodedata.combining(letter)).split())
