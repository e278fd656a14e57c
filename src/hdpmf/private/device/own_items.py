"""The items that a device's owner sees and rates, and ratings from the owner's own file.

Items are the recommender's or, before there is any, a file's. What of a file cannot be used is
named, never guessed.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from hashlib import sha256
from typing import Literal

import numpy as np

from hdpmf.common.data import RatingScale
from hdpmf.common.data.items import read_item_table
from hdpmf.common.protocol.catalogue import catalogue_table, plain
from hdpmf.common.protocol.titles import upright
from hdpmf.errors import ConfigError, ProtocolError, RatingsError, UnknownIdError
from hdpmf.private.device.disclosures.shared_budget import title_key
from hdpmf.private.device.rating_files import Service, converted, number_of, read_rating_file
from hdpmf.private.device.store.catalogues import PinnedCatalogue, pinned
from hdpmf.private.device.store.device_store import DeviceStore
from hdpmf.private.device.store.ratings_table import Record
from hdpmf.private.device.store.schema import FIRST, OWN_FILE

_NO_ITEMS = (
    "there are no items yet: load a catalogue from a file, or join a recommender, which brings one"
)


def load_catalogue(
    store: DeviceStore, path: str | os.PathLike[str], scale: RatingScale | None = None
) -> PinnedCatalogue:
    """Load items from a file, to search and rate before joining a recommender.

    A recommender's catalogue replaces them.

    Args:
        path: A CSV, TSV or Parquet file (see ``read_item_table``).
        scale: What items are rated on: by default the owner's scale, or one to five stars.

    Raises:
        ConfigError: A recommender's catalogue is pinned already, or the owner rates on another
            scale.
        RatingsError: It is no such file.
    """
    if any(store.at(each).pinned_catalogue is not None for each in store.recommender_ids):
        raise ConfigError(
            "a recommender's catalogue is here already, and ratings are about its items"
        )
    own = store.scale
    chosen = scale or own or RatingScale(1.0, 5.0, 1.0)
    if own is not None and (own.low, own.high) != (chosen.low, chosen.high):
        raise ConfigError(
            f"you rate on the scale {own} here; a catalogue for {chosen} does not fit"
        )
    items = read_item_table(path)
    try:
        data = catalogue_table(items.index, chosen, items).to_bytes()
        found = pinned(data)
    except ProtocolError as error:
        raise RatingsError(str(error)) from error
    store.set_own_items(data)
    return found


def current_catalogue(store: DeviceStore) -> PinnedCatalogue | None:
    """The items that the owner sees."""
    known = store.pinned_catalogue
    if known is not None:
        return known
    own = store.tables.catalogues.find(OWN_FILE) if store.recommender_id == FIRST else None
    return None if own is None else pinned(own.data)


def all_titles(store: DeviceStore) -> dict[str, str]:
    """The titles of all recommenders' items, by their names on this device."""
    found: dict[str, str] = {}
    for recommender_id in store.recommender_ids:
        shown = current_catalogue(store.at(recommender_id))
        if shown is not None:
            found |= zip(shown.table.ids, shown.table.titles, strict=False)
    return found


def rate_known(
    store: DeviceStore, item: str, value: float, at: int | Literal["now"] | None = "now"
) -> float | None:
    """Rate an item that the owner sees; the rating that it had before.

    An undo gives the time that the rating had (``at``), so that all is as it was.

    Raises:
        UnknownIdError: There is no such item.
        RatingsError: The value is not on the scale, or not on one of its steps. Nothing was
            changed.
    """
    shown = current_catalogue(store)
    if shown is None:
        raise ConfigError(_NO_ITEMS)
    if item not in shown.positions:
        raise UnknownIdError("the catalogue has no such item; nothing was changed")
    import numpy as np

    if not bool(shown.fit(np.array([value]))[0]):
        scale = shown.known.scale
        steps = "" if scale.step is None else f" in steps of {scale.step:g}"
        raise RatingsError(
            f"a rating must be from {scale.low:g} to {scale.high:g}{steps}; nothing was changed"
        )
    with store.transaction():
        before = rating_of(store, item)
        store.rate(item, value, at=at)
    return before


def rating_of(store: DeviceStore, item: str) -> float | None:
    """The owner's rating of an item."""
    return store.rated.values_of([item]).get(item)


_SHOWN = 5

_WITH_YEAR = re.compile(r"^(.*\S)\s*\((\d{4})\)$")


@dataclass(frozen=True, slots=True, repr=False)
class FilePreview:
    """A preview of a file of ratings. PRIVATE.

    Attributes:
        ready: Items and ratings that can be taken in.
        sources: For each of them, the row that it comes from, in its plainest form.
        new: How many of them are of items without a rating here.
        changed: How many have another rating here.
        unknown: Rows about items that the catalogue does not have.
        off_scale: Rows whose rating is none, or not on the scale.
        repeated: Rows about an item that an earlier row is about; the last one counts.
        examples: The first rows that cannot be used, in words.
        service: Whose export it is, if it is known: its ratings were converted to the scale here.
    """

    ready: tuple[tuple[str, float], ...]
    sources: tuple[str, ...]
    new: int
    changed: int
    unknown: int
    off_scale: int
    repeated: int
    examples: tuple[str, ...]
    service: Service | None = None


