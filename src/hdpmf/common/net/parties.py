"""Secrets that any two servers or collectors share and that never travel.

Each party has an X25519 key and publishes the public half on its card. Two cards that were
exchanged and compared once give both the same secrets: the token that one shows the other, and the
servers' verify key of every task.
"""

from __future__ import annotations

from hdpmf.errors import ConfigError, needs

with needs("cryptography"):
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF


class PartyKey:
    """A party's secret key."""

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
