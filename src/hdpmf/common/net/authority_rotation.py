"""Rotation of a recommender's TLS authority: the old one signs its successor while it is valid.

Devices that trust the old authority learn the new one from a message that counts only with a
signature by the old key, so nobody else can introduce an authority. Until the change-over,
certificates come from the old one. Devices that did not call meanwhile need their owner's word
(``hdpmf device join --new-authority``).
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from hdpmf.common.base.files import atomic_write, read_file
from hdpmf.common.net.certificates import (
    Certificates,
    ensure_certificates,
    issuer_key,
    make_authority,
    read_authorities,
)
from hdpmf.errors import ConfigError, ProtocolError, needs

with needs("cryptography"):
    from cryptography import x509
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ec import ECDSA, EllipticCurvePublicKey
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.serialization import Encoding

MAX_AUTHORITY_MESSAGE = 16 * 1024
"""Bytes of what devices are told."""

_TEXT = b"hdpmf authority 1"  # nothing else that an authority signs begins so
_PREDECESSOR = "predecessor.pem"


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


def successor_of(folder: Path) -> Path | None:
    """The certificate that was announced; None if none is."""
    path = folder / "successor.pem"
    return path if (folder / "successor.signature").exists() and path.exists() else None


def announce(folder: Path) -> Path:
    """Make a new authority, sign it with the one in ``folder``, and return its certificate.

    Raises:
        ConfigError: No authority can sign, or one is announced already.
    """
    if successor_of(folder) is not None:
        raise ConfigError(
            "a new authority is announced already; when devices have learned it, change over: "
            "hdpmf recommender certificates FOLDER --change-over"
        )
    paths = _paths(folder)
    key = issuer_key(paths)
    now = read_file(paths.authority)
    made = make_authority(folder / "successor.pem", folder / "successor.key")
    signature = key.sign(_signed(now, made), ECDSA(SHA256()))
    # Last: with it, it is announced.
    atomic_write(folder / "successor.signature", signature, mode=0o644)
    return folder / "successor.pem"


def change_over(folder: Path, hosts: list[str]) -> None:
    """Replace the authority by the announced one and delete the old key; safe to repeat.

    Raises:
        ConfigError: None is announced.
    """
    if successor_of(folder) is None:
        raise ConfigError(
            "no new authority is announced: hdpmf recommender certificates FOLDER "
            "--new-authority first"
        )
    paths = _paths(folder)
    if read_file(paths.authority) != read_file(folder / "successor.pem"):
        atomic_write(folder / _PREDECESSOR, read_file(paths.authority), mode=0o644)
    for old, new, mode in ((paths.authority_key, "key", 0o600), (paths.authority, "pem", 0o644)):
        atomic_write(old, read_file(folder / f"successor.{new}"), mode=mode)
    # Issues a server's certificate, since the old one is from another authority.
    ensure_certificates(folder, hosts)
    for name in ("signature", "pem", "key"):
        (folder / f"successor.{name}").unlink(missing_ok=True)


def names_of(folder: Path) -> list[bytes]:
    """Return the certificates that devices may know the recommender by, old ones included."""
    paths = (folder / "authority.pem", folder / _PREDECESSOR)
    return [read_file(path) for path in paths if path.exists()]


def authority_message(folder: Path) -> bytes:
    """Return the encoded message to devices about the authorities in ``folder``."""
    authority = read_file(folder / "authority.pem").decode("ascii", "replace")
    successor = successor_of(folder)
    if successor is None:
        return msgspec.msgpack.encode(AuthorityMessage(authority))
    signature = read_file(folder / "successor.signature")
    return msgspec.msgpack.encode(
        AuthorityMessage(authority, read_file(successor).decode("ascii", "replace"), signature)
    )


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


def primary_authority(pinned: bytes) -> bytes:
    """By which of the authorities that a device trusts it calls the recommender (PEM)."""
    found = read_authorities(pinned)
    return pinned if len(found) == 1 else _pem(found[0])


def _check(now: x509.Certificate, message: AuthorityMessage) -> None:
    key = now.public_key()
    text = _signed(message.authority.encode(), message.successor.encode())
    try:
        if not isinstance(key, EllipticCurvePublicKey):
            raise InvalidSignature
        key.verify(message.signature, text, ECDSA(SHA256()))
    except InvalidSignature:
        raise ProtocolError(
            "refused: a new authority came in the recommender's name, and the pinned one "
            "has not signed it. Its owner could speak as your recommender; it is not trusted"
        ) from None


def _signed(now: bytes, successor: bytes) -> bytes:
    return b"\n".join((_TEXT, successor, now))


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(Encoding.PEM)


def _same(first: bytes, second: bytes) -> bool:
    """But for white space."""
    return first.split() == second.split()


def _paths(folder: Path) -> Certificates:
    return Certificates(
        *(folder / name for name in ("authority.pem", "server.pem", "server.key", "authority.key"))
    )
