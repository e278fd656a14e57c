"""The recommenders that a device's owner has joined: several side by side, with one ledger.

What is pinned of each (address, authority, servers) is the owner's word, never a message's. All are about the one item
table that is pinned here.
"""

from __future__ import annotations

import msgspec

from hdpmf.device.ledger import utc_now
from hdpmf.device.pair import pinned_servers
from hdpmf.device.store import DeviceStore
from hdpmf.errors import ConfigError, StorageError
from hdpmf.protocol.invitation import Invitation
from hdpmf.protocol.servers import Servers

_JOINED = "recommenders"


class Joined(msgspec.Struct, frozen=True, kw_only=True):
    """A recommender that the owner has joined.

    Attributes:
        address: Where it is.
        authority: The certificate (PEM) that its own must come from; empty for the public ones.
        servers: The two servers that sum for it; None where devices mask their numbers.
        since: When it was joined.
        paused: It is not answered at the moment.
    """

    address: str
    authority: bytes = b""
    servers: Servers | None = None
    since: str = ""
    paused: bool = False

    @property
    def two_servers(self) -> bool:
        """Whether two servers sum for it."""
        return self.address.startswith("https://")


def joined(store: DeviceStore) -> list[Joined]:
    """All of them, the oldest first."""
    data = store.get(_JOINED)
    try:
        known = [] if data is None else msgspec.msgpack.decode(data, type=list[Joined])
    except msgspec.MsgspecError:
        raise StorageError("the recommenders cannot be read: the store is damaged") from None
    address = (store.get("address") or b"").decode()
    if data is None and address:  # joined by a version that knew one
        pair = pinned_servers(store) if address.startswith("https://") else None
        known = [Joined(address=address, authority=store.get("authority") or b"", servers=pair)]
    return known


def remember(store: DeviceStore, address: str) -> None:
    """Note that ``hdpmf device join`` has pinned a recommender: authority and servers are those that are pinned."""
    pair = pinned_servers(store) if address.startswith("https://") else None
    with store.transaction():
        _put(store, Joined(address=address, authority=store.get("authority") or b"", servers=pair, since=utc_now()))
        _trust_all(store)


def join(store: DeviceStore, invitation: Invitation, *, new: bool = False) -> Joined:
    """Join the recommender of an invitation whose digest the owner has compared.

    Args:
        store: The device. Its policy trusts the two servers from now on.
        invitation: What the recommender says.
        new: It may have another authority or other servers than when it was joined before.

    Raises:
        ConfigError: It was joined before, with another authority or other servers.
    """
    made = Joined(
        address=invitation.address,
        authority=invitation.authority.encode(),
        servers=invitation.servers,
        since=utc_now(),
    )
    with store.transaction():
        before = next((known for known in joined(store) if known.address == made.address), None)
        if before is not None and (before.authority, before.servers) != (made.authority, made.servers) and not new:
            raise ConfigError(
                "this recommender is joined with another authority or other servers: whoever has the new ones could "
                "speak as your recommender, or see your ratings. Leave it first, if both organisations tell you in "
                "another way that this is right"
            )
        _put(store, made)
        _trust_all(store)
    return made


def pause(store: DeviceStore, address: str, paused: bool = True) -> None:
    """Answer a recommender not at all for a while, or again."""
    with store.transaction():
        _put(store, msgspec.structs.replace(_find(store, address), paused=paused))


def leave(store: DeviceStore, address: str) -> None:
    """Answer a recommender no more. What it was sent it has; the ledger stays, and so does the model that it made."""
    with store.transaction():
        gone = _find(store, address)
        rest = [other for other in joined(store) if other.address != address]
        store.put(_JOINED, msgspec.msgpack.encode(rest))
        kept = {other.servers.digest for other in rest if other.servers is not None}
        if gone.servers is not None and gone.servers.digest not in kept:
            policy = store.policy
            trusted = tuple(digest for digest in policy.servers if digest != gone.servers.digest)
            store.set_policy(msgspec.structs.replace(policy, servers=trusted))


def _find(store: DeviceStore, address: str) -> Joined:
    found = next((known for known in joined(store) if known.address == address), None)
    if found is None:
        raise ConfigError("this device has not joined such a recommender")
    return found


def _trust_all(store: DeviceStore) -> None:
    """Let the policy name the servers of every recommender that is joined."""
    policy = store.policy
    pairs = (known.servers.digest for known in joined(store) if known.servers is not None)
    store.set_policy(msgspec.structs.replace(policy, servers=tuple(dict.fromkeys((*policy.servers, *pairs)))))


def _put(store: DeviceStore, made: Joined) -> None:
    rest = [other for other in joined(store) if other.address != made.address]
    store.put(_JOINED, msgspec.msgpack.encode([*rest, made]))
