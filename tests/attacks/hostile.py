"""What a lying recommender has at hand: real agents with real noise on real stores, and messages
of its own making.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from hdpmf.common.aggregation.masks import DeviceIdentity
from hdpmf.common.protocol import (
    CatalogueTable,
    Envelope,
    Message,
    Opening,
    Plan,
    Refusal,
    Reply,
    Round,
    Survey,
    Terms,
    decode,
    encode,
)
from hdpmf.common.protocol.catalogue import known_items
from hdpmf.private.device.participant import Participant
from hdpmf.private.device.policy import Policy
from hdpmf.private.device.store.device_store import DeviceStore

N_ITEMS = 40
RUN = b"a lying run....."
STARS = {f"item {one:02d}": float(1 + one % 5) for one in range(0, N_ITEMS, 2)}
"""Ratings of every second item, with all stars among them."""


def table(n_items: int = N_ITEMS, **changes: Any) -> CatalogueTable:
    """An item table; scale and all as the recommender likes."""
    fields: dict[str, Any] = {
        "ids": tuple(f"item {one:02d}" for one in range(n_items)), "integer_ids": False,
        "scale_low": 1.0, "scale_high": 5.0, "scale_step": 1.0,
    }  # fmt: skip
    return CatalogueTable(**(fields | changes))


def device(
    ratings: Mapping[str, float] = STARS,
    *,
    policy: Policy | None = None,
    catalogue: CatalogueTable | None = None,
    users: int = 1,
    path: Any = ":memory:",
    weight: float | None = None,
) -> Participant:
    """A person's device with the default policy and real noise; the item table is pinned where
    one is given.
    """
    store = DeviceStore.create(path, users=users, policy=policy)
    for item, value in ratings.items():
        store.rate(item, value)
    if weight is not None:
        store.set_weight(beta=weight)
    if catalogue is not None:
        store.pin_catalogue(catalogue)
    return Participant(store)


def enrol(
    agents: Sequence[Participant], others: int = 0, users: Sequence[int] | None = None
) -> list[DeviceIdentity]:
    """All agents pin a roster of themselves and so many others, whose keys the recommender has."""
    strangers = [DeviceIdentity.generate() for _ in range(others)]
    stores = [agent._store for agent in agents]
    keys = [*(one.identity.public for one in stores), *(one.public for one in strangers)]
    counts = users or [*(one.users for one in stores), *(1 for _ in strangers)]
    for store in stores:
        store.pin_roster(keys, counts)
    return strangers


def envelope(
    message: Message | bytes, number: int = 0, *, run: bytes = RUN, part: str = "job"
) -> bytes:
    """A message as it travels."""
    body = message if isinstance(message, bytes) else encode(message)
    return encode(Envelope(run=run, number=number, part=part, body=body))  # type: ignore[arg-type]


def ask(agent: Participant, message: Message, number: int = 0, *, run: bytes = RUN) -> Any:
    """What the agent says; a Refusal where it refuses."""
    reply = decode(agent.answer(envelope(message, number, run=run)))
    assert isinstance(reply, Reply)
    return decode(reply.body)


def refusals(agent: Participant, *messages: Message, run: bytes = RUN) -> list[str]:
    """The words of what is refused of these messages."""
    answers = [ask(agent, one, getattr(one, "number", 0), run=run) for one in messages]
    return [one.reason for one in answers if isinstance(one, Refusal)]


def terms(method: str, view: str, known: CatalogueTable, **changes: Any) -> Terms:
    """Terms as an attacker writes them."""
    fields: dict[str, Any] = {
        "method": method,
        "view": view,
        "epsilon": 0.5,
        "rounds": 1 if method in ("hdp-sum", "hdp-bit") else 4,
        "catalogue": known_items(known).fingerprint,
        "users": 200,
        "minimum": 150,
        "sharing": 100,
    }
    return Terms(**(fields | changes))


def survey(design: str, known: CatalogueTable, **changes: Any) -> Survey:
    """A survey of this item table."""
    fields: dict[str, Any] = {
        "design": design,
        "coding": "threshold" if design == "L" else "soft",
        "epsilon": 0.5,
        "n_items": len(known.ids),
        "catalogue": known_items(known).fingerprint,
        "contributors": 100,
        "scale_low": known.scale_low,
        "scale_high": known.scale_high,
        "scale_step": known.scale_step,
    }
    return Survey(**(fields | changes))


def plan(known: CatalogueTable, **changes: Any) -> Plan:
    """A plan of hdpmf-paid over this item table."""
    fields: dict[str, Any] = {
        "n_items": len(known.ids),
        "n_factors": 3,
        "epochs": 4,
        "learning_rate": 0.05,
        "reg": 0.01,
        "mechanism": "paid",
        "epsilon": 0.5,
        "scale_low": known.scale_low,
        "scale_high": known.scale_high,
        "scale_steps": True,
        "fresh_noise": True,
    }
    return Plan(**(fields | changes))


def opening(epsilon: float = 0.5) -> Opening:
    """The opening that belongs to the plan."""
    return Opening(noise_budget=epsilon)


def a_round(number: int, n_items: int = N_ITEMS, **changes: Any) -> Round:
    """A round of three factors."""
    fields: dict[str, Any] = {
        "number": number, "item_factors": np.full((n_items, 3), 0.1, np.float32),
        "raters": np.full(n_items, 50), "h": None,
    }  # fmt: skip
    return Round(**(fields | changes))
