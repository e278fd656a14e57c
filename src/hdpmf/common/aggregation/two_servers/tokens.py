"""Blind tokens, by which a leader takes one report of each enrolled user and learns of none.

Privacy Pass, publicly verifiable tokens (RFC 9578, token type 0x0002): signatures by blind RSA
(RFC 9474, RSABSSA-SHA384-PSS-Deterministic) of 2,048 bits. The device draws a nonce and blinds it,
the issuer signs what it cannot read, and anybody who has the issuer's public key checks the
token. The blinded message is the product with a factor that is uniform, so that it says nothing
about the nonce: every request fits every token of the same key. What tells tokens apart is the
key, so that there must be one for all devices (``Task.token_key``).

A device needs the public key alone. The issuer computes with GMP where ``gmpy2`` is installed, and
with Python's integers otherwise: the same bytes, seven times as slowly. Python's take longer for
some numbers than for others. So with both, what is raised to the secret exponent is multiplied by a
random factor first, and the result is checked before anybody gets it.
"""

from __future__ import annotations

import base64
import binascii
import re
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache, cached_property
from hashlib import sha256, sha384
from math import gcd
from typing import TYPE_CHECKING, Any

import msgspec

from hdpmf.common.aggregation.two_servers.dap.messages import REPORT_ID_SIZE
from hdpmf.errors import ProtocolError, needs

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.rsa import (
        RSAPrivateKey,
        RSAPrivateNumbers,
        RSAPublicKey,
    )

NONCE_SIZE = 32

TOKENS_PATH = "/tokens/{task_id}"
"""Below a recommender's address: where devices ask for tokens, by POST."""

REQUEST_MEDIA_TYPE = "application/private-token-request"

RESPONSE_MEDIA_TYPE = "application/private-token-response"

TOKEN_HEADER = "authorization"  # noqa: S105  # the name of a header

_TYPE = b"\x00\x02"
_BITS = 2048
_SIZE = _BITS // 8  # bytes of a signature
_EXPONENT = 65_537
_SALT_SIZE = 48
_DIGEST_SIZE = 32

REQUEST_SIZE = len(_TYPE) + 1 + _SIZE
"""Bytes of a request."""

RESPONSE_SIZE = _SIZE
"""Bytes of the answer."""

TOKEN_SIZE = len(_TYPE) + NONCE_SIZE + 2 * _DIGEST_SIZE + _SIZE
"""Bytes of a token."""

# A key of 2,048 bits with exponent 65,537, as RFC 9578 (8.2) has it: there is one encoding.
_SPKI_HEAD = bytes.fromhex(
    "30820152303d06092a864886f70d01010a3030a00d300b0609608648016503040202a11a301806092a864886f70d"
    "010108300b0609608648016503040202a2030201300382010f003082010a0282010100"
)
_SPKI_TAIL = bytes.fromhex("0203010001")


class TokenKey:
    """The public key of an issuer.

    Args:
        encoded: Its SubjectPublicKeyInfo (DER).

    Attributes:
        id: Its digest, which is in every token.

    Raises:
        ProtocolError: It is none of 2,048 bits for tokens.
    """

    def __init__(self, encoded: bytes) -> None:
        head, tail = len(_SPKI_HEAD), len(_SPKI_TAIL)
        self.modulus = int.from_bytes(encoded[head:-tail], "big")
        whole = encoded == _SPKI_HEAD + encoded[head:-tail] + _SPKI_TAIL
        if not (whole and len(encoded) == head + _SIZE + tail) or (
            self.modulus.bit_length() != _BITS or not self.modulus % 2
        ):
            raise ProtocolError("refused: a key for tokens is an RSA key of 2,048 bits (RFC 9578)")
        self.encoded = encoded
        self.id = sha256(encoded).digest()

    def __repr__(self) -> str:
        return f"TokenKey({self.id.hex()[:16]})"

    def holds(self, token: Token) -> bool:
        """Return True if this issuer has signed a token."""
        with needs("cryptography"):
            from cryptography.exceptions import InvalidSignature
            from cryptography.hazmat.primitives import hashes
            from cryptography.hazmat.primitives.asymmetric import padding

        if token.key_id != self.id:
            return False
        digest = hashes.SHA384()
        try:
            self._public.verify(
                token.authenticator,
                token.input,
                padding.PSS(padding.MGF1(digest), _SALT_SIZE),
                digest,
            )
        except InvalidSignature:
            return False
        return True

    @cached_property
    def _public(self) -> RSAPublicKey:
        with needs("cryptography"):
            from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicNumbers

        return RSAPublicNumbers(_EXPONENT, self.modulus).public_key()


