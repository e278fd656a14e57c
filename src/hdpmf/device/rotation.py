"""New keys for a device: an identity and a node key, which the old identity vouches for."""

from __future__ import annotations

from hdpmf.device.card import card_of
from hdpmf.device.run_state import set_open
from hdpmf.device.store import DeviceStore
from hdpmf.protocol.succession import Succession
from hdpmf.secure_sum import DeviceIdentity
from hdpmf.transport.keys import NodeKey

_SUCCESSION = "succession"


def rotate(store: DeviceStore) -> Succession:
    """Give a device new keys, in one commit; what its recommender needs to put the new card in place of the old one.

    Runs under way are over here: they were agreed on under the old keys. What is held for them is given back where
    nothing has left. Ratings, ledger and model stay.
    """
    old = store.identity
    with store.transaction():
        known = store.get(_SUCCESSION)
        before = Succession(links=()) if known is None else Succession.from_json(known)
        store.put("node-key", NodeKey.generate().to_bytes())
        store.set_identity(DeviceIdentity.generate())
        made = before.extended(old, card_of(store))
        store.put(_SUCCESSION, made.to_json())
        store.runs.clear()
        set_open(store, [])
        store.ledger.give_back_held("the device has new keys, and nothing of this run had left")
    return made
