"""The cryptographic parts, all of them from the ``cryptography`` package, each with one use.

Every key is bound to the plan of its session (through the salt of the key derivation) and to who
uses it with whom (through its info), so that nothing made for one purpose can be used for another.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

import numpy as np

from hdpmf.errors import MissingExtraError, SecureSumError

try:
    from cryptography.exceptions import InvalidSignature, InvalidTag
    from cryptography.hazmat.primitives.asymmetric.ed25519 import (
        Ed25519PrivateKey,
        Ed25519PublicKey,
    )
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
    from cryptography.hazmat.primitives.ciphers import Cipher
    from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
    from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF
except ImportError as error:  # pragma: no cover - tested in a process of its own
    raise MissingExtraError(
        "secure sums need the package cryptography: pip install 'hdpmf[federation]' (or pip "
        "install cryptography)"
    ) from error


KEY_BYTES = 32

SIGNATURE_BYTES = 64

TAG_BYTES = 16

DOMAIN = b"hdpmf secure sum v1 "

WORD = np.dtype("<u4")
"""A word of a vector: unsigned, 32 bits, little-endian on every machine."""

WIDE_WORD = np.dtype("<u8")
"""A word of a wide vector, whose sum is modulo 2^64. Two narrow words would tell how often the
lower one overflowed.
"""

# Masks are made and added in pieces that stay in the processor's cache.
_BLOCK_BYTES = 1 << 16  # no mutant: of a key stream, at a time

_ZEROS = memoryview(bytes(_BLOCK_BYTES))

_NO_NONCE = bytes(12)

_COUNTER_AND_NONCE = bytes(16)

_PRIME = 2**255 - 19

_D = -121665 * pow(121666, -1, _PRIME) % _PRIME  # of the curve of Ed25519


def new_secret() -> bytes:
    """32 bytes from the operating system."""
    return secrets.token_bytes(KEY_BYTES)


class Agreement:
    """One X25519 secret, ready to agree with many public keys."""

    def __init__(self, secret: bytes) -> None:
        self._key = X25519PrivateKey.from_private_bytes(secret)
        self.public = self._key.public_key().public_bytes_raw()

    def __repr__(self) -> str:
        return "Agreement(...)"

    def secret_bytes(self) -> bytes:
        """The secret, for the device's own memory and for nobody else."""
        return self._key.private_bytes_raw()

    def key(self, theirs: bytes, salt: bytes, info: bytes, size: int = KEY_BYTES) -> bytes:
        """A key that only the owners of both secrets can compute."""
        try:
            shared = self._key.exchange(X25519PublicKey.from_public_bytes(theirs))
        except ValueError:
            raise SecureSumError(
                "a device's public key is of low order; no honest device makes such a key"
            ) from None
        return HKDF(SHA256(), size, salt, DOMAIN + info).derive(shared)


def is_low_order(theirs: bytes) -> bool:
    """Return True if an X25519 public key has low order, so that everyone gets the same secret."""
    try:
        X25519PrivateKey.from_private_bytes(b"k" * KEY_BYTES).exchange(
            X25519PublicKey.from_public_bytes(theirs)
        )
    except ValueError:
        return True
    return False


