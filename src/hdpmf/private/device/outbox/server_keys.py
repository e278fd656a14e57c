"""The keys that reports are encrypted to: lists that the two servers have signed.

Lists come with the recommender's public files. Nobody on the way is trusted: a list counts if the
key on the pinned card has signed it, and it is not older than the one before. What is known is kept
in the store for all recommenders, so that none of them can bring back an older list. Ratings play
no part in any of this.
"""

from __future__ import annotations

from hdpmf.common.aggregation.two_servers.dap.messages import HpkeConfig, Report
from hdpmf.common.protocol.key_list import (
    config_of,
    follow_key_list,
    read_key_list,
    read_published_keys,
)
from hdpmf.common.protocol.servers import Server, Servers
from hdpmf.errors import ProtocolError
from hdpmf.private.device.store.device_store import DeviceStore


class ServerKeyLists:
    """The newest lists of servers' keys that a device has seen."""

    def __init__(self, store: DeviceStore) -> None:
        self._store = store

    def __repr__(self) -> str:
        return f"ServerKeyLists({self._store!r})"

    def take(self, data: bytes, servers: Servers) -> None:
        """Keep published lists that are newer than the known ones.

        Args:
            data: What the recommender published.
            servers: The pinned pair.

        Raises:
            ProtocolError: A list is forged, older than the known one, or a second one of the same
                number. The known one stays.
        """
        published = read_published_keys(data)
        refused: ProtocolError | None = None
        for server, signed in (
            (servers.leader, published.leader),
            (servers.helper, published.helper),
        ):
            if not signed:
                continue
            known = self._known(server)
            try:
                follow_key_list(signed, known, server)
            except ProtocolError as error:
                refused = error
            else:
                if signed.to_bytes() != known:
                    lists = self._store.device.server_keys | {server.signing: signed.to_bytes()}
                    self._store.change_device(server_keys=lists)
        if refused is not None:
            raise refused

    def configs(self, servers: Servers, now: float) -> tuple[HpkeConfig, HpkeConfig]:
        """Return the keys of leader and helper to encrypt to.

        Raises:
            TransportError: A list has not come yet, or its time is over.
            ProtocolError: A list has no key that we can encrypt to.
        """
        leader, helper = (
            config_of(server, self._known(server), now)
            for server in (servers.leader, servers.helper)
        )
        return leader, helper

    def can_open(self, servers: Servers, report: bytes) -> bool:
        """Return True if both servers say that they have the keys that open a report."""
        sealed = Report.decode(report)
        return self._has(
            servers.leader, sealed.leader_encrypted_input_share.config_id
        ) and self._has(servers.helper, sealed.helper_encrypted_input_share.config_id)

    def _has(self, server: Server, config_id: int) -> bool:
        known = self._known(server)
        if not known:
            return True  # nobody has said otherwise
        keys = read_key_list(known, server).keys
        return any(config.id == config_id for config in keys)

    def _known(self, server: Server) -> bytes:
        """The newest list of a server; empty if there is none."""
        return self._store.device.server_keys.get(server.signing, b"")
