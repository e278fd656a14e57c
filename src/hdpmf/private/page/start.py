"""The page "Start": three steps from an invitation to a list."""

from __future__ import annotations

from typing import Any

from hdpmf.common.privacy.levels import LEVELS
from hdpmf.private.device.choices.privacy_level import GROUPS, group_of, privacy_weight
from hdpmf.private.device.choices.sharing import offers_levels
from hdpmf.private.device.disclosures.bounds import privacy_bounds
from hdpmf.private.device.memberships import joined_recommenders
from hdpmf.private.device.own_items import current_catalogue
from hdpmf.private.device.recommendations import local_model
from hdpmf.private.device.store.device_store import DeviceStore
from hdpmf.private.page.items import ENOUGH
from hdpmf.private.page.pictures import part_of_scale
from hdpmf.private.page.request import START, PageRequest, invited_fields, name_of


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
            "sharing": _sharing(store),
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
    """Return a privacy level with its bound."""
    bounds = privacy_bounds(store, weight)
    return {
        "name": name,
        "weight": weight,
        "percent": bounds.rating.percent if bounds.proved else "",
        "part": part_of_scale(bounds.rating),
    }


def _sharing(store: DeviceStore) -> dict[str, Any] | None:
    """Return what the recommender may see, where it asks for that; None where it does not."""
    known = store.recommender
    if not known.address or known.left or not offers_levels(store):
        return None
    name, level = name_of(store, known.address), store.sharing_level()
    return {"recommender": name, "level": level, "levels": LEVELS}


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
