"""The pages "Rate" and "For you": items, ratings and recommendations."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from hdpmf.common.data import RatingScale
from hdpmf.errors import ConfigError
from hdpmf.private.device.choices.privacy_level import held_down, item_weights, mark
from hdpmf.private.device.disclosures.history import released_words, releases
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
)
from hdpmf.private.device.store.catalogues import PinnedCatalogue, id_of
from hdpmf.private.device.store.device_store import DeviceStore
from hdpmf.private.device.store.ratings_table import ME
from hdpmf.private.page.request import PageRequest, choices, item_fields, levels
from hdpmf.private.page.sharing import shows_to

MOST_SHOWN = 200
"""Ratings on one page; others are found by searching."""

_FOUND = 20

_KINDS = {"csv": ".csv", "tsv": ".tsv", "txt": ".csv", "parquet": ".parquet"}


def rate_page(request: PageRequest) -> dict[str, Any]:
    """Return the rated items and the catalogue's size."""
    with request.store() as store:
        request.owner.search(store.recommender_id, fresh=True)
        shown = current_catalogue(store)
        values = {
            record.item: record.value for record in store.rated.records() if record.user == ME
        }
        facts: dict[str, Any] = {
            "shown": shown is not None,
            "rated": len(values) if shown is None else _rated_here(shown, values),
            "scale": store.scale,
            "file": request.session.state.get("file"),
            "choices": choices(store),
            "recommender_id": store.recommender_id,
            "left_out": 0 if shown is None else _left_out(store, values),
            "shows_to": shows_to(store),
        }
        if shown is None:
            return facts
        table = shown.table
        scale = shown.known.scale
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
            "levels": levels(shown),
            "low": scale.low,
            "high": scale.high,
            "step": scale.step,
            "can_load": store.pinned_catalogue is None,
        }


def _rated_here(shown: PinnedCatalogue, items: Iterable[str]) -> int:
    """Count the items that this recommender has."""
    return sum(item in shown.positions for item in items)


def _left_out(store: DeviceStore, items: Iterable[str]) -> int:
    """Count the items that no recommender has."""
    shown = [current_catalogue(store.at(known)) for known in store.recommender_ids]
    return sum(
        all(known is None or item not in known.positions for known in shown) for item in items
    )


def find(request: PageRequest) -> dict[str, Any]:
    """Return items with these words in the title."""
    with request.store() as store:
        search = request.owner.search(store.recommender_id)
        if search is None:
            raise ConfigError(request.t("rate.no_items"))
        found = search.find(request.text("words"), _FOUND)
        items = [search.table.ids[position] for position in found]
        values = store.rated.values_of(ME, items)
        weights = item_weights(store, items)
        return {"items": item_fields(search.table, found, values, weights)}


def set_rating(request: PageRequest) -> dict[str, Any]:
    """Set or remove a rating; return the old value, for undo."""
    item = request.text("item")
    with request.store() as store:
        sent = releases(store, ME, item)
        removed = request.text("value") == ""
        if removed:
            before = rating_of(store, item)
            store.remove(item)
        else:
            before = rate_known(store, item, request.number("value"))
        history = "" if not sent else released_words(sent[-1].entry, removed=removed)
        shown = current_catalogue(store)
        mine = (record.item for record in store.rated.records() if record.user == ME)
        return {
            "before": before,
            "rated": 0 if shown is None else _rated_here(shown, mine),
            "history": history,
        }


def set_private(request: PageRequest) -> dict[str, Any]:
    """Mark an item as sensitive, or not any more."""
    with request.store() as store:
        item = _shown_item(request, store)
        private = request.text("private") == "yes"
        mark(store, [item], *([] if private else [1.0]))
        held = held_down(store, item)
        # Taking this mark away raises nothing that another rule holds down; the page says which.
        told = "" if private else held.in_words()
        if not private and held.weight >= 1 and shows_to(store):
            told = request.t("sharing.unhidden", recommender=shows_to(store))
        return {"private": held.weight < 1, "told": told}


def _shown_item(request: PageRequest, store: DeviceStore) -> str:
    """Return the item that the request names."""
    shown = current_catalogue(store)
    item = request.text("item")
    if shown is None or item not in shown.positions:
        raise ConfigError(request.t("rate.unknown"))
    return item


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


_MOST_RECOMMENDED = 20


def recommendations_page(request: PageRequest) -> dict[str, Any]:
    """Return the recommendations and the hidden items."""
    with request.store() as store:
        model = local_model(store)
        shown = current_catalogue(store)
        facts: dict[str, Any] = {"model": None, "items": [], "hidden": [], "rated": store.n_ratings}
        facts |= {"choices": choices(store), "recommender_id": store.recommender_id}
        if shown is not None:
            positions = [
                shown.positions[item] for item in hidden_items(store) if item in shown.positions
            ]
            facts["hidden"] = item_fields(shown.table, positions, {}, {})
        if model is None or shown is None:
            return facts
        return facts | {
            "model": {
                "run": model.run[:8],
                "method": model.method,
                "recommender": model.recommender,
            },
            "high": shown.known.scale.high,
            "items": [
                {
                    "item": store.name_of(str(entry.item)),
                    "title": entry.title or str(entry.item),
                    "year": ""
                    if entry.year is None or str(entry.year) in (entry.title or "")
                    else str(entry.year),
                    "genres": ", ".join(entry.genres),
                    "score": f"{entry.score:.1f}",
                    "part": (entry.score or 0.0)
                    / shown.known.scale.high,  # a device always expects a rating
                    "reason": entry.reason or "",
                }
                for entry in owner_recommendations(store, _MOST_RECOMMENDED)
            ],
        }


def set_hidden(request: PageRequest) -> str:
    """Hide an item from the recommendations, or show it again."""
    with request.store() as store:
        item = _shown_item(request, store)
        wanted = request.text("hidden") == "yes"
        hide(store, item, wanted)
    request.session.note(request.t("list.hid" if wanted else "list.shown_again"))
    return "/recommendations"
