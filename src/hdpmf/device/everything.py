"""All that a store knows about its owner, to take along: not the keys, which are nobody else's business."""

from __future__ import annotations

from typing import Any

import msgspec

from hdpmf.device.consent import consents
from hdpmf.device.for_you import hidden_items
from hdpmf.device.joined import ever_joined
from hdpmf.device.shelves import id_of, shelf_of
from hdpmf.device.store import DeviceStore
from hdpmf.device.titles import all_titles
from hdpmf.device.what_left import what_left


def everything_fields(store: DeviceStore) -> dict[str, Any]:
    """Ratings with their weights, wishes, what was agreed to, sent and refused, for JSON. PRIVATE."""
    titles = all_titles(store)
    return {
        "ratings": [
            {
                "user": record.user,
                "item": id_of(record.item),
                "shelf": shelf_of(record.item),
                "title": titles.get(record.item),
                "value": record.value,
                "weight": record.weight,
            }
            for record in store.records()
        ],
        "user_weights": store.rated.betas(),
        "item_weights": [
            {"item": id_of(name), "shelf": shelf_of(name), "weight": weight}
            for name, weight in store.rated.gammas().items()
        ],
        "not_interested": [{"item": id_of(name), "shelf": shelf_of(name)} for name in hidden_items(store)],
        "policy": msgspec.to_builtins(store.policy),
        "recommenders": [
            {
                "address": known.address,
                "since": known.since,
                "paused": known.paused,
                "left": known.left,
                "shelf": store.at(known.place).shelf,
            }
            for known in ever_joined(store)
        ],
        "answers": [
            {"terms": consent.asked.key, "answer": consent.answer, "at": consent.at} for consent in consents(store)
        ],
        "sent": what_left(store),
    }
