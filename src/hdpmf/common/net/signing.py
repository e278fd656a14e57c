"""Signed requests of participants to the recommender.

A signature by the participant's identity key covers the recommender, the method, the path, the
time, and the digest and length of the body. So a request cannot be replayed at another recommender
or for another call, and strangers are refused before any of a body is read.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from hdpmf.common.protocol.task import DEVICE_HEADER, SIGNATURE_HEADER
from hdpmf.errors import needs

with needs("cryptography"):
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

OFFERS, CONTRIBUTION = "/offers", "/contributions/{id}"
"""Paths below a recommender's address (``mailbox``)."""
OFFER_HEADER, PAUSE_HEADER, FILES_HEADER = "hdpmf-offer", "hdpmf-pause", "hdpmf-files"
"""Of an answer: the id of the offer, the seconds until the next poll that are suggested, and the
version of the public files.
"""
TIME_HEADER, DIGEST_HEADER = "hdpmf-time", "hdpmf-digest"
CLOCK_HEADER = "hdpmf-clock"
"""In a refusal: the time of the recommender, so that a participant with a wrong clock knows why."""
TOLERANCE = 300.0
"""Seconds that a participant's clock may be wrong."""


class Signer(Protocol):
    """A participant's identity key."""

    public: bytes

    def sign(self, text: bytes) -> bytes:
        """Return the signature of a text."""
        ...


def server_name(authority: bytes, host: str) -> str:
    """Return the name of a recommender in signatures.

    It is the digest of the pinned authority (PEM, one certificate) or, where none is pinned and the
    certificate comes from a public one, of the host.
    """
    if authority:
        return hashlib.sha256(b"authority " + b"".join(authority.split())).hexdigest()
    return hashlib.sha256(b"host " + host.lower().encode()).hexdigest()


def signed_headers(
    identity: Signer, server: str, method: str, path: str, body: bytes = b""
) -> dict[str, str]:
    """Return the headers of a signed request; ``path`` is below the recommender's address."""
    now = f"{time.time():.3f}"
    digest = hashlib.sha256(body).hexdigest()
    return {
        DEVICE_HEADER: identity.public.hex(),
        TIME_HEADER: now,
        DIGEST_HEADER: digest,
        SIGNATURE_HEADER: identity.sign(_text(server, method, path, now, digest, len(body))).hex(),
    }


def _text(server: str, method: str, path: str, now: str, digest: str, length: int) -> bytes:
    return f"hdpmf request 2\n{server}\n{method} {path}\n{now}\n{digest} {length}".encode()


class RequestVerifier:
    """Tells enrolled participants from strangers.

    Args:
        servers: The recommender's names (``server_name``).
        enrolled: Returns whether an identity (hex) is on the roster.
    """

    def __init__(self, servers: Sequence[str], enrolled: Callable[[str], bool]) -> None:
        self._servers = tuple(servers)
        self._enrolled = enrolled
        self._keys: dict[str, Ed25519PublicKey] = {}

    def caller(self, headers: Mapping[str, str], method: str, path: str, length: int) -> str | None:
        """Return the identity of the enrolled participant that signed these headers, or None."""
        try:
            device = headers[DEVICE_HEADER]
            now = headers[TIME_HEADER]
            digest = headers[DIGEST_HEADER]
            signature = bytes.fromhex(headers[SIGNATURE_HEADER])
            if not self._enrolled(device) or not abs(float(now) - time.time()) < TOLERANCE:
                return None
            if device not in self._keys:
                self._keys[device] = Ed25519PublicKey.from_public_bytes(bytes.fromhex(device))
            key = self._keys[device]
        except (KeyError, ValueError):
            return None
        texts = (_text(server, method, path, now, digest, length) for server in self._servers)
        return device if any(_holds(key, signature, text) for text in texts) else None


def _holds(key: Ed25519PublicKey, signature: bytes, text: bytes) -> bool:
    try:
        key.verify(signature, text)
    except InvalidSignature:
        return False
    return True
