"""The pages about items.

"Rate" has popular titles, search, ratings, files of ratings and catalogues; "For you" the list, its
filters, and items that the owner does not want to see; "Start" three steps from an invitation to a
list.
"""

from __future__ import annotations

import tempfile
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any, Literal

from hdpmf.common.data import ItemFilter, RatingScale
from hdpmf.errors import ConfigError
from hdpmf.private.device.choices.privacy_level import (
    GROUPS,
    group_of,
    item_weights,
    privacy_weight,
    set_sensitive,
)
from hdpmf.private.device.disclosures.bounds import bound_of_items, privacy_bounds
from hdpmf.private.device.disclosures.history import past_runs, released_words, releases
from hdpmf.private.device.memberships import joined_recommenders
from hdpmf.private.device.own_items import (
    FilePreview,
    current_catalogue,
    load_catalogue,
    preview_file,
    rate_known,
    rating_of,
    take_file,
)
from hdpmf.private.device.recommendations import (
    hidden_items,
    hide,
    local_model,
    owner_recommendations,
    popular_positions,
)
from hdpmf.private.device.store.catalogues import PinnedCatalogue, id_of
from hdpmf.private.device.store.device_store import DeviceStore
from hdpmf.private.page.pictures import part_of_scale
from hdpmf.private.page.request import (
    START,
    PageRequest,
    choices,
    invited_fields,
    item_fields,
    name_of,
    page_of,
    shown_item,
    star_fields,
)

MOST_SHOWN = 200
"""Ratings on one page; others are found by searching."""

ENOUGH = 10
"""Ratings from which on a list is clearly one's own."""

_FOUND = 20
_WALL = 24
_MOST_OF_WALL = 2_000

_KINDS = {"csv": ".csv", "tsv": ".tsv", "txt": ".csv", "parquet": ".parquet"}


def rate_page(request: PageRequest) -> dict[str, Any]:
    """Return the rated items and the catalogue's size."""
    with request.store() as store:
        request.owner.search(store.recommender_id, fresh=True)
        shown = current_catalogue(store)
        values = {record.item: record.value for record in store.rated.records()}
        facts: dict[str, Any] = {
            "shown": shown is not None,
            "rated": _rated_here(shown, values),
            "scale": store.scale,
            "file": request.session.state.get("file"),
            "choices": choices(store),
            "recommender_id": store.recommender_id,
            "left_out": 0 if shown is None else _left_out(store, values),
        }
        if shown is None:
            return facts
        table = shown.table
        positions = [shown.positions[item] for item in values if item in shown.positions]
        positions.sort(
            key=lambda position: (
                (table.titles[position] if table.titles else "") or id_of(table.ids[position])
            )
        )
        first = positions[:MOST_SHOWN]
        return facts | {
            "items": item_fields(
                table,
                first,
                values,
                item_weights(store, [table.ids[position] for position in first]),
            ),
            "more": len(positions) - len(first),
            "n_items": len(shown.positions),
            "can_load": store.pinned_catalogue is None,
            "wall": _wall(store, shown, values, 0),
            "by_popularity": local_model(store) is not None,
            "enough": ENOUGH,
            **star_fields(shown),
        }


def _rated_here(shown: PinnedCatalogue | None, items: Iterable[str]) -> int:
    """Count the items that this recommender has; all of them while there is no catalogue."""
    return sum(shown is None or item in shown.positions for item in items)


def _left_out(store: DeviceStore, items: Iterable[str]) -> int:
    shown = [current_catalogue(store.at(known)) for known in store.recommender_ids]
    return sum(
        all(known is None or item not in known.positions for known in shown) for item in items
    )


def popular(request: PageRequest) -> dict[str, Any]:
    """Return more of the popular titles that the owner has not rated."""
    with request.store() as store:
        shown = current_catalogue(store)
        if shown is None:
            raise ConfigError(request.t("rate.no_items"))
        values = {record.item for record in store.rated.records()}
        return _wall(store, shown, values, page_of(request, _MOST_OF_WALL))


