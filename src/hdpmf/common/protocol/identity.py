"""Identities of devices, servers and recommenders: keys, cards, and invitations.

A device is known by its Ed25519 key.
"""

from __future__ import annotations

import base64
import binascii
import secrets
import zlib
from hashlib import sha256

import msgspec

from hdpmf.common.base.names import claimed_name
from hdpmf.common.protocol.servers import Servers, check_address
from hdpmf.errors import ConfigError, needs

with needs("cryptography"):
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric.ed25519 import (
        Ed25519PrivateKey,
        Ed25519PublicKey,
    )
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF

KEY_BYTES = 32

_PRIME = 2**255 - 19
_D = -121665 * pow(121666, -1, _PRIME) % _PRIME  # of the curve of Ed25519


class Identity:
    """An Ed25519 key for signatures, from 32 secret bytes."""

    def __init__(self, secret: bytes) -> None:
        if len(secret) != KEY_BYTES:
            raise ConfigError(f"a signing key has {KEY_BYTES} bytes, not {len(secret)}")
        self._secret = bytes(secret)
        self._key = Ed25519PrivateKey.from_private_bytes(self._secret)
        self.public = self._key.public_key().public_bytes_raw()

    @classmethod
    def generate(cls) -> Identity:
        """A new identity, from the operating system's entropy."""
        return cls(secrets.token_bytes(KEY_BYTES))

    def __repr__(self) -> str:
        return f"Identity({self.public.hex()[:16]})"

    def secret_bytes(self) -> bytes:
        """The secret, for its owner's own files and for nobody else."""
        return self._secret

    def sign(self, text: bytes) -> bytes:
        """Signature of ``text``."""
        return self._key.sign(text)


def verifies(public: bytes, signature: bytes, text: bytes) -> bool:
    """Return True if the signature is valid under this Ed25519 key."""
    try:
        Ed25519PublicKey.from_public_bytes(public).verify(signature, text)
    except (InvalidSignature, ValueError):
        return False
    return True


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
    # The same point on the curve of X25519, where the library refuses the small ones.
    there = (1 + y) * pow(1 - y, -1, _PRIME) % _PRIME if y != 1 else 0
    try:
        X25519PrivateKey.generate().exchange(
            X25519PublicKey.from_public_bytes(there.to_bytes(KEY_BYTES, "little"))
        )
    except ValueError:
        return False
    return True


class DeviceCard(msgspec.Struct, frozen=True, kw_only=True):
    """A device's public card, by which a recommender enrols it.

    Attributes:
        identity: Ed25519 public key (hex), which signs requests for tokens.
    """

    name: str
    identity: str


def check_card(card: DeviceCard) -> DeviceCard:
    """Return the card; raise ConfigError if no device made it."""
    if not (1 <= len(card.name) <= 200 and card.name.isprintable()):
        raise ConfigError("a device's name must have 1 to 200 printable characters")
    try:
        key = bytes.fromhex(card.identity)
    except ValueError:
        key = b""
    if key.hex() != card.identity or not is_identity_key(key):
        raise ConfigError(
            f"the identity key on the card of {card.name[:32]!r} is malformed; ask for the card "
            "that the device wrote"
        )
    return card


def read_card(data: bytes) -> DeviceCard:
    """Return the card in a file, checked."""
    try:
        card = msgspec.json.decode(data, type=DeviceCard)
    except msgspec.MsgspecError as error:
        raise ConfigError(f"this is not a device's card: {error}") from None
    return check_card(card)


MOST_INVITATION_BYTES = 64 << 10
"""Of an invitation."""

_MARK = "#hdpmf-join="


