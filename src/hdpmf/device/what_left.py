"""All that ever left a device, what it refused to send, and what is left to spend: one document for its owner."""

from __future__ import annotations

import math
from typing import Any

import msgspec

from hdpmf.device.history import past_runs
from hdpmf.device.ledger import Entry
from hdpmf.device.receipts import all_receipts
from hdpmf.device.refusals import refusal_fields
from hdpmf.device.spending import spent_together
from hdpmf.device.store import DeviceStore


def what_left(store: DeviceStore) -> dict[str, Any]:
    """Everything that was ever sent or refused, for JSON."""
    entries, total, together = store.ledger.entries(), store.ledger.spent_total(), spent_together(store.ledger)
    return {
        "entries": [_fields(entry) for entry in entries],
        "runs": [run.fields() for run in past_runs(store)],
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
        "budget_per_rating": store.policy.own_epsilon,
    }


def _fields(entry: Entry) -> dict[str, Any]:
    plain: dict[str, Any] = msgspec.to_builtins(entry)
    return {name: None if isinstance(value, float) and math.isinf(value) else value for name, value in plain.items()}