@dataclass(frozen=True, slots=True)
class Token:
    """A token; whoever has it may use it once.

    Attributes:
        challenge: Digest of what it is for (``challenge_digest``).
        key_id: Of the issuer.
        authenticator: The issuer's signature.
    """

    nonce: bytes
    challenge: bytes
    key_id: bytes
    authenticator: bytes = field(repr=False)

    @property
    def report_id(self) -> bytes:
        """The id of the one report that the token is for: the first half of its nonce."""
        return self.nonce[:REPORT_ID_SIZE]

    @property
    def input(self) -> bytes:
        """The bytes that are signed."""
        return _TYPE + self.nonce + self.challenge + self.key_id

    def encode(self) -> bytes:
        """Return the token as it travels."""
        return self.input + self.authenticator

    @classmethod
    def decode(cls, data: bytes) -> Token:
        """Return the token in these bytes; ProtocolError if it is none of this type."""
        if len(data) != TOKEN_SIZE or data[: len(_TYPE)] != _TYPE:
            raise ProtocolError("refused: no token of type 2 (RFC 9578)")
        parts, start = [], len(_TYPE)
        for size in (NONCE_SIZE, _DIGEST_SIZE, _DIGEST_SIZE, _SIZE):
            parts.append(data[start : start + size])
            start += size
        return cls(*parts)

    def to_header(self) -> str:
        """Return the value of the header that a token is shown in (RFC 9577)."""
        return f'PrivateToken token="{base64.urlsafe_b64encode(self.encode()).decode()}"'

    @classmethod
    def from_header(cls, value: str) -> Token:
        """Return the token in a header; ProtocolError if there is none."""
        found = _HEADER.fullmatch(value)
        try:
            return cls.decode(base64.b64decode(found[1] if found else "", b"-_", validate=True))
        except binascii.Error:
            raise ProtocolError("refused: no token of type 2 (RFC 9578)") from None


_HEADER = re.compile(r'PrivateToken +token="?([A-Za-z0-9_=-]{1,600})"?', re.IGNORECASE)


def challenge_digest(issuer: str, context: bytes, origin: str = "") -> bytes:
    """Return the digest of a ``TokenChallenge`` (RFC 9577) that binds a token to 32 bytes."""
    parts = (issuer.encode(), 2), (context, 1), (origin.encode(), 2)
    sized = b"".join(len(part).to_bytes(size, "big") + part for part, size in parts)
    return sha256(_TYPE + sized).digest()


class BlindedToken(msgspec.Struct, frozen=True, array_like=True):
    """A token that is asked for. Who has it can tell whose report it is. PRIVATE.

    Attributes:
        request: What the issuer gets.
        inverse: Takes the blinding off.
    """

    nonce: bytes
    request: bytes
    inverse: bytes

    def __repr__(self) -> str:
        return "BlindedToken(...)"

    @property
    def report_id(self) -> bytes:
        """As in ``Token``."""
        return self.nonce[:REPORT_ID_SIZE]

    def finish(self, key: TokenKey, challenge: bytes, response: bytes) -> Token:
        """Return the token; ProtocolError if the issuer's answer is no signature."""
        if len(response) != RESPONSE_SIZE:
            raise ProtocolError("refused: the answer to a request for a token has another size")
        inverse = int.from_bytes(self.inverse, "big")
        signature = int.from_bytes(response, "big") * inverse % key.modulus
        token = Token(self.nonce, challenge, key.id, signature.to_bytes(_SIZE, "big"))
        if not key.holds(token):
            raise ProtocolError("refused: the issuer has not signed the token with its key")
        return token


def blind_token(
    key: TokenKey,
    challenge: bytes,
    nonce: bytes,
    *,
    salt: bytes | None = None,
    factor: int | None = None,
) -> BlindedToken:
    """Return the request for a token.

    Args:
        key: The issuer's.
        challenge: Digest of what it is for.
        nonce: Random bytes, as many as ``NONCE_SIZE``.
        salt: For tests.
        factor: For tests.
    """
    message = _TYPE + nonce + challenge + key.id
    salt = secrets.token_bytes(_SALT_SIZE) if salt is None else salt
    factor = _factor(key.modulus) if factor is None else factor
    blinded = blind(message, key.modulus, _EXPONENT, salt, factor)
    request = _TYPE + key.id[-1:] + blinded.to_bytes(_SIZE, "big")
    inverse = pow(factor, -1, key.modulus).to_bytes(_SIZE, "big")
    return BlindedToken(nonce, request, inverse)


