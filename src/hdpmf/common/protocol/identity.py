"""Identities of devices, servers and recommenders: keys, and invitations.

A participant is known by its Ed25519 key.
"""

from __future__ import annotations

import re
import secrets
from typing import NamedTuple

import msgspec

from hdpmf.common.base.names import claimed_name
from hdpmf.common.protocol.documents import (
    canonical,
    compared,
    file_digest,
    from_base64,
    to_base64,
)
from hdpmf.common.protocol.servers import Servers, check_address, plain_address
from hdpmf.errors import ConfigError, ProtocolError, needs

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


MOST_INVITATION_BYTES = 64 << 10
"""Of an invitation."""

MOST_LINK = 300
"""Characters of a link."""

_LINK = re.compile(r"(https://[^#\s]+)/join#([\w-]{43})(?:\.([\w-]{32}))?", re.ASCII)


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
        return compared("invitation", self)

    def _encoded(self) -> bytes:
        return canonical(self)

    def to_json(self) -> bytes:
        """As a file."""
        return self._encoded()

    def link(self, secret: str = "") -> str:
        """Return the link to it; ConfigError if it would be too long."""
        made = f"{self.address}/join#{file_digest(self.to_json())}{'.' if secret else ''}{secret}"
        if len(made) > MOST_LINK:
            raise ConfigError(f"a link has at most {MOST_LINK} characters; shorten the address")
        return made

    @classmethod
    def read(cls, data: bytes) -> Invitation:
        """Return the invitation in a file; ConfigError if there is none."""
        if len(data) > MOST_INVITATION_BYTES:
            raise ConfigError(f"an invitation has at most {MOST_INVITATION_BYTES:,} bytes")
        try:
            return msgspec.json.decode(data, type=cls)
        except (UnicodeDecodeError, msgspec.MsgspecError):
            raise ConfigError("this is no invitation of a recommender") from None


class InvitationLink(NamedTuple):
    """What a link to an invitation says. It is behind the ``#``: browsers tell it to nobody.

    Attributes:
        address: The recommender's.
        digest: SHA-256 of its ``invitation.json``.
        secret: Lets one participant in, once; empty for none.
    """

    address: str
    digest: str
    secret: str

    @classmethod
    def read(cls, text: str) -> InvitationLink:
        """Return what is in a link; ConfigError if it is none to an invitation."""
        found = _LINK.fullmatch(text.strip()) if len(text) <= 2 * MOST_LINK else None
        if found is None:
            raise ConfigError("this is no link to an invitation, or it is cut off")
        return cls(check_address(found[1]), found[2], found[3] or "")

    def opened(self, data: bytes, authority: str = "") -> Invitation:
        """Return the invitation that the recommender shows; ConfigError if it is another one.

        Args:
            authority: Issuer of the recommender's certificate (PEM), in a trial.
        """
        if file_digest(data) != self.digest:
            raise ConfigError(
                f"{self.address} shows another invitation than the one of this link; its operator "
                "has changed it, or somebody else has: ask for a new link in another way"
            )
        found = Invitation.read(data)
        if plain_address(found.address) != self.address:
            raise ConfigError("the invitation is of another address than its link")
        return msgspec.structs.replace(found, authority=authority)


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
        """The public key, in base64url."""
        return to_base64(self._private.public_key().public_bytes_raw())

    def shared(self, other: str, purpose: bytes, size: int = 32) -> bytes:
        """Return the secret that this party shares with another (by public key), for one purpose.

        Raises:
            ConfigError: The key is malformed.
        """
        try:
            agreed = self._private.exchange(X25519PublicKey.from_public_bytes(from_base64(other)))
        except (ProtocolError, ValueError):
            raise ConfigError("the other party's public key is invalid") from None
        both = b"".join(sorted((from_base64(self.public), from_base64(other))))
        return HKDF(hashes.SHA256(), size, None, b"hdpmf party " + both + purpose).derive(agreed)

    def token(self, other: str, to: str) -> str:
        """Return the token between the two; ``to`` is the public key of its checker."""
        return to_base64(self.shared(other, b"token " + from_base64(to)))


def verify_key(own: PartyKey, partner: str, task_id: bytes, size: int) -> bytes:
    """The servers' verify key of a task: known to both before any report, and to no device."""
    return own.shared(partner, b"verify key " + task_id, size)
