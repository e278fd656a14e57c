"""The servers that the owner trusts: pinned by the owner, never by a message."""

from __future__ import annotations

import msgspec

from hdpmf.common.protocol.servers import Servers, require_two_hosts
from hdpmf.errors import ConfigError, PrivacyError
from hdpmf.private.device.store.device_store import DeviceStore


def pin_servers(
    store: DeviceStore, servers: Servers, *, new: bool = False, same_host: bool = False
) -> Servers | None:
    """Trust these two servers and no others; return the pair that was pinned before.

    Args:
        store: The device's store. Its policy names the pair from now on.
        new: Replace the pair that was pinned before.
        same_host: Allow both servers on one machine, for trials.

    Raises:
        ConfigError: Another pair is pinned, or both servers are on one host.
    """
    with store.transaction():
        before = pinned_servers(store)
        if before is not None and before != servers and not new:
            raise ConfigError(
                f"another pair of servers is pinned here ({before.names}, digest {before.digest}; "
                f"--servers has {servers.names}, digest {servers.digest}): an operator of both "
                "sees your ratings. If both organisations tell you, in another way, that this is "
                "right, add --new-servers; if this is one more recommender, add --another; "
                "otherwise leave --servers out"
            )
        if before != servers:
            require_two_hosts(servers, same_host=same_host)
        store.change_recommender(servers=servers.to_json())
        store.set_policy(msgspec.structs.replace(store.policy, servers=(servers.digest,)))
    return before


def pinned_servers(store: DeviceStore) -> Servers | None:
    """The pair that is pinned here."""
    data = store.recommender.servers
    return Servers.from_json(data) if data else None


def trusted(store: DeviceStore) -> bool:
    """Return True if a pair of servers is pinned and the policy still names it.

    The owner may have edited the policy.
    """
    pair = pinned_servers(store)
    try:
        if pair is not None:
            store.policy.check_servers(pair)
        return pair is not None
    except PrivacyError:
        return False