class IssuerKey:
    """The secret key of an issuer."""

    def __init__(self, private: RSAPrivateKey) -> None:
        self._private = private
        self._numbers = private.private_numbers()
        modulus = self._numbers.public_numbers.n
        self.public = TokenKey(_SPKI_HEAD + modulus.to_bytes(_SIZE, "big") + _SPKI_TAIL)

    def __repr__(self) -> str:
        return f"IssuerKey({self.public.id.hex()[:16]})"

    @classmethod
    def generate(cls) -> IssuerKey:
        """Return a new key."""
        with needs("cryptography"):
            from cryptography.hazmat.primitives.asymmetric.rsa import generate_private_key

        return cls(generate_private_key(_EXPONENT, _BITS))

    @classmethod
    def from_bytes(cls, data: bytes) -> IssuerKey:
        """Return the key that ``to_bytes`` gave."""
        with needs("cryptography"):
            from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
            from cryptography.hazmat.primitives.serialization import load_der_private_key

        try:
            private = load_der_private_key(data, None)
            if isinstance(private, RSAPrivateKey) and private.key_size == _BITS:
                return cls(private)
        except (ValueError, TypeError):
            pass
        raise ProtocolError("this is no secret key for tokens")

    def to_bytes(self) -> bytes:
        """Return the secret key (PKCS #8, DER)."""
        with needs("cryptography"):
            from cryptography.hazmat.primitives import serialization

        return self._private.private_bytes(
            serialization.Encoding.DER,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )

    def read(self, request: bytes) -> int:
        """Return the blinded message in a request.

        Raises:
            ProtocolError: The request is malformed, or for another key.
        """
        head = _TYPE + self.public.id[-1:]
        blinded = int.from_bytes(request[len(head) :], "big")
        whole = len(request) == REQUEST_SIZE and request[: len(head)] == head
        if not (whole and 0 < blinded < self.public.modulus):
            raise ProtocolError("refused: no request for a token of this key")
        return blinded

    def sign(self, request: bytes) -> bytes:
        """Return the answer to a request: always the same bytes to the same request.

        Raises:
            ProtocolError: As in ``read``, or this machine has miscomputed.
        """
        return blind_sign(self._numbers, self.read(request)).to_bytes(_SIZE, "big")


def blind(message: bytes, modulus: int, exponent: int, salt: bytes, factor: int) -> int:
    """Return a message as it is signed blindly (RFC 9474, 4.2)."""
    encoded = int.from_bytes(encode_pss(message, modulus.bit_length() - 1, salt), "big")
    if gcd(encoded, modulus) != 1:
        raise ProtocolError("refused: a key for tokens has a small factor")
    return encoded * pow(factor, exponent, modulus) % modulus


def blind_sign(numbers: RSAPrivateNumbers, blinded: int) -> int:
    """Return the signature of a blinded message (RFC 9474, 4.3).

    Raises:
        ProtocolError: This machine has miscomputed.
    """
    public = numbers.public_numbers
    number, secret_power = _arithmetic()
    n, p, q = number(public.n), number(numbers.p), number(numbers.q)
    factor = number(_factor(public.n))  # the time of what follows says nothing about the key
    hidden = blinded * pow(factor, public.e, n) % n
    by_p = secret_power(hidden, numbers.dmp1, p)
    by_q = secret_power(hidden, numbers.dmq1, q)
    signed = by_q + q * ((by_p - by_q) * numbers.iqmp % p)
    signature = signed * pow(factor, -1, n) % n
    if pow(signature, public.e, n) != blinded:  # one wrong bit would give the key away
        raise ProtocolError("a signature came out wrong: do not trust this machine's arithmetic")
    return int(signature)


@cache
def _arithmetic() -> tuple[Callable[[int], Any], Callable[[Any, int, Any], Any]]:
    """Return the integers to compute with, and a power for secret exponents."""
    try:
        from gmpy2 import mpz, powmod_sec  # by issuers only: a device does not need it
    except ImportError:
        return int, pow
    return mpz, powmod_sec


def encode_pss(message: bytes, bits: int, salt: bytes) -> bytes:
    """Return EMSA-PSS of a message (RFC 8017, 9.1.1) with SHA-384 and MGF1 of it."""
    size = (bits + 7) // 8
    digest = sha384(bytes(8) + sha384(message).digest() + salt).digest()
    block = bytes(size - len(salt) - len(digest) - 2) + b"\x01" + salt
    mask = b"".join(
        sha384(digest + count.to_bytes(4, "big")).digest()
        for count in range(-(-len(block) // len(digest)))
    )
    masked = bytearray(a ^ b for a, b in zip(block, mask, strict=False))
    masked[0] &= 0xFF >> (8 * size - bits)
    return bytes(masked) + digest + b"\xbc"


def _factor(modulus: int) -> int:
    """Draw a number below the modulus that can be divided by."""
    while True:
        factor = 1 + secrets.randbelow(modulus - 1)
        if gcd(factor, modulus) == 1:  # no mutant: the other case is never met
            return factor
