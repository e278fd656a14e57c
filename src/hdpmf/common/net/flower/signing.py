"""Who calls, and what for: the signature on a device's request.

It covers the recommender (by its authority's certificate, which the device has pinned), the method,
the path, the time and the digest and length of the body. So what one recommender was sent is of no
use at another, nor for another call, and a stranger is turned away on the headers, before anything
of a body is read.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import time
from collections.abc import Callable, Mapping, Sequence

from hdpmf.common.net.extras import needs
from hdpmf.common.net.flower.versions import PROTOCOL, SPOKEN
from hdpmf.common.net.keys import NodeKey
from hdpmf.errors import TransportError

with needs("cryptography"):
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ec import ECDSA, EllipticCurvePublicKey
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.serialization import load_pem_public_key

KEY, TIME, BODY, SIGNATURE = "x-hdpmf-key", "x-hdpmf-time", "x-hdpmf-body", "x-hdpmf-signature"
AHEAD, BEHIND = 5.0, 300.0
"""Seconds that a device's clock may be wrong."""


def server_name(authority: bytes) -> bytes:
    """What signatures call a recommender: the digest of its authority's certificate (PEM)."""
    return hashlib.sha256(b"".join(authority.split())).digest()


def signed_headers(
    key: NodeKey, server: bytes, method: str, path: str, body: bytes
) -> dict[str, str]:
    """The headers that a request needs."""
    now, digest = f"{time.time():.3f}", hashlib.sha256(body).hexdigest()
    signature = key.private.sign(
        _text(server, method, path, now, digest, len(body)), ECDSA(SHA256())
    )
    return {
        KEY: base64.b64encode(key.public.encode("ascii")).decode("ascii"),
        TIME: now,
        BODY: digest,
        SIGNATURE: base64.b64encode(signature).decode("ascii"),
        PROTOCOL: str(SPOKEN),
    }


def _text(server: bytes, method: str, path: str, now: str, digest: str, length: int) -> bytes:
    return b"\n".join(
        (
            b"hdpmf request 1",
            server.hex().encode(),
            f"{method} {path} {now} {digest} {length}".encode(),
        )
    )


class Doorkeeper:
    """Tells enrolled devices from strangers.

    Args:
        servers: The recommender's names (``server_name``): two, if its authority has followed
            another one.
        enrolled: Whether a public key (PEM) is enrolled.
    """

    def __init__(self, servers: Sequence[bytes], enrolled: Callable[[bytes], bool]) -> None:
        self._servers = servers
        self._enrolled = enrolled
        self._keys: dict[bytes, EllipticCurvePublicKey] = {}

    def caller(
        self, headers: Mapping[bytes, bytes], method: str, path: str, length: int
    ) -> bytes | None:
        """The public key of the enrolled device that signed these headers; None if none did."""
        try:
            public, signature = (
                base64.b64decode(headers[name.encode()], validate=True) for name in (KEY, SIGNATURE)
            )
            now, digest = (
                headers[TIME.encode()].decode("ascii"),
                headers[BODY.encode()].decode("ascii"),
            )
            if not -BEHIND < float(now) - time.time() < AHEAD or not self._enrolled(public):
                return None
            if public not in self._keys:
                key = load_pem_public_key(public)
                if not isinstance(key, EllipticCurvePublicKey):
                    return None
                self._keys[public] = key
            texts = [_text(server, method, path, now, digest, length) for server in self._servers]
        except (KeyError, ValueError, binascii.Error):
            return None
        return (
            public if any(_holds(self._keys[public], signature, text) for text in texts) else None
        )


def _holds(key: EllipticCurvePublicKey, signature: bytes, text: bytes) -> bool:
    try:
        key.verify(signature, text, ECDSA(SHA256()))
    except InvalidSignature:
        return False
    return True


def check_body(headers: Mapping[bytes, bytes], body: bytes) -> None:
    """Raise TransportError if the body is not the one that the headers speak of."""
    if hashlib.sha256(body).hexdigest().encode() != headers.get(BODY.encode()):
        raise TransportError("a request's body is not the one that was signed")
