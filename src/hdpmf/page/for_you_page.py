"""The page "For you": the list that the device makes by itself, with the network unplugged too."""

from __future__ import annotations

from typing import Any

from hdpmf.device.for_you import for_you, hidden_items, hide
from hdpmf.device.local_model import kept_model
from hdpmf.device.shelves import name_on
from hdpmf.device.titles import shown_items
from hdpmf.errors import ConfigError
from hdpmf.page.visit import Visit, choices, item_fields

_SHOWN = 20


def list_page(visit: Visit) -> dict[str, Any]:
    """The list, and what is hidden from it."""
    with visit.store() as store:
        model, shown = kept_model(store), shown_items(store)
        facts: dict[str, Any] = {"model": None, "items": [], "hidden": [], "rated": store.n_ratings}
        facts |= {"places": choices(store), "place": store.place}
        if shown is not None:
            places = [shown.positions[item] for item in hidden_items(store) if item in shown.positions]
            facts["hidden"] = item_fields(shown.table, places, {}, {})
        if model is None or shown is None:
            return facts
        return facts | {
            "model": {"run": model.run[:8], "method": model.method, "recommender": model.recommender},
            "high": shown.known.scale.high,
            "items": [
                {
                    "item": name_on(store.shelf, str(entry.item)),
                    "title": entry.title or str(entry.item),
                    "year": "" if entry.year is None or str(entry.year) in (entry.title or "") else str(entry.year),
                    "genres": ", ".join(entry.genres),
                    "score": f"{entry.score:.1f}",
                    "part": (entry.score or 0.0) / shown.known.scale.high,  # a device always expects a rating
                    "reason": entry.reason or "",
                }
                for entry in for_you(store, _SHOWN)
            ],
        }


def set_hidden(visit: Visit) -> str:
    """Not interested, or interested again."""
    with visit.store() as store:
        shown, item = shown_items(store), visit.text("item")
        if shown is None or item not in shown.positions:
            raise ConfigError(visit.t("rate.unknown"))
        wanted = visit.text("hidden") == "yes"
        hide(store, item, wanted)
    visit.session.note(visit.t("list.hid" if wanted else "list.shown_again"))
    return "/for-you"
