"""Encryption of a device's file: without its passphrase, no reading and no unnoticed changes.

A passphrase opens (scrypt) a random key; that key makes two others: one seals records
(ChaCha20-Poly1305, a random nonce each, padded so that lengths say little), one makes tags (keyed
BLAKE2b), by which a record is found without its item or user being readable. Without a passphrase
records are stored as they are, and the tags' key lies beside them. A new passphrase comes with a
new key, so that the old passphrase and an old copy of the file open nothing that is written later.
Beside it one key lasts as long as the store: the ledger knows ratings by it, also those that are
gone from the file, and the counter beside the file knows the store by it.

What a sealed file still shows: how many records of each kind there are, about how large they are,
and when they changed.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from hashlib import blake2b, scrypt
from typing import Literal

import msgspec

from hdpmf.errors import ConfigError, MissingExtraError, PrivacyError, StorageError

KEY_BYTES = 32
TAG_BYTES = 16
_NONCE_BYTES = 12
_PAD_TO = 64

SCRYPT_COST = 1 << 17
"""Of a new cipher: 128 MB and about half a second for whoever tries one passphrase."""

_MOST_COST = 1 << 20
_BLOCK_SIZE = 8
_KEY = b"key of a file with a head"  # part of the file format


class _Header(msgspec.Struct, frozen=True):
    """The unsealed header that says how to derive the keys."""

    kind: Literal["plain", "scrypt"]
    salt: bytes
    cost: int
    # plain: the key itself; scrypt: sealed by what the passphrase gives. Then the lasting one, if
    # another
    key: bytes


class StoreCipher:
    """Seals and opens records. Make one with `new` or `unlock`."""

    def __init__(self, header: _Header, keys: bytes) -> None:
        if len(keys) not in (KEY_BYTES, 2 * KEY_BYTES):
            raise StorageError("the store's header has a key of the wrong length: it is damaged")
        key = keys[:KEY_BYTES]
        self._lasting = keys[KEY_BYTES:] or key
        self._header = header
        self._tags = blake2b(key=_derived(key, b"tags"), digest_size=TAG_BYTES)
        self._lasting_checks = blake2b(key=_derived(self._lasting, b"rows"), digest_size=32)
        self._lasting_tags = blake2b(key=_derived(self._lasting, b"tags"), digest_size=TAG_BYTES)
        self._cipher = _Cipher(_derived(key, b"records")) if header.kind == "scrypt" else None

    @classmethod
    def new(cls, passphrase: str | None = None) -> StoreCipher:
        """A cipher with a new key; without a passphrase it seals nothing."""
        key = secrets.token_bytes(KEY_BYTES)
        if passphrase is None:
            return cls(_Header("plain", b"", 0, key), key)
        return cls(_wrapped(key, passphrase), key)

    def renewed(self, passphrase: str) -> StoreCipher:
        """A cipher with a new key and the same lasting one, for this passphrase."""
        keys = secrets.token_bytes(KEY_BYTES) + self._lasting
        return type(self)(_wrapped(keys, passphrase), keys)

    @classmethod
    def unlock(cls, header: bytes, passphrase: str | None = None) -> StoreCipher:
        """The cipher with this header.

        Raises:
            PrivacyError: The passphrase is wrong, or one is needed.
            ConfigError: A passphrase is given where none is needed.
            StorageError: The header is damaged.
        """
        found = _read(header)
        if found.kind == "plain":
            if passphrase is not None:
                raise ConfigError(
                    "this store is not encrypted, so it needs no passphrase; leave it out"
                )
            return cls(found, found.key)
        if passphrase is None:
            raise PrivacyError("this store is encrypted; give its passphrase")
        cipher = _Cipher(_stretched(passphrase, found.salt, found.cost))
        try:
            keys = cipher.open(found.key, _KEY)
        except StorageError:
            raise PrivacyError("the passphrase is wrong; nothing was opened") from None
        return cls(found, keys)

    @staticmethod
    def needs_passphrase(header: bytes) -> bool:
        """Return True if a cipher with this header needs a passphrase."""
        return _read(header).kind == "scrypt"

    @property
    def is_encrypted(self) -> bool:
        """True if there is a passphrase."""
        return self._cipher is not None

    def __repr__(self) -> str:
        return f"StoreCipher({'encrypted' if self.is_encrypted else 'plain'})"

    def header(self) -> bytes:
        """Return the header that `unlock` needs besides the passphrase."""
        return msgspec.msgpack.encode(self._header)

    def seal(self, data: bytes, about: bytes) -> bytes:
        """``data`` sealed for one place in the file, so that it cannot be moved to another."""
        return data if self._cipher is None else self._cipher.seal(data, about)

    def open(self, sealed: bytes, about: bytes) -> bytes:
        """Decrypt what was sealed for this context; StorageError if a bit of it was changed."""
        return sealed if self._cipher is None else self._cipher.open(sealed, about)

    def lasting_check(self, data: bytes) -> bytes:
        """Return such a digest by the key that stays when the passphrase changes."""
        return _of(self._lasting_checks, data)

    def tag(self, kind: bytes, *parts: str) -> bytes:
        """Return a name for a record, which reveals its parts only with the key."""
        return _of(self._tags, msgspec.msgpack.encode((kind, parts)))

    def lasting_tag(self, kind: bytes, *parts: str) -> bytes:
        """Return such a name by the key that stays when the passphrase changes.

        Only for what is sealed.
        """
        return _of(self._lasting_tags, msgspec.msgpack.encode((kind, parts)))


class _Cipher:
    """ChaCha20-Poly1305 with random nonces: safe for some billions of records under one key."""

    def __init__(self, key: bytes) -> None:
        try:
            from cryptography.exceptions import InvalidTag
            from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
        except ImportError as error:
            raise MissingExtraError(
                "an encrypted store needs the package cryptography: pip install 'hdpmf[federation]'"
            ) from error
        self._invalid = InvalidTag
        self._cipher = ChaCha20Poly1305(key)
        self._nonce: Callable[[int], bytes] = secrets.token_bytes

    def seal(self, data: bytes, about: bytes) -> bytes:
        nonce = self._nonce(_NONCE_BYTES)
        padded = data + b"\x80" + bytes(-(len(data) + 1) % _PAD_TO)
        return nonce + self._cipher.encrypt(nonce, padded, about)

    def open(self, sealed: bytes, about: bytes) -> bytes:
        try:
            padded = self._cipher.decrypt(sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:], about)
        except (self._invalid, ValueError):
            raise StorageError(
                "a sealed record does not open: the store is damaged or was tampered with"
            ) from None
        return padded.rstrip(b"\0")[:-1]


def _of(maker: blake2b, data: bytes) -> bytes:
    copy = maker.copy()
    copy.update(data)
    return copy.digest()


def _wrapped(keys: bytes, passphrase: str) -> _Header:
    if not passphrase:
        raise ConfigError(
            "an empty passphrase protects nothing; give one, or do without encryption"
        )
    salt, cost = secrets.token_bytes(16), SCRYPT_COST
    return _Header(
        "scrypt", salt, cost, _Cipher(_stretched(passphrase, salt, cost)).seal(keys, _KEY)
    )


def _stretched(passphrase: str, salt: bytes, cost: int) -> bytes:
    memory = 128 * _BLOCK_SIZE * cost + (1 << 20)
    return scrypt(
        passphrase.encode(), salt=salt, n=cost, r=_BLOCK_SIZE, p=1, maxmem=memory, dklen=KEY_BYTES
    )


def _derived(key: bytes, purpose: bytes) -> bytes:
    return blake2b(b"hdpmf device " + purpose, key=key, digest_size=KEY_BYTES).digest()


def _read(header: bytes) -> _Header:
    try:
        found = msgspec.msgpack.decode(header, type=_Header)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise StorageError("the store's header cannot be read: it is damaged") from error
    cost = found.cost
    # Bounded, or a tampered file could ask for all the memory there is.
    if found.kind == "scrypt" and not (2 <= cost <= _MOST_COST and cost & (cost - 1) == 0):
        raise StorageError(
            "the store's header asks for an impossible amount of work: it is damaged"
        )
    return found
