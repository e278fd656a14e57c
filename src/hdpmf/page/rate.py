"""The page "Rate": search, stars, undo, a catalogue from a file, ratings from a file."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from hdpmf.device.dial import item_weights, mark
from hdpmf.device.own_file import FilePreview, preview_file, take_file
from hdpmf.device.public import PinnedCatalogue
from hdpmf.device.rated import ME
from hdpmf.device.releases import released_words, releases
from hdpmf.device.shelves import id_of
from hdpmf.device.store import DeviceStore
from hdpmf.device.titles import load_catalogue, rate_known, rating_of, shown_items
from hdpmf.errors import ConfigError
from hdpmf.page.visit import Visit, choices, item_fields, levels
from hdpmf.ratings import RatingScale

MOST_SHOWN = 200
"""Ratings on one page; others are found by searching."""

_FOUND = 20
_KINDS = {"csv": ".csv", "tsv": ".tsv", "txt": ".csv", "parquet": ".parquet"}


def rate_page(visit: Visit) -> dict[str, Any]:
    """What is rated, and what there is to search in."""
    with visit.store() as store:
        visit.owner.search(store.place, fresh=True)
        shown = shown_items(store)
        values = {record.item: record.value for record in store.rated.records() if record.user == ME}
        facts: dict[str, Any] = {
            "shown": shown is not None,
            "rated": len(values) if shown is None else _rated_here(shown, values),
            "scale": store.scale,
            "file": visit.session.held.get("file"),
            "places": choices(store),
            "place": store.place,
            "left_out": 0 if shown is None else _left_out(store, values),
        }
        if shown is None:
            return facts
        table, scale = shown.table, shown.known.scale
        places = [shown.positions[item] for item in values if item in shown.positions]
        places.sort(key=lambda place: (table.titles[place] if table.titles else "") or id_of(table.ids[place]))
        first = places[:MOST_SHOWN]
        return facts | {
            "items": item_fields(table, first, values, item_weights(store, [table.ids[place] for place in first])),
            "more": len(places) - len(first),
            "n_items": len(shown.positions),
            "levels": levels(shown),
            "low": scale.low,
            "high": scale.high,
            "step": scale.step,
            "can_load": store.pinned_catalogue is None,
        }


def _rated_here(shown: PinnedCatalogue, items: Iterable[str]) -> int:
    """How many of these items this recommender has."""
    return sum(item in shown.positions for item in items)


def _left_out(store: DeviceStore, items: Iterable[str]) -> int:
    """Of how many of these items no recommender has heard."""
    shown = [shown_items(store.at(place)) for place in store.places]
    return sum(all(known is None or item not in known.positions for known in shown) for item in items)


def find(visit: Visit) -> dict[str, Any]:
    """Items with these words in the title."""
    with visit.store() as store:
        search = visit.owner.search(store.place)
        if search is None:
            raise ConfigError(visit.t("rate.no_items"))
        found = search.find(visit.text("words"), _FOUND)
        items = [search.table.ids[place] for place in found]
        values, weights = store.rated.values_of(ME, items), item_weights(store, items)
        return {"items": item_fields(search.table, found, values, weights)}


def set_rating(visit: Visit) -> dict[str, Any]:
    """Rate an item, or take its rating out; what it was before, for undoing."""
    item = visit.text("item")
    with visit.store() as store:
        sent, removed = releases(store, ME, item), visit.text("value") == ""
        if removed:
            before = rating_of(store, item)
            store.remove(item)
        else:
            before = rate_known(store, item, visit.number("value"))
        told = "" if not sent else released_words(sent[-1].entry, removed=removed)
        shown, mine = shown_items(store), (record.item for record in store.rated.records() if record.user == ME)
        return {"before": before, "rated": 0 if shown is None else _rated_here(shown, mine), "told": told}


def set_private(visit: Visit) -> dict[str, Any]:
    """Mark an item as sensitive, or not any more."""
    with visit.store() as store:
        shown, item = shown_items(store), visit.text("item")
        if shown is None or item not in shown.positions:
            raise ConfigError(visit.t("rate.unknown"))
        private = visit.text("private") == "yes"
        mark(store, [item], *([] if private else [1.0]))
        return {"private": private}


def load_items(visit: Visit) -> str:
    """A catalogue from a file that the browser read."""
    ending = _KINDS.get(visit.text("kind"))
    if ending is None or not visit.body:
        raise ConfigError(visit.t("rate.no_file"))
    low, high, step = (visit.number(name) for name in ("low", "high", "step"))
    with tempfile.TemporaryDirectory() as folder, visit.store() as store:
        place = Path(folder) / f"catalogue{ending}"
        place.write_bytes(visit.body)
        found = load_catalogue(store, place, store.scale or RatingScale(low, high, step))
    visit.session.note(visit.t.count("rate.loaded", len(found.positions)))
    return "/rate"


def look_into_file(visit: Visit) -> str:
    """A file of ratings: what it would bring."""
    with visit.store() as store:
        visit.session.held["file"] = preview_file(store, visit.body)
    return "/rate"


def take_in_file(visit: Visit) -> str:
    """Take in what was looked at, or not."""
    preview = visit.session.held.pop("file", None)
    if not isinstance(preview, FilePreview):
        raise ConfigError(visit.t("rate.no_file"))
    if visit.text("answer") == "yes":
        with visit.store() as store:
            visit.session.note(visit.t.count("rate.taken", take_file(store, preview)))
    return "/rate"