def _wall(
    store: DeviceStore, shown: PinnedCatalogue, rated: Collection[str], offset: int
) -> dict[str, Any]:
    """Return popular items from ``offset`` on: neither rated nor hidden, nor retired."""
    ids = shown.table.ids
    away = {*rated, *hidden_items(store)}
    positions = [each for each in popular_positions(store, shown) if ids[each] not in away]
    part = positions[offset : offset + _WALL]
    weights = item_weights(store, [ids[position] for position in part])
    return {
        "items": item_fields(shown.table, part, {}, weights),
        "more": offset + _WALL < min(len(positions), _MOST_OF_WALL),
    }


def find(request: PageRequest) -> dict[str, Any]:
    """Return items with these words in the title."""
    with request.store() as store:
        search = request.owner.search(store.recommender_id)
        if search is None:
            raise ConfigError(request.t("rate.no_items"))
        found = search.find(request.text("words"), _FOUND)
        items = [search.table.ids[position] for position in found]
        values = store.rated.values_of(items)
        weights = item_weights(store, items)
        return {"items": item_fields(search.table, found, values, weights)}


def set_rating(request: PageRequest) -> dict[str, Any]:
    """Set or remove a rating; return the old value, for undo."""
    item = request.text("item")
    with request.store() as store:
        sent = releases(store, item)
        removed = request.text("value") == ""
        made = {record.item: record.at for record in store.rated.records()}
        if removed:
            before = rating_of(store, item)
            store.remove(item)
        else:
            before = rate_known(store, item, request.number("value"), _time(request))
        history = (
            "" if not sent else released_words(sent[-1].entry, "removed" if removed else "changed")
        )
        shown = current_catalogue(store)
        mine = (set(made) - {item}) | (set() if removed else {item})
        return {
            "before": before,
            "before_at": "" if made.get(item) is None else str(made[item]),
            "rated": _rated_here(shown, mine),
            "history": history,
        }


def _time(request: PageRequest) -> int | Literal["now"] | None:
    """Return when a rating was made: the time that an undo brings back, or now."""
    if request.text("undo") != "yes":
        return "now"
    given = request.text("at", 12)
    return int(given) if given.isdecimal() else None


def set_private(request: PageRequest) -> dict[str, Any]:
    """Mark an item as sensitive, or not any more."""
    with request.store() as store:
        item = shown_item(request, store)
        private = request.text("private") == "yes"
        set_sensitive(store, item, private)
        return {
            "private": private,
            "told": _sent_before(request, store, item) if private else "",
        }


def _sent_before(request: PageRequest, store: DeviceStore, item: str) -> str:
    """Say to somebody who marks an item that its rating was sent already; empty if it was not."""
    sent = releases(store, item)
    if not sent:
        return ""
    words = released_words(sent[-1].entry, "marked")
    if privacy_bounds(store).spent.proved:
        most = bound_of_items(store, [item])
        words += " " + request.t("rate.private_sent", percent=most.percent)
    return words


def load_items(request: PageRequest) -> str:
    """Load a catalogue from an uploaded file."""
    ending = _KINDS.get(request.text("kind"))
    if ending is None or not request.body:
        raise ConfigError(request.t("rate.no_file"))
    low, high, step = (request.number(name) for name in ("low", "high", "step"))
    with tempfile.TemporaryDirectory() as folder, request.store() as store:
        path = Path(folder) / f"catalogue{ending}"
        path.write_bytes(request.body)
        found = load_catalogue(store, path, store.scale or RatingScale(low, high, step))
    request.session.note(request.t.count("rate.loaded", len(found.positions)))
    return "/rate"


def preview_upload(request: PageRequest) -> str:
    """Preview an uploaded file of ratings."""
    with request.store() as store:
        request.session.state["file"] = preview_file(store, request.body)
    return "/rate"


def answer_upload(request: PageRequest) -> str:
    """Import or drop the previewed file."""
    preview = request.session.state.pop("file", None)
    if not isinstance(preview, FilePreview):
        raise ConfigError(request.t("rate.no_file"))
    if request.text("answer") == "yes":
        with request.store() as store:
            request.session.note(request.t.count("rate.taken", take_file(store, preview)))
    return "/rate"


_PART = 20
_MOST = 500


