"""A recommender's TLS authority, and its successor, which the old one signs while it is valid.

Devices that trust the old authority learn the new one from a message that counts only with a
signature by the old key, so nobody else can introduce an authority.
"""

from __future__ import annotations

import datetime

import msgspec

from hdpmf.errors import ConfigError, ProtocolError, needs

with needs("cryptography"):
    from cryptography import x509
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ec import ECDSA, EllipticCurvePublicKey
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.serialization import Encoding

MAX_AUTHORITY_MESSAGE = 16 * 1024
"""Bytes of what devices are told."""

_NO_EXTENSION = (x509.ExtensionNotFound, x509.DuplicateExtension, x509.UnsupportedGeneralNameType)

_TEXT = b"hdpmf authority 1"  # nothing else that an authority signs begins so


class AuthorityMessage(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A recommender's message to devices about its authorities.

    Attributes:
        authority: The issuer of its certificates (PEM).
        successor: The announced next one (PEM); empty if none.
        signature: Of both, by the authority's key.
    """

    authority: str
    successor: str = ""
    signature: bytes = b""


def read_authorities(data: bytes) -> list[x509.Certificate]:
    """All certificates in ``data``; ConfigError unless each is one of an authority."""
    try:
        found = x509.load_pem_x509_certificates(data)
        constraints = [
            each.extensions.get_extension_for_class(x509.BasicConstraints).value for each in found
        ]
    except (ValueError, *_NO_EXTENSION):
        raise ConfigError("this is not a certificate of an authority (PEM)") from None
    if not all(each.ca for each in constraints):
        raise ConfigError(
            "this is not a certificate of an authority; the recommender's authority.pem is wanted"
        )
    return found


def check_authority(data: bytes, where: str = "the authority's certificate") -> x509.Certificate:
    """Return the last authority in ``data`` that is valid now; ConfigError if none is."""
    try:
        found = read_authorities(data)
    except ConfigError as error:
        raise ConfigError(str(error).replace("this", where, 1)) from None
    now = _now()
    valid = [each for each in found if each.not_valid_before_utc <= now <= each.not_valid_after_utc]
    if valid:
        return valid[-1]
    if found[-1].not_valid_before_utc > now:
        begins = found[-1].not_valid_before_utc.date()
        raise ConfigError(f"{where} is not valid before {begins}: is this machine's clock wrong?")
    ended = found[-1].not_valid_after_utc.date()
    raise ConfigError(f"{where} ended on {ended}: make a new one and give it to every device again")


def learn(pinned: bytes, data: bytes) -> bytes:
    """Return the PEM that a device trusts from now on, given what it trusts and the message.

    A signed successor is added; a predecessor that was followed is dropped.

    Raises:
        ProtocolError: The message is malformed, or no pinned authority signed the successor.
    """
    if len(data) > MAX_AUTHORITY_MESSAGE:
        raise ProtocolError("refused: what the recommender tells about its authorities is too long")
    try:
        message = msgspec.msgpack.decode(data, type=AuthorityMessage)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        raise ProtocolError(
            "refused: the recommender's statement about its authorities is malformed"
        ) from None
    now = next(
        (
            each
            for each in read_authorities(pinned)
            if _same(_pem(each), message.authority.encode())
        ),
        None,
    )
    if now is None:
        return pinned  # somebody else's certificates lead here, such as a web server's in front
    if not message.successor:
        return _pem(now)
    _check(now, message)  # before anything of the successor is read
    return _pem(now) + _pem(read_authorities(message.successor.encode())[0])


def _check(now: x509.Certificate, message: AuthorityMessage) -> None:
    key = now.public_key()
    text = signed_text(message.authority.encode(), message.successor.encode())
    try:
        if not isinstance(key, EllipticCurvePublicKey):
            raise InvalidSignature
        key.verify(message.signature, text, ECDSA(SHA256()))
    except InvalidSignature:
        raise ProtocolError(
            "refused: a new authority came in the recommender's name, and the pinned one "
            "has not signed it. Its owner could speak as your recommender; it is not trusted"
        ) from None


def signed_text(now: bytes, successor: bytes) -> bytes:
    """Return what an authority signs of its successor."""
    return b"\n".join((_TEXT, successor, now))


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(Encoding.PEM)


def _same(first: bytes, second: bytes) -> bool:
    """But for white space."""
    return first.split() == second.split()


def _now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)
