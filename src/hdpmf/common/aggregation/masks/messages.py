"""The messages of a secure sum: frozen, versioned, checked when they are made, whoever made them.

None of them says which device it comes from: the transport has authenticated the sender, and what
has to convince another device is signed or sealed.
"""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np

from hdpmf.common.aggregation.masks.primitives import (
    KEY_BYTES,
    SIGNATURE_BYTES,
    TAG_BYTES,
    WIDE_WORD,
    WORD,
    digest,
)
from hdpmf.common.aggregation.masks.roster import MAX_DEVICES, bitmap_size, read_bitmap
from hdpmf.common.aggregation.masks.shamir import SHARE_BYTES
from hdpmf.common.base import msgpack
from hdpmf.errors import SecureSumError

VERSION = 2

SESSION_BYTES = 16

MAX_LENGTH = 1 << 24
"""Words of a vector (64 MB); half as many if they are wide."""

MAX_NEIGHBOURS = 1024

MAX_PARTNERS = 4 * MAX_NEIGHBOURS
"""Who draws a device as its holder is up to them; so many are more than chance ever gives."""

SEALED_BYTES = 2 * SHARE_BYTES + TAG_BYTES
"""A sealed pair of shares: of the self-mask's seed and of the mask key."""

CHECK_BYTES = 2 * KEY_BYTES
"""Digests of a pair of shares."""


