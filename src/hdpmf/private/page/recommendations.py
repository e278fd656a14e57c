"""The page "For you": the list, its filters, and items that the owner does not want to see."""

from __future__ import annotations

from typing import Any

from hdpmf.common.data import ItemFilter
from hdpmf.private.device.disclosures.history import past_runs
from hdpmf.private.device.own_items import current_catalogue
from hdpmf.private.device.recommendations import (
    hidden_items,
    hide,
    local_model,
    owner_recommendations,
)
from hdpmf.private.device.store.catalogues import PinnedCatalogue
from hdpmf.private.device.store.device_store import DeviceStore
from hdpmf.private.device.store.ratings_table import ME
from hdpmf.private.page.request import (
    PageRequest,
    choices,
    item_fields,
    page_of,
    shown_item,
    star_fields,
)

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
    values = store.rated.values_of(ME, names)
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
