"""What a device keeps, once it is enrolled, to find its recommender and to be known there."""

from __future__ import annotations

import msgspec

from hdpmf.errors import ConfigError
from hdpmf.transport.certificates import check_authority
from hdpmf.transport.flower_device import HEARTBEAT, FlowerDevice, check_address
from hdpmf.transport.interface import MAX_BYTES
from hdpmf.transport.keys import NodeKey

STORE_KEY = "recommender"
"""Under which a device's store keeps ``Enrolment.to_bytes()``."""


class Enrolment(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One recommender, as a device knows it.

    Attributes:
        address: ``host:port``.
        authority: The recommender's authority (PEM): the only one that is trusted for it.
        node_key: The device's secret key for the engine (PEM).
    """

    address: str
    authority: str
    node_key: str

    @classmethod
    def make(cls, address: str, authority: bytes, key: NodeKey) -> Enrolment:
        """Checked, so that a mistake shows when joining and not at the first run."""
        check_authority(authority)
        return cls(
            address=check_address(address),
            authority=authority.decode("ascii"),
            node_key=key.to_bytes().decode("ascii"),
        )

    @classmethod
    def from_bytes(cls, data: bytes) -> Enrolment:
        """What ``to_bytes`` wrote."""
        try:
            return msgspec.json.decode(data, type=cls)
        except msgspec.MsgspecError:
            raise ConfigError("what this device knows about its recommender is damaged: join again") from None

    def to_bytes(self) -> bytes:
        """For the device's store; it has a secret in it."""
        return msgspec.json.encode(self)

    def connect(self, *, heartbeat: float = HEARTBEAT, max_bytes: int = MAX_BYTES) -> FlowerDevice:
        """The device's end of the transport."""
        key = NodeKey.from_bytes(self.node_key.encode("ascii"))
        return FlowerDevice(self.address, self.authority.encode("ascii"), key, heartbeat=heartbeat, max_bytes=max_bytes)
