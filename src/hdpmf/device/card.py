"""A new device, and the card that it shows to be enrolled."""

from __future__ import annotations

from pathlib import Path

from hdpmf.device.policy import Policy
from hdpmf.device.store import DeviceStore
from hdpmf.errors import ConfigError
from hdpmf.protocol.federation import DeviceCard
from hdpmf.ratings import RatingScale
from hdpmf.transport.keys import NodeKey


def new_device(
    path: Path,
    *,
    name: str | None = None,
    users: int = 1,
    policy: Policy | None = None,
    passphrase: str | None = None,
    scale: RatingScale | None = None,
) -> DeviceStore:
    """A store with a new identity and a new key for the transport.

    There must be nothing at ``path``. Without a scale it is that of the first file of ratings.
    """
    key = NodeKey.generate()
    store = DeviceStore.create(path, users=users, passphrase=passphrase, policy=policy or Policy(), scale=scale)
    with store.transaction():
        store.put("node-key", key.to_bytes())
        store.put("name", (name or f"device-{store.identity.public.hex()[:8]}").encode())
    return store


def card_of(store: DeviceStore) -> DeviceCard:
    """The device's public keys, and how many users it speaks for."""
    key, name = store.get("node-key"), store.get("name")
    if key is None or name is None:
        raise ConfigError("this store has no node key: it was not made by 'hdpmf device init'")
    return DeviceCard(
        name=name.decode(),
        identity=store.identity.public.hex(),
        node=NodeKey.from_bytes(key).public,
        users=store.users,
    )
