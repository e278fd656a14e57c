"""What a lying recommender has at hand: real devices with real noise on real stores. `tests.world`
makes its messages.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hdpmf.common.protocol import CatalogueTable, Message, Refusal
from hdpmf.private.device.policy import Policy
from tests.world import RUN, Device, ask, make_store, stars

N_ITEMS = 40
STARS = stars(N_ITEMS)
SMALL: dict[str, Any] = {
    "min_participants": 3,
    "min_devices": 3,
    "min_neighbours": 2,
    "min_fraction": "0",
    "max_colluding": "0",
}
"""Of a policy with which four devices are enough."""
FEW: dict[str, Any] = {"users": 4, "minimum": 4, "sharing": 4}
"""Of terms for four devices."""


def device(
    ratings: Mapping[str, float] = STARS,
    *,
    policy: Policy | None = None,
    catalogue: CatalogueTable | None = None,
    users: int = 1,
    path: Any = ":memory:",
    weight: float | None = None,
) -> Device:
    """A person's device with the default policy and real noise; the item table is pinned where
    one is given.
    """
    store = make_store(ratings, policy=policy, users=users, path=path)
    if weight is not None:
        store.set_weight(beta=weight)
    if catalogue is not None:
        store.pin_catalogue(catalogue)
    return Device(store)


def refusals(agent: Device, *messages: Message, run: bytes = RUN) -> list[str]:
    """The words of what is refused of these messages."""
    answers = [ask(agent, message, getattr(message, "number", 0), run=run) for message in messages]
    return [answer.reason for answer in answers if isinstance(answer, Refusal)]