class Invitation(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """An invitation, whose digest people compare in a way that does not go through the recommender.

    Attributes:
        address: Of the recommender, ``https://`` with host and port.
        servers: The two servers that sum for it.
        authority: Issuer of its TLS certificate (PEM); empty for the public ones.
        name: What the recommender calls itself (``claimed_name``); empty if nothing. Nobody has
            checked it, so that its address is shown beside it.
    """

    address: str
    servers: Servers
    authority: str = ""
    name: str = ""

    def __post_init__(self) -> None:
        check_address(self.address)
        if self.name and claimed_name(self.name) != self.name:
            raise ConfigError("the name in an invitation has spaces too many, or is not NFC")

    @property
    def digest(self) -> str:
        """Of everything in it, in groups of four digits."""
        plain = sha256(b"hdpmf invitation " + self._encoded()).hexdigest()[:32]
        return " ".join(plain[at : at + 4] for at in range(0, len(plain), 4))

    def _encoded(self) -> bytes:
        return msgspec.json.encode(self)

    def to_json(self) -> bytes:
        """As a file."""
        return msgspec.json.format(self._encoded(), indent=1)

    def to_link(self) -> str:
        """As a link. What it says is behind the ``#``, which browsers do not send to anybody."""
        packed = base64.urlsafe_b64encode(zlib.compress(self._encoded(), 9)).decode().rstrip("=")
        return f"{self.address}{_MARK}{packed}"

    @classmethod
    def read(cls, data: bytes) -> Invitation:
        """Return the invitation in a file or a link; ConfigError if there is none."""
        if len(data) > MOST_INVITATION_BYTES:
            raise ConfigError(f"an invitation has at most {MOST_INVITATION_BYTES:,} bytes")
        try:
            text = data.decode()
            if _MARK in text:
                packed = text.strip().rpartition(_MARK)[2]
                unpacker = zlib.decompressobj()
                data = unpacker.decompress(
                    base64.urlsafe_b64decode(packed + "=" * (-len(packed) % 4)),
                    MOST_INVITATION_BYTES,
                )
                if not unpacker.eof:
                    raise ConfigError("this is no invitation: its link is cut off or too long")
            return msgspec.json.decode(data, type=cls)
        except (UnicodeDecodeError, binascii.Error, zlib.error, ValueError, msgspec.MsgspecError):
            raise ConfigError(
                "this is no invitation of a recommender: neither its file nor its link"
            ) from None


class PartyKey:
    """The X25519 key of a server or a collector, with the public half on its card.

    Two cards that were exchanged and compared once give both the same secrets, which never travel:
    the token that one shows the other, and the servers' verify key of every task.
    """

    def __init__(self, private: X25519PrivateKey) -> None:
        self._private = private

    def __repr__(self) -> str:
        return f"PartyKey({self.public[:16]})"

    @classmethod
    def generate(cls) -> PartyKey:
        """A new key."""
        return cls(X25519PrivateKey.generate())

    @classmethod
    def from_bytes(cls, data: bytes) -> PartyKey:
        """The key that ``to_bytes`` gave."""
        try:
            return cls(X25519PrivateKey.from_private_bytes(data))
        except ValueError:
            raise ConfigError("this is not a party's secret key of 32 bytes") from None

    def to_bytes(self) -> bytes:
        """The secret key, 32 bytes."""
        return self._private.private_bytes(
            serialization.Encoding.Raw,
            serialization.PrivateFormat.Raw,
            serialization.NoEncryption(),
        )

    @property
    def public(self) -> str:
        """The public key, in hexadecimal."""
        public = self._private.public_key()
        return public.public_bytes(serialization.Encoding.Raw, serialization.PublicFormat.Raw).hex()

    def shared(self, other: str, purpose: bytes, size: int = 32) -> bytes:
        """Return the secret that this party shares with another (by public key), for one purpose.

        Raises:
            ConfigError: The key is malformed.
        """
        try:
            agreed = self._private.exchange(X25519PublicKey.from_public_bytes(bytes.fromhex(other)))
        except ValueError:
            raise ConfigError("the other party's public key is invalid") from None
        both = b"".join(sorted((bytes.fromhex(self.public), bytes.fromhex(other))))
        return HKDF(hashes.SHA256(), size, None, b"hdpmf party " + both + purpose).derive(agreed)

    def token(self, other: str, to: str) -> str:
        """Return the token between the two; ``to`` is the public key of its checker."""
        return self.shared(other, b"token " + bytes.fromhex(to)).hex()


def verify_key(own: PartyKey, partner: str, task_id: bytes, size: int) -> bytes:
    """The servers' verify key of a task: known to both before any report, and to no device."""
    return own.shared(partner, b"verify key " + task_id, size)
