"""A new device, its card, and the pinned authority of its recommender."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path

from hdpmf.common.data import RatingScale
from hdpmf.common.protocol.identity import DeviceCard
from hdpmf.common.protocol.servers import read_authorities
from hdpmf.errors import ConfigError, needs
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


def digests(pinned: bytes) -> list[str]:
    """Return the SHA-256 of each pinned authority."""
    return [
        sha256(each.public_bytes(Encoding.PEM)).hexdigest() for each in read_authorities(pinned)
    ]
