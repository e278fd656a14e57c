"""Identities of devices, and the list of them that devices pin."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from hdpmf.common.aggregation.masks.primitives import (
    KEY_BYTES,
    add_mask,
    digest,
    identity_public,
    new_secret,
    sign,
    verifies,
)
from hdpmf.errors import SecureSumError

MIN_DEVICES = 3
"""With two, each would know the other's numbers from the sum."""

MAX_DEVICES = 1 << 16
"""Devices on one roster. More users than that make several cohorts, whose sums add up."""


class DeviceIdentity:
    """A device's long-lived Ed25519 key for signatures, from 32 secret bytes."""

    def __init__(self, secret: bytes) -> None:
        if len(secret) != KEY_BYTES:
            raise SecureSumError(f"a device's secret has {KEY_BYTES} bytes, not {len(secret)}")
        self._secret = bytes(secret)
        self.public = identity_public(self._secret)

    @classmethod
    def generate(cls) -> DeviceIdentity:
        """A new identity, from the operating system's entropy."""
        return cls(new_secret())

    def __repr__(self) -> str:
        return f"DeviceIdentity({self.public.hex()[:16]})"

    def secret_bytes(self) -> bytes:
        """The secret, for the device's own store and for nobody else."""
        return self._secret

    def sign(self, text: bytes) -> bytes:
        """Signature of ``text``."""
        return sign(self._secret, text)


class Roster:
    """Different Ed25519 public keys of the devices that may take part; the index is the number."""

    def __init__(self, keys: Iterable[bytes]) -> None:
        self.keys = tuple(bytes(key) for key in keys)
        if not MIN_DEVICES <= len(self.keys) <= MAX_DEVICES:
            raise SecureSumError(
                f"a roster has {MIN_DEVICES} to {MAX_DEVICES} devices, not {len(self.keys)}; more "
                "make several cohorts"
            )
        if any(len(key) != KEY_BYTES for key in self.keys):
            raise SecureSumError(f"every key on a roster has {KEY_BYTES} bytes")
        self._indices = {key: index for index, key in enumerate(self.keys)}
        if len(self._indices) != len(self.keys):
            raise SecureSumError("a key is on the roster twice; a device may be counted once")
        self.digest = digest(b"roster", *self.keys)

    def __len__(self) -> int:
        return len(self.keys)

    def __repr__(self) -> str:
        return f"Roster({len(self)} devices, {self.digest.hex()[:16]})"

    def index(self, key: bytes) -> int:
        """The number of the device with this key."""
        if key not in self._indices:
            raise SecureSumError("this device's key is not on the roster; enrol it first")
        return self._indices[key]

    def verifies(self, device: int, signature: bytes, text: bytes) -> bool:
        """Return True if ``signature`` is that of the device with this number."""
        return 0 <= device < len(self) and verifies(self.keys[device], signature, text)


def draw_holders(participants: np.ndarray, device: int, count: int, draw: bytes) -> tuple[int, ...]:
    """Return the holders of a device's shares, ascending; their points are 1, 2, ...

    There are ``count`` of them among the participants, drawn by 32 random bytes of the device.
    """
    if count >= len(participants) - 1:
        return tuple(int(peer) for peer in participants if peer != device)
    words = np.zeros(2 * len(participants), "<u4")
    add_mask(words, digest(b"holders", draw))
    # The smallest of 64 random bits each are a uniform choice (equal ones have a chance of n^2 /
    # 2^65 and do no harm).
    tickets = words.view("<u8")
    tickets[np.searchsorted(participants, device)] = np.iinfo(np.uint64).max
    chosen = np.argpartition(tickets, count - 1)[:count]
    return tuple(participants[np.sort(chosen)].tolist())


def bitmap(devices: np.ndarray | list[int], n_roster: int) -> bytes:
    """Encode a set of devices as one bit per roster number."""
    bits = np.zeros(n_roster, np.uint8)
    bits[np.asarray(devices, np.int64)] = 1
    return np.packbits(bits, bitorder="little").tobytes()


def read_bitmap(data: bytes) -> np.ndarray:
    """Return the roster numbers whose bits are set, ascending."""
    return np.flatnonzero(np.unpackbits(np.frombuffer(data, np.uint8), bitorder="little"))


def bitmap_size(n_roster: int) -> int:
    """Bytes of a bitmap."""
    return -(-n_roster // 8)