class _Checked(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    def __post_init__(self) -> None:
        self._check()

    def _check(self) -> None:
        """Raise SecureSumError where a field cannot be right."""

    def _require(self, condition: bool, what: str) -> None:
        if not condition:
            raise SecureSumError(f"{type(self).__name__} refused: {what}")

    def _require_bytes(self, name: str, size: int) -> None:
        self._require(len(getattr(self, name)) == size, f"{name} must have {size} bytes")

    def _require_parts(self, name: str, size: int) -> None:
        parts: dict[int, bytes] = getattr(self, name)
        self._require(
            len(parts) <= MAX_PARTNERS, f"{name} has more entries than a device may have partners"
        )
        self._require(
            not parts or (min(parts) >= 0 and max(parts) < MAX_DEVICES),
            f"{name} names a device outside any roster",
        )
        self._require(
            set(map(len, parts.values())) <= {size}, f"{name} must have {size} bytes each"
        )


class SumMessage(_Checked, frozen=True, tag=True, kw_only=True):
    """Base class of messages. Unknown fields and other versions are refused."""

    session: bytes
    version: int = VERSION

    def __post_init__(self) -> None:
        if self.version != VERSION:
            raise SecureSumError(
                f"{type(self).__name__} is of version {self.version} of the secure sum, this side "
                f"speaks {VERSION}; bring both sides to the same release of hdpmf"
            )
        self._require_bytes("session", SESSION_BYTES)
        self._check()


class SumPlan(SumMessage, frozen=True):
    """Recommender to devices: the proposed sum. It is public, and signed with every key.

    Attributes:
        roster: Digest of the roster.
        participants: Bitmap of the devices that are asked.
        length: Words of a vector.
        neighbours: Holders that each device draws for its shares (everyone, where there are no
            more).
        threshold: Of a device's holders, how many must still be there at the end.
        minimum: Of all devices, over how many at least the sum is.
        wide: Words have 64 bits instead of 32.
    """

    roster: bytes
    participants: bytes
    length: int
    neighbours: int
    threshold: int
    minimum: int
    wide: bool = False

    def _check(self) -> None:
        self._require_bytes("roster", KEY_BYTES)
        self._require(
            len(self.participants) <= bitmap_size(MAX_DEVICES),
            "participants is longer than any roster",
        )
        most = MAX_LENGTH * WORD.itemsize // self.word.itemsize
        self._require(1 <= self.length <= most, f"length must be from 1 to {most}")
        n = self.n_participants
        self._require(n >= 3, "a sum over fewer than 3 devices hides nothing")
        self._require(
            1 <= self.neighbours <= MAX_NEIGHBOURS, f"neighbours must be from 1 to {MAX_NEIGHBOURS}"
        )
        # With half or fewer, the recommender could collect both kinds of shares of one device from
        # two halves.
        self._require(
            self.degree < 2 * self.threshold, "threshold must be more than half of the holders"
        )
        self._require(self.threshold <= self.degree, "threshold must not be more than the holders")
        self._require(
            self.threshold < self.minimum <= n,
            "minimum must be more than threshold and at most everyone",
        )

    @property
    def n_participants(self) -> int:
        """Number of devices in the cohort."""
        return len(read_bitmap(self.participants))

    @property
    def word(self) -> np.dtype[Any]:
        """The type of a word."""
        return WIDE_WORD if self.wide else WORD

    @property
    def degree(self) -> int:
        """Holders that a device really has."""
        return min(self.neighbours, self.n_participants - 1)

    @property
    def digest(self) -> bytes:
        """Digest that signatures and derived keys are bound to."""
        numbers = (
            self.version,
            self.length,
            self.neighbours,
            self.threshold,
            self.minimum,
            int(self.wide),
        )
        packed = b"".join(number.to_bytes(8, "little") for number in numbers)
        return digest(b"plan", self.session, self.roster, self.participants, packed)

    def digest_about(self, about: bytes) -> bytes:
        """The same, bound also to what the vectors are about, where that is said."""
        return digest(b"about", self.digest, about) if about else self.digest


class DeviceKeys(_Checked, frozen=True, array_like=True):
    """One-time public keys of a device, signed by its identity with plan and device number.

    Attributes:
        channel: For encrypting shares to this device.
        mask: For the masks it shares with its partners; its holders have shares of its secret.
        commitment: Digest of its own mask's seed, so that a wrong share is noticed.
    """

    channel: bytes
    mask: bytes
    commitment: bytes
    signature: bytes

    def _check(self) -> None:
        for name in ("channel", "mask", "commitment"):
            self._require_bytes(name, KEY_BYTES)
        self._require_bytes("signature", SIGNATURE_BYTES)
        self._require(self.channel != self.mask, "the two keys must differ")


class Advertisement(SumMessage, frozen=True):
    """Device to recommender: its one-time keys, and the draw of its holders."""

    keys: DeviceKeys
    draw: bytes

    def _check(self) -> None:
        self._require_bytes("draw", KEY_BYTES)


class PartnerKeys(SumMessage, frozen=True):
    """Recommender to device: keys of its holders, and of the devices whose holder it is."""

    keys: dict[int, DeviceKeys]

    def _check(self) -> None:
        self._require(len(self.keys) <= MAX_PARTNERS, "more keys than a device may have partners")


class DealtShares(SumMessage, frozen=True):
    """Device to recommender: for each holder its encrypted pair of shares, and their digests.

    The digests show the recommender later whose share is wrong: the dealer's or the holder's.
    """

    sealed: dict[int, bytes]
    checks: dict[int, bytes]

    def _check(self) -> None:
        self._require_parts("sealed", SEALED_BYTES)
        self._require_parts("checks", CHECK_BYTES)
        self._require(
            self.sealed.keys() == self.checks.keys(),
            "sealed and checks must be for the same devices",
        )


class Inbox(SumMessage, frozen=True):
    """Recommender to device: its partners that dealt shares, and shares for it, with digests."""

    partners: tuple[int, ...]
    sealed: dict[int, bytes]
    checks: dict[int, bytes]

    def _check(self) -> None:
        self._require(len(self.partners) <= MAX_PARTNERS, "more partners than a device may have")
        self._require_parts("sealed", SEALED_BYTES)
        self._require_parts("checks", CHECK_BYTES)
        self._require(
            self.sealed.keys() == self.checks.keys(),
            "sealed and checks must be from the same devices",
        )


class MaskedVector(SumMessage, frozen=True):
    """Device to recommender: its vector under all its masks; by itself uniformly random."""

    words: bytes

    def _check(self) -> None:
        size = len(self.words)
        self._require(
            0 < size <= MAX_LENGTH * WORD.itemsize and size % WORD.itemsize == 0,
            "words must be whole words",
        )


class Survivors(SumMessage, frozen=True):
    """Recommender to devices: whose masked vectors arrived."""

    survivors: bytes

    def _check(self) -> None:
        self._require(
            len(self.survivors) <= bitmap_size(MAX_DEVICES), "survivors is longer than any roster"
        )


class Confirmation(SumMessage, frozen=True):
    """Device to recommender: its signature of the survivor list that it was told."""

    signature: bytes

    def _check(self) -> None:
        self._require_bytes("signature", SIGNATURE_BYTES)


class Confirmations(SumMessage, frozen=True):
    """Recommender to device: its holders' signatures of the survivor list."""

    signatures: dict[int, bytes]

    def _check(self) -> None:
        self._require_parts("signatures", SIGNATURE_BYTES)


class Unmasking(SumMessage, frozen=True):
    """Device to recommender: per dealer a share of a survivor's seed or a lost mask key."""

    seeds: dict[int, bytes]
    keys: dict[int, bytes]

    def _check(self) -> None:
        self._require_parts("seeds", SHARE_BYTES)
        self._require_parts("keys", SHARE_BYTES)
        self._require(
            not self.seeds.keys() & self.keys.keys(),
            "both kinds of share of one device unmask its vector",
        )


ToDevice = SumPlan | PartnerKeys | Inbox | Survivors | Confirmations

ToRecommender = Advertisement | DealtShares | MaskedVector | Confirmation | Unmasking

MAX_BYTES = 4 * MAX_LENGTH + 1024
"""No message is longer."""

_ENCODER = msgspec.msgpack.Encoder()

_TO_DEVICE: msgspec.msgpack.Decoder[ToDevice] = msgspec.msgpack.Decoder(ToDevice)

_TO_RECOMMENDER: msgspec.msgpack.Decoder[ToRecommender] = msgspec.msgpack.Decoder(ToRecommender)

_WHAT = "a message of a secure sum"


def encode(message: SumMessage) -> bytes:
    """The message as bytes."""
    return _ENCODER.encode(message)


def decode_to_device(data: bytes, max_bytes: int = MAX_BYTES) -> ToDevice:
    """The message that a device was sent; anything else is a SecureSumError."""
    return msgpack.read(_TO_DEVICE, data, max_bytes, SecureSumError, _WHAT)


def decode_to_recommender(data: bytes, max_bytes: int = MAX_BYTES) -> ToRecommender:
    """The message that the recommender was sent; anything else is a SecureSumError."""
    return msgpack.read(_TO_RECOMMENDER, data, max_bytes, SecureSumError, _WHAT)