def is_identity_key(public: bytes) -> bool:
    """Return True if this is an Ed25519 public key under which only the owner of a secret can sign.

    It is a point of the curve, and not one of the eight points of small order, under which anybody
    can.
    """
    y = int.from_bytes(public, "little") & ((1 << 255) - 1)
    if len(public) != KEY_BYTES or y >= _PRIME:
        return False
    square = (y * y - 1) * pow(_D * y * y + 1, -1, _PRIME) % _PRIME
    if square and pow(square, (_PRIME - 1) // 2, _PRIME) != 1:
        return False
    # The same point on the curve of X25519, where the library knows the small ones.
    there = (1 + y) * pow(1 - y, -1, _PRIME) % _PRIME if y != 1 else 0
    return not is_low_order(there.to_bytes(KEY_BYTES, "little"))


def digest(label: bytes, *parts: bytes) -> bytes:
    """Return the SHA-256 of parts, each prefixed by its length."""
    state = sha256(DOMAIN + label)
    for part in parts:
        state.update(len(part).to_bytes(8, "little"))
        state.update(part)
    return state.digest()


def device_bytes(device: int) -> bytes:
    """Encode a device's number for signatures and key derivations."""
    return device.to_bytes(4, "little")


def add_mask(total: np.ndarray, key: bytes, *, subtract: bool = False) -> None:
    """Add or subtract the ChaCha20 keystream of ``key`` in place, modulo 2^32 (2^64 if wide).

    The nonce is zero because a key makes one keystream in its life.
    """
    stream = Cipher(ChaCha20(key, _COUNTER_AND_NONCE), None).encryptor()
    combine = np.subtract if subtract else np.add
    block = _BLOCK_BYTES // total.itemsize
    buffer = np.empty(min(block, len(total)), total.dtype)
    for start in range(0, len(total), block):
        part = total[start : start + block]
        words = buffer[: len(part)]
        stream.update_into(_ZEROS[: words.nbytes], words.view(np.uint8).data)
        combine(part, words, out=part)


def seal(key: bytes, plain: bytes) -> bytes:
    """Encrypt and authenticate; the key is used for this one text."""
    return ChaCha20Poly1305(key).encrypt(_NO_NONCE, plain, None)


def unseal(key: bytes, sealed: bytes) -> bytes | None:
    """Decrypt; None if it was changed, or made for another key."""
    try:
        return ChaCha20Poly1305(key).decrypt(_NO_NONCE, sealed, None)
    except InvalidTag:
        return None


def sign(secret: bytes, text: bytes) -> bytes:
    """Ed25519 signature."""
    return Ed25519PrivateKey.from_private_bytes(secret).sign(text)


def verifies(public: bytes, signature: bytes, text: bytes) -> bool:
    """Return True if the signature is valid under this key."""
    try:
        Ed25519PublicKey.from_public_bytes(public).verify(signature, text)
    except (InvalidSignature, ValueError):
        return False
    return True


def identity_public(secret: bytes) -> bytes:
    """The Ed25519 public key of an identity's secret."""
    return Ed25519PrivateKey.from_private_bytes(secret).public_key().public_bytes_raw()


@dataclass(frozen=True)
class IntegerCoding:
    """Coding of a device's integers as words, and of a sum of words as integers.

    The sum must stay below 2^31 in size (2^63 if words are wide), whatever each device sends within
    the bound. A number is one word, so that the sum of the words is a function of the sum of the
    numbers and tells nothing else.

    Attributes:
        bound: No number of any device is larger in size.
        participants: Devices in the sum, at most.
        wide: Use words of 64 bits.
    """

    bound: int
    participants: int
    wide: bool = False

    def __post_init__(self) -> None:
        if self.bound < 0 or self.participants < 1 or self.participants >= 1 << 31:
            raise SecureSumError("the bound must be 0 or more and the participants at least 1")
        if self.bound > self.largest_bound(self.participants, wide=self.wide):
            hint = "use wide=True or a coarser grid"
            if self.wide:
                hint = "use fewer devices or a coarser grid"
            raise SecureSumError(
                f"{self.participants} numbers up to {self.bound} may add up to more than the words "
                f"can hold; {hint}"
            )

    @staticmethod
    def largest_bound(participants: int, *, wide: bool = False) -> int:
        """The largest bound that so many devices may have."""
        return ((1 << (63 if wide else 31)) - 1) // participants

    @property
    def word(self) -> np.dtype[Any]:
        """The type of a word."""
        return WIDE_WORD if self.wide else WORD

    def encode(self, values: np.ndarray) -> np.ndarray:
        """The words of a vector of integers."""
        values = np.asarray(values)
        if values.ndim != 1 or not np.issubdtype(values.dtype, np.signedinteger):
            raise SecureSumError(
                "values to sum must be a vector of signed integers; put fractions on a grid first"
            )
        if len(values) and not -self.bound <= int(values.min()) <= int(values.max()) <= self.bound:
            raise SecureSumError(
                f"a value is beyond the declared bound of {self.bound}; nothing was encoded"
            )
        # Wide words are the same bytes: thousands of simulated devices need not hold their numbers
        # twice.
        if self.wide:
            return values.astype(np.int64, copy=False).view(self.word)
        return values.astype(self.word)

    def decode(self, total: np.ndarray) -> np.ndarray:
        """The integers behind a sum of words, as int64."""
        if total.ndim != 1 or total.dtype != self.word:
            raise SecureSumError(
                "a sum to decode must be the vector of words that a secure sum gives"
            )
        return total.view("<i8" if self.wide else "<i4").astype(np.int64)
