"""The pair of servers that a device's owner trusts, pinned by the owner and never by a message."""

from __future__ import annotations

import msgspec

from hdpmf.device.store import DeviceStore
from hdpmf.errors import ConfigError, PrivacyError
from hdpmf.protocol.servers import Servers

_SERVERS = "servers"


def pin_servers(store: DeviceStore, servers: Servers, *, new: bool = False) -> Servers | None:
    """Trust these two servers, and no others; the pair that was pinned before.

    Args:
        store: The device's store. Its policy names the pair from now on.
        servers: The pair.
        new: In place of the pair that was pinned before.

    Raises:
        ConfigError: Another pair is pinned.
    """
    with store.transaction():
        before = pinned_servers(store)
        if before is not None and before != servers and not new:
            raise ConfigError(
                f"another pair of servers is pinned here ({before.names}, digest {before.digest}; --servers has "
                f"{servers.names}, digest {servers.digest}): whoever runs both sees your ratings. If both "
                "organisations tell you, in another way, that this is right, add --new-servers; if this is one more "
                "recommender, add --another; otherwise leave --servers out"
            )
        store.put(_SERVERS, servers.to_json())
        store.set_policy(msgspec.structs.replace(store.policy, servers=(servers.digest,)))
    return before


def pinned_servers(store: DeviceStore) -> Servers | None:
    """The pair that is pinned here."""
    data = store.get(_SERVERS)
    return None if data is None else Servers.from_json(data)


def trusted(store: DeviceStore) -> bool:
    """Whether the policy names the pair that is pinned: its owner may have written something else into it."""
    pair = pinned_servers(store)
    try:
        if pair is not None:
            store.policy.check_servers(pair)
        return pair is not None
    except PrivacyError:
        return False
