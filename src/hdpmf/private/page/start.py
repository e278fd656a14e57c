"""The page "Start": three steps from an invitation to a list."""

from __future__ import annotations

from typing import Any

from hdpmf.private.device.choices.privacy_level import GROUPS, group_of, privacy_weight
from hdpmf.private.device.disclosures.bounds import privacy_bounds
from hdpmf.private.device.memberships import joined_recommenders
from hdpmf.private.device.own_items import current_catalogue
from hdpmf.private.device.recommendations import local_model
from hdpmf.private.device.store.device_store import DeviceStore
from hdpmf.private.page.items import ENOUGH
from hdpmf.private.page.request import START, PageRequest, short

_COIN = 0.5


def start_page(request: PageRequest) -> dict[str, Any]:
    """Return the three steps and which of them are done."""
    with request.store() as store:
        weight = privacy_weight(store)
        return {
            "n_items": _n_items(store),
            "model": local_model(store) is not None,
            "invited": request.session.state.get("invitation"),
            "joined": [short(known.address) for known in joined_recommenders(store)],
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
    """Return a privacy level with its bound; ``part`` is how far that is from a coin."""
    bounds = privacy_bounds(store, weight)
    return {
        "name": name,
        "weight": weight,
        "percent": bounds.rating.percent if bounds.proved else "",
        "part": f"{100 * (bounds.rating.guess - _COIN) / (1 - _COIN):.1f}",
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
