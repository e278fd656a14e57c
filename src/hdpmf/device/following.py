"""A device learns that its recommender's authority is followed by another one, and its owner can see it."""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256

from hdpmf.device.ledger import utc_now
from hdpmf.device.store import DeviceStore
from hdpmf.transport.certificates import read_authorities
from hdpmf.transport.extras import needs
from hdpmf.transport.succession import learn

with needs("cryptography"):
    from cryptography.hazmat.primitives.serialization import Encoding

_PINNED, _CHANGED = "authority", "authority-changed"


def follow(store: DeviceStore, told: bytes, log: Callable[[str], None]) -> bytes:
    """Pin what follows from what the recommender has told (``succession``), and say it; what is pinned then.

    Raises:
        ProtocolError: What was told is not signed by a pinned authority; nothing has changed.
    """
    pinned = store.get(_PINNED) or b""
    if not pinned:
        return pinned  # certificates come from public authorities
    trusted = learn(pinned, told)
    before, after = digests(pinned), digests(trusted)
    if before == after:
        return pinned
    with store.transaction():
        store.put(_PINNED, trusted)
        store.put(_CHANGED, utc_now().encode())
    for name in after:
        if name not in before:
            log(
                f"The recommender's authority will be followed by another one (SHA-256 {name[:16]}...). The pinned one "
                "has signed it, so both are trusted until the recommender has changed over."
            )
    for name in before:
        if name not in after:
            log(f"The recommender's authority of before (SHA-256 {name[:16]}...) is not trusted any more.")
    return trusted


def digests(pinned: bytes) -> list[str]:
    """Of the authorities that are pinned: SHA-256 of their files."""
    return [sha256(each.public_bytes(Encoding.PEM)).hexdigest() for each in read_authorities(pinned)]


def authorities_of(store: DeviceStore) -> dict[str, object] | None:
    """What is pinned, for the owner; None if nothing is."""
    pinned, changed = store.get(_PINNED), store.get(_CHANGED)
    if not pinned:
        return None
    return {"sha256": digests(pinned), "changed": None if changed is None else changed.decode()}
