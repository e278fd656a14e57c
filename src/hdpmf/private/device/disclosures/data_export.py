"""Export all personal data as JSON, with all that was sent or refused, without keys."""

from __future__ import annotations

import math
from typing import Any

import msgspec

from hdpmf.private.device.consent import consents, refused_recommenders
from hdpmf.private.device.disclosures.bounds import privacy_bounds
from hdpmf.private.device.disclosures.history import past_runs
from hdpmf.private.device.disclosures.journal import Entry
from hdpmf.private.device.disclosures.receipts import all_receipts
from hdpmf.private.device.disclosures.refusals import refusal_fields
from hdpmf.private.device.memberships import known_recommenders
from hdpmf.private.device.own_items import all_titles
from hdpmf.private.device.recommendations import hidden_items
from hdpmf.private.device.store.catalogues import id_of, namespace_of
from hdpmf.private.device.store.device_store import DeviceStore


def disclosures(store: DeviceStore) -> dict[str, Any]:
    """Everything that was ever sent or refused, for JSON."""
    entries, total = store.ledger.entries(), store.ledger.spent_total()
    bounds = privacy_bounds(store)
    together, runs = bounds.spent, past_runs(store)
    return {
        "entries": [_fields(entry) for entry in entries],
        "runs": [run.fields() for run in runs],
        "receipts": [receipt.fields() for receipt in all_receipts(store)],
        "refusals": refusal_fields(store),
        "spent_total": total if math.isfinite(total) else None,
        "unprotected": math.isinf(total),
        "spent_together": {
            "pure_epsilon": together.pure if math.isfinite(together.pure) else None,
            "epsilon_at_delta": together.at_delta if math.isfinite(together.at_delta) else None,
            "delta": together.delta,
            "proved": together.proved,
        },
        "guess_at_most": bounds.fields(),
        "budget_per_rating": store.policy.own_epsilon,
    }


def _fields(entry: Entry) -> dict[str, Any]:
    plain: dict[str, Any] = msgspec.to_builtins(entry)
    return {
        name: None if isinstance(value, float) and math.isinf(value) else value
        for name, value in plain.items()
    }


def data_export(store: DeviceStore) -> dict[str, Any]:
    """Return all personal data for JSON. PRIVATE.

    It has ratings, weights, marks, hidden items, the policy, recommenders, answers to questions,
    and what was sent and refused.
    """
    titles = all_titles(store)
    return {
        "ratings": [
            {
                "item": id_of(record.item),
                "item_namespace": namespace_of(record.item),
                "title": titles.get(record.item),
                "value": record.value,
                "weight": record.weight,
            }
            for record in store.records()
        ],
        "weight": store.rated.beta,
        "item_weights": [
            {"item": id_of(name), "item_namespace": namespace_of(name), "weight": weight}
            for name, weight in store.rated.gammas().items()
        ],
        "marks": [
            {"genre": row.name, "weight": row.weight}
            if row.kind == "genre"
            else {
                "item": id_of(row.name),
                "item_namespace": namespace_of(row.name),
                "weight": row.weight,
            }
            for row in store.marks.rows()
            if row.kind != "answer"
        ],
        "not_interested": [
            {"item": id_of(name), "item_namespace": namespace_of(name)}
            for name in hidden_items(store)
        ],
        "policy": msgspec.to_builtins(store.policy),
        "recommenders": [
            {
                "address": known.address,
                "since": known.since,
                "paused": known.paused,
                "left": known.left,
                "item_namespace": store.at(known.id).item_namespace,
            }
            for known in known_recommenders(store)
        ],
        "answers": [
            {"terms": consent.asked.key, "answer": consent.answer, "at": consent.at}
            for consent in consents(store)
        ],
        "never": refused_recommenders(store),
        "sent": disclosures(store),
    }