def recommendations_page(request: PageRequest) -> dict[str, Any]:
    """Return the list, what it can be narrowed to, and the hidden items."""
    with request.store() as store:
        model = local_model(store)
        shown = current_catalogue(store)
        facts: dict[str, Any] = {
            "model": None,
            "items": [],
            "hidden": [],
            "rated": store.n_ratings,
            "anything_left": any(run.count("sent") > 0 for run in past_runs(store)),
            "choices": choices(store),
            "recommender_id": store.recommender_id,
        }
        if shown is not None:
            positions = [
                shown.positions[item] for item in hidden_items(store) if item in shown.positions
            ]
            facts["hidden"] = item_fields(shown.table, positions, {}, {})
        if model is None or shown is None:
            return facts
        years = {year for year in shown.table.years or () if year is not None}
        return (
            facts
            | star_fields(shown)
            | _list(store, shown, 0)
            | {
                "model": {"run": model.run[:8], "method": model.method},
                "genres": sorted({name for own in shown.table.genres or () for name in own}),
                "decades": sorted({year // 10 * 10 for year in years}, reverse=True),
            }
        )


def find_recommendations(request: PageRequest) -> dict[str, Any]:
    """Return a part of the list, of one genre or decade if the owner wants that."""
    genre, decade = request.text("genre"), request.text("decade")
    first = int(decade) if decade.isdecimal() and len(decade) < 6 else None
    only = ItemFilter(
        genres=(genre,) if genre else (),
        from_year=first,
        to_year=None if first is None else first + 9,
    )
    with request.store() as store:
        shown = current_catalogue(store)
        if shown is None or local_model(store) is None:
            return {"items": [], "more": False}
        offset = page_of(request, _MOST)
        return _list(store, shown, offset, only, keep_rated=request.text("rated") == "yes")


def _list(
    store: DeviceStore,
    shown: PinnedCatalogue,
    offset: int,
    only: ItemFilter | None = None,
    *,
    keep_rated: bool = False,
) -> dict[str, Any]:
    """Return ``_PART`` items of the list from ``offset`` on, and True if there are more."""
    wanted = offset + _PART
    found = owner_recommendations(store, wanted + 1, only=only, keep_rated=keep_rated)
    part = found[offset:wanted]
    names = [store.name_of(str(entry.item)) for entry in part]
    values = store.rated.values_of(names)
    fields = item_fields(shown.table, [shown.positions[name] for name in names], values, {})
    high = shown.known.scale.high
    return {
        "items": [
            each
            | {
                "rank": offset + place,
                "score": f"{entry.score:.1f}",
                # A device always expects a rating.
                "part": f"{100 * max(entry.score or 0.0, 0.0) / high:.1f}",
                "reason": entry.reason or "",
            }
            for place, (each, entry) in enumerate(zip(fields, part, strict=True), start=1)
        ],
        "more": len(found) > wanted and wanted < _MOST,
    }


def set_hidden(request: PageRequest) -> dict[str, Any]:
    """Hide an item from the recommendations, or show it again."""
    with request.store() as store:
        hide(store, shown_item(request, store), request.text("hidden") == "yes")
    return {}


def start_page(request: PageRequest) -> dict[str, Any]:
    """Return the three steps and which of them are done."""
    with request.store() as store:
        weight = privacy_weight(store)
        return {
            "n_items": _n_items(store),
            "model": local_model(store) is not None,
            **invited_fields(request, store),
            "joined": [name_of(store, known.address) for known in joined_recommenders(store)],
            "recommender_id": store.recommender_id,
            "rated": store.n_ratings,
            "enough": ENOUGH,
            "levels": [
                _level(store, name, low) | {"chosen": name == group_of(weight)}
                for name, low in GROUPS.items()
            ],
        }


def _n_items(store: DeviceStore) -> int:
    shown = current_catalogue(store)
    return 0 if shown is None else len(shown.positions)


def _level(store: DeviceStore, name: str, weight: float) -> dict[str, Any]:
    bounds = privacy_bounds(store, weight)
    return {
        "name": name,
        "weight": weight,
        "percent": bounds.rating.percent if bounds.proved else "",
        "part": part_of_scale(bounds.rating),
    }


def start_state(request: PageRequest) -> dict[str, Any]:
    """Return the number of titles that have come, which the page waits for."""
    with request.store() as store:
        return {"n_items": _n_items(store)}


def first_path(request: PageRequest) -> str:
    """Return the page that opens first: the next thing to do, or the list."""
    with request.store() as store:
        if not store.n_ratings:
            return START
        return "/rate" if local_model(store) is None else "/recommendations"
