"""A device's keys, their rotation, and the pinned authorities of its recommender."""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

from hdpmf.common.data import RatingScale
from hdpmf.common.protocol.authority import learn, read_authorities
from hdpmf.common.protocol.identity import DeviceCard, Identity, KeyHistory
from hdpmf.errors import ConfigError, needs
from hdpmf.private.device.disclosures.journal import utc_now
from hdpmf.private.device.policy import Policy
from hdpmf.private.device.store.device_store import DeviceStore

with needs("cryptography"):
    from cryptography.hazmat.primitives.serialization import Encoding


def new_device(
    path: Path,
    *,
    name: str | None = None,
    policy: Policy | None = None,
    passphrase: str | None = None,
    scale: RatingScale | None = None,
) -> DeviceStore:
    """Create a store with a new identity.

    There must be nothing at ``path``. Without a scale it is that of the first file of ratings.
    """
    store = DeviceStore.create(path, passphrase=passphrase, policy=policy or Policy(), scale=scale)
    store.change_device(name=name or f"device-{store.identity.public.hex()[:8]}")
    return store


def card_of(store: DeviceStore) -> DeviceCard:
    """Return the device's card."""
    name = store.device.name
    if not name:
        raise ConfigError("this store has no name: it was not made by 'hdpmf device init'")
    return DeviceCard(name=name, identity=store.identity.public.hex())


def follow(store: DeviceStore, rotation: bytes, log: Callable[[str], None]) -> bytes:
    """Pin the authorities that a signed rotation leads to, log changes, and return what is pinned.

    Without a pinned authority nothing changes.

    Raises:
        ProtocolError: The rotation is not signed by a pinned authority; nothing has changed.
    """
    pinned = store.recommender.authority or b""
    if not pinned:
        return pinned  # certificates come from public authorities
    trusted = learn(pinned, rotation)
    before, after = digests(pinned), digests(trusted)
    if before == after:
        return pinned
    store.change_recommender(authority=trusted, authority_changed=utc_now())
    for name in after:
        if name not in before:
            log(
                "The recommender's authority will be followed by another one (SHA-256 "
                f"{name[:16]}...). The pinned one "
                "has signed it, so both are trusted until the recommender has changed over."
            )
    for name in before:
        if name not in after:
            log(
                f"The recommender's authority of before (SHA-256 {name[:16]}...) is not trusted "
                "any more."
            )
    return trusted


def digests(pinned: bytes) -> list[str]:
    """Return the SHA-256 of each pinned authority."""
    return [
        sha256(each.public_bytes(Encoding.PEM)).hexdigest() for each in read_authorities(pinned)
    ]


def authorities_of(store: DeviceStore) -> dict[str, object] | None:
    """Return the pinned authorities, for the owner; None if there are none."""
    known = store.recommender
    if not known.authority:
        return None
    return {"sha256": digests(known.authority), "changed": known.authority_changed or None}


def rotate(store: DeviceStore) -> KeyHistory:
    """Give a device new keys in one commit; return the signed history of its keys.

    By it the recommender replaces the old card. Runs under way end here: they were agreed on under
    the old keys. Budget that is held for runs that sent nothing is released. Ratings, ledger and
    model stay.
    """
    old = store.identity
    with store.transaction():
        known = store.device.key_succession
        before = KeyHistory.from_json(known) if known else KeyHistory(links=())
        store.set_identity(Identity.generate())
        made = before.extended(old, card_of(store))
        store.change_device(key_succession=made.to_json())
        store.runs.clear()
        store.ledger.release_held("the device has new keys, and nothing of this run had left")
    return made