def preview_file(store: DeviceStore, data: bytes) -> FilePreview:
    """Read the ratings of a CSV or TSV file as they would be here. Nothing is changed.

    The file has a header. Items are known by an id (``item``, ``movieId``, ``id``, ...) or else by
    ``title``, with a ``year`` where there is one; ratings are in ``rating`` (or ``stars``, ``Your
    Rating``, ...). Ratings of a service that is known (``rating_files``) are converted to the scale
    of the catalogue.

    Raises:
        ConfigError: There are no items to rate yet.
        RatingsError: It is no such file.
    """
    shown = current_catalogue(store)
    if shown is None:
        raise ConfigError("load a catalogue first, so that the file's items can be found in it")
    known = {record.item: record.value for record in store.records()}
    ready: dict[str, float] = {}
    sources: dict[str, str] = {}
    whole = sha256(data).hexdigest()
    unknown = off_scale = repeated = 0
    examples: list[str] = []
    by_title: dict[str, str] | None = None
    file = read_rating_file(data)
    for number, item, title, year, text in file.rows:
        name = shown.name_of(item)
        target = name if item and name in shown.positions else None
        otherwise = (
            target is not None and bool(title) and _says_otherwise(shown, target, title, year)
        )
        if (target is None or otherwise) and title:
            by_title = _titles(shown) if by_title is None else by_title
            target = _by_title(shown, by_title, title, year)
        if target is None:
            unknown += 1
            examples.append(
                f"Row {number}: the catalogue has another title for its item."
                if otherwise
                else f"Row {number}: the catalogue has no item like this."
            )
            continue
        value = number_of(text)
        if value is not None:
            value = converted(value, file.service, shown.known.scale)
        if value is None or not bool(shown.fit(np.array([value]))[0]):
            off_scale += 1
            examples.append(f"Row {number}: its rating is not on the scale {shown.known.scale}.")
            continue
        repeated += target in ready
        ready[target] = value
        sources[target] = _source(item, title, year, whole)
    new = sum(item not in known for item in ready)
    changed = sum(item in known and known[item] != value for item, value in ready.items())
    return FilePreview(
        tuple(ready.items()),
        tuple(sources[item] for item in ready),
        new,
        changed,
        unknown,
        off_scale,
        repeated,
        tuple(examples[:_SHOWN]),
        file.service,
    )


def take_file(store: DeviceStore, preview: FilePreview) -> int:
    """Take in what was looked at, all of it or nothing; how many ratings."""
    if preview.ready:
        rows = zip(preview.ready, preview.sources, strict=True)
        store.rated.put(
            [Record(item, value, source=source) for (item, value), source in rows],
            current_catalogue(store),
        )
    return len(preview.ready)


def _source(item: str, title: str, year: str, whole: str) -> str:
    """Return what a row is known by when its file is taken in for another recommender, too.

    An id alone says something only within its own file: ids of another one may be of other things.
    """
    if title:
        key, at_its_end = title_key(title)
        return f"title {key} {year or at_its_end}"
    return f"file {whole} {item}"


def _says_otherwise(shown: PinnedCatalogue, item: str, title: str, year: str) -> bool:
    """Return True if the catalogue has another title or year for an item."""
    table = shown.table
    position = shown.positions[item]
    key, when = title_key(
        table.titles[position] if table.titles else "",
        table.years[position] if table.years else None,
    )
    said, at_its_end = title_key(title)
    if when and (year or at_its_end) and (year or str(at_its_end)) != str(when):
        return True
    return bool(key) and key != said


def _titles(shown: PinnedCatalogue) -> dict[str, str]:
    """Items by title and year, and by title alone where no other item has it."""
    table = shown.table
    found: dict[str, str] = {}
    alone: dict[str, list[str]] = {}
    for position, (item, title) in enumerate(zip(table.ids, table.titles or (), strict=False)):
        year = table.years[position] if table.years else None
        found[_key(title, "" if year is None else str(year))] = item
        alone.setdefault(_key(title, None), []).append(item)
    return found | {f"{title}\n": items[0] for title, items in alone.items() if len(items) == 1}


def _by_title(shown: PinnedCatalogue, titles: dict[str, str], title: str, year: str) -> str | None:
    """Return the item of this title and year; None if there is none.

    Where either side has no year it is the only item of this title.
    """
    whole = _key(title, year)
    found = titles.get(whole)
    if found is None:
        found = titles.get(f"{_key(title, None)}\n")
        years = shown.table.years
        if (
            found is not None
            and not whole.endswith("\n")
            and years
            and years[shown.positions[found]] is not None
        ):
            return None  # another year is another film
    return found


def _key(title: str, year: str | None) -> str:
    """Return the key of a title; a year at its end counts as its year."""
    parts = _WITH_YEAR.match(title)
    name = plain(upright(parts[1] if parts else title))
    if year is None:
        return name
    return f"{name}\n{year or (parts[2] if parts else '')}"
