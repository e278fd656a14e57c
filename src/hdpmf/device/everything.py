"""All that a store knows about its owner, to take along: not the keys, which are nobody else's business."""

from __future__ import annotations

from typing import Any

import msgspec

from hdpmf.device.consent import consents
from hdpmf.device.for_you import hidden_items
from hdpmf.device.joined import joined
from hdpmf.device.store import DeviceStore
from hdpmf.device.titles import shown_items
from hdpmf.device.what_left import what_left


def everything_fields(store: DeviceStore) -> dict[str, Any]:
    """Ratings with their weights, wishes, what was agreed to, sent and refused, for JSON. PRIVATE."""
    shown = shown_items(store)
    titles = {} if shown is None else dict(zip(shown.table.ids, shown.table.titles, strict=False))
    return {
        "ratings": [
            {
                "user": record.user,
                "item": record.item,
                "title": titles.get(record.item),
                "value": record.value,
                "weight": record.weight,
            }
            for record in store.records()
        ],
        "user_weights": store.rated.betas(),
        "item_weights": store.rated.gammas(),
        "not_interested": list(hidden_items(store)),
        "policy": msgspec.to_builtins(store.policy),
        "recommenders": [
            {"address": known.address, "since": known.since, "paused": known.paused} for known in joined(store)
        ],
        "answers": [
            {"terms": consent.asked.key, "answer": consent.answer, "at": consent.at} for consent in consents(store)
        ],
        "sent": what_left(store),
    }
