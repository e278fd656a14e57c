"""Servers and rosters that the owner trusts: pinned by the owner, never by a message."""

from __future__ import annotations

from typing import Any

import msgspec

from hdpmf.common.protocol.enrolment import Enrolled
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


def pinned_digest(store: DeviceStore) -> str:
    """Return the digest of the pinned roster that people compare; empty where none is pinned."""
    return store.recommender.roster_digest


def roster_fields(store: DeviceStore) -> dict[str, Any] | None:
    """The pinned roster, for the owner; None where none is pinned."""
    roster = store.roster
    if roster is None:
        return None
    return {"devices": len(roster), "users": roster.n_users, "digest": pinned_digest(store) or None}


def preview_roster(store: DeviceStore, data: bytes) -> Enrolled:
    """The roster in a file, if it could be pinned here. Nothing is changed.

    Raises:
        ConfigError: It is none, was changed by hand, or has another name or other users for this
            device.
        SecureSumError: It is too short or too long to sum over, or this device is not on it.
    """
    enrolled = Enrolled.from_json(data)
    own = enrolled.cards[enrolled.roster.index(store.identity.public)]
    if own.users != store.users:
        raise ConfigError(
            f"the roster counts {own.users:,} users for this device, which has {store.users:,}"
        )
    name = store.device.name
    if name and own.name != name:
        raise ConfigError(
            f"the roster calls this device {own.name[:32]!r}; its own card says {name[:32]!r}. "
            "Others would take its key for somebody else's: do not join by this roster"
        )
    return enrolled


def pin_roster(store: DeviceStore, data: bytes, *, new: bool = False) -> str:
    """Pin the roster in a file; return the digest of the one before, empty if there was none.

    Args:
        store: The device, at the recommender's place.
        new: Replace another roster that was pinned before.

    Raises:
        ConfigError: As in ``preview_roster``, or another one is pinned.
        SecureSumError: As in ``preview_roster``.
    """
    enrolled = preview_roster(store, data)
    with store.transaction():
        before = pinned_digest(store)
        if before not in ("", enrolled.digest) and not new:
            raise ConfigError(
                f"another roster is pinned here (digest {before}; the new one has "
                f"{enrolled.digest}): the roster decides among whom you are hidden. If other "
                "participants have the new one too, add --new-roster; otherwise leave --roster out"
            )
        store.pin_roster(enrolled.roster.keys, [card.users for card in enrolled.cards])
        store.change_recommender(roster_digest=enrolled.digest)
    return before
