r"""Documents of the wire: canonical JSON, ids, labelled digests, and arrays as files beside them.

A document is a JSON object in the canonical form of RFC 8785, with its ``type`` and ``version``.
Bytes that are another spelling of the same object are refused, so that a document has one digest.
Bytes within a document (ids, keys, digests, signatures) are base64url without padding. What is
hashed for an id or a signature is ``SHA-256("hdpmf 2 LABEL\n" + document)``: no document can be
taken for one of another label. A signature is Ed25519's, of that digest.

Arrays are files of their own: numbers one after the other, little-endian, row by row. A document
says their type, shape and SHA-256.
"""

from __future__ import annotations

import binascii
import json
import math
from base64 import urlsafe_b64decode, urlsafe_b64encode
from decimal import Decimal
from hashlib import sha256
from typing import Annotated, Any, Literal, TypeVar

import msgspec
import numpy as np
from msgspec import Meta

from hdpmf.common.base.threads import decodable
from hdpmf.errors import HdpmfError, ProtocolError

VERSION = 2

DIGEST_SIZE = 32
RUN_SIZE = 16
SIGNATURE_SIZE = 64

MAX_DOCUMENT = 64 << 20
"""Bytes of a document, at most."""

_LARGEST = (1 << 53) - 1
"""Beyond it RFC 8785 has no whole numbers."""

Whole = Annotated[int, Meta(ge=0, le=_LARGEST)]
Text = Annotated[str, Meta(max_length=1 << 16)]

D = TypeVar("D", bound=msgspec.Struct)


class Document(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, tag_field="type"
):
    """Common manners: unknown fields are refused, and so is another version."""

    version: int = VERSION

    def __post_init__(self) -> None:
        self._require(
            self.version == VERSION,
            f"it is of version {self.version}, and this side speaks {VERSION}; bring both sides to "
            "the same release of hdpmf",
        )
        self._check()

    def _check(self) -> None:
        """Raise ProtocolError where a field cannot be right."""

    def _require(self, condition: bool, what: str) -> None:
        if not condition:
            raise ProtocolError(f"{type(self).__name__} refused: {what}")

    def to_bytes(self) -> bytes:
        """Encode it."""
        return canonical(self)


def read_document(kind: type[D], data: bytes, what: str, most: int = MAX_DOCUMENT) -> D:
    """Return the document in ``data``.

    Args:
        what: What it should have been, for people.
        most: Longest that it may be, in bytes.

    Raises:
        ProtocolError: It is no such document, or is not in canonical form.
    """
    if len(data) > most:
        raise ProtocolError(f"not {what}: it has {len(data):,} bytes, and {most:,} are the most")
    try:
        document = msgspec.json.decode(data, type=decodable(kind))
        same = canonical(document) == data
    except ProtocolError:
        raise
    except msgspec.MsgspecError as error:
        if isinstance(error.__cause__, ProtocolError):
            raise error.__cause__ from None
        raise ProtocolError(f"not {what}: {error}") from None
    except (HdpmfError, UnicodeError, RecursionError) as error:
        # The text of the latter two would quote the sender's bytes.
        words = str(error) if isinstance(error, HdpmfError) else type(error).__name__
        raise ProtocolError(f"not {what}: {words}") from None
    if not same:
        raise ProtocolError(f"not {what}: it is not in the canonical form of RFC 8785")
    return document


def canonical(value: Any) -> bytes:
    """Return the canonical JSON (RFC 8785) of a document, or of a part of one."""
    return _json(msgspec.to_builtins(value)).encode()


def _json(value: Any) -> str:
    if isinstance(value, dict):
        names = sorted(value, key=lambda name: name.encode("utf-16-be"))
        return "{" + ",".join(f"{_json(name)}:{_json(value[name])}" for name in names) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ",".join(map(_json, value)) + "]"
    if isinstance(value, float):
        return _number(value)
    if isinstance(value, int) and abs(value) > _LARGEST:
        raise ProtocolError("a document has no whole numbers beyond 2^53")
    return json.dumps(value, ensure_ascii=False)


def _number(value: float) -> str:
    """Write a number as ECMAScript does: the shortest digits that give it back."""
    if not math.isfinite(value):
        raise ProtocolError("a document has finite numbers only")
    if value == 0:
        return "0"
    sign, digits, _ = (plain := Decimal(repr(value)).normalize()).as_tuple()
    text, point = "".join(map(str, digits)), plain.adjusted() + 1
    if len(text) <= point <= 21:
        text = text.ljust(point, "0")
    elif 0 < point <= 21:
        text = f"{text[:point]}.{text[point:]}"
    elif -6 < point <= 0:
        text = f"0.{text.rjust(len(text) - point, '0')}"
    else:
        rest = f".{text[1:]}" if len(text) > 1 else ""
        text = f"{text[0]}{rest}e{point - 1:+d}"
    return "-" * sign + text


def to_base64(data: bytes) -> str:
    """Return bytes as documents and addresses spell them: base64url without padding."""
    return urlsafe_b64encode(data).rstrip(b"=").decode()


def from_base64(text: str, size: int | None = None) -> bytes:
    """Return the bytes that ``to_base64`` spelled, of this size; ProtocolError if it did not."""
    try:
        data = urlsafe_b64decode(text.encode("ascii") + b"=" * (-len(text) % 4))
    except (binascii.Error, ValueError):
        data = b""
    if to_base64(data) != text or (size is not None and len(data) != size):
        wanted = "bytes" if size is None else f"{size} bytes"
        raise ProtocolError(f"refused: {text[:64]!r} is not {wanted} in base64url without padding")
    return data


def labelled_digest(label: str, data: bytes) -> bytes:
    """Return the digest for an id or a signature: of what it is for, and the document."""
    return sha256(f"hdpmf {VERSION} {label}\n".encode() + data).digest()


def compared(label: str, value: Any) -> str:
    """Return what people compare of something: half a labelled digest, in groups of four digits."""
    plain = labelled_digest(label, canonical(value)).hex()[:32]
    return " ".join(plain[at : at + 4] for at in range(0, len(plain), 4))


def file_digest(data: bytes) -> str:
    """Return the SHA-256 of a file, as documents spell it."""
    return to_base64(sha256(data).digest())


class Array(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """An array in a file beside a document.

    Attributes:
        kind: Type of its numbers, as NumPy names it: ``f4`` is a float of 32 bits, ``u2`` a whole
            number from 0 to 65,535.
        shape: One or two lengths.
        sha256: Of the file.
    """

    kind: Literal["f2", "f4", "u2", "u4", "i1", "i8"]
    shape: Annotated[tuple[Whole, ...], Meta(min_length=1, max_length=2)]
    sha256: Text

    def __post_init__(self) -> None:
        from_base64(self.sha256, DIGEST_SIZE)

    @property
    def size(self) -> int:
        """Bytes of the file."""
        return math.prod(self.shape) * np.dtype(self.kind).itemsize

    @classmethod
    def of(cls, array: np.ndarray) -> tuple[Array, bytes]:
        """Return what a document says of an array, and its file."""
        kind = np.dtype(array.dtype).newbyteorder("<")
        data = np.ascontiguousarray(array, kind).tobytes()
        plain: Any = kind.str[1:]
        return cls(kind=plain, shape=array.shape, sha256=file_digest(data)), data

    def read(self, data: bytes) -> np.ndarray:
        """Return the array in a file; ProtocolError unless it is this one, of finite numbers."""
        if len(data) != self.size or file_digest(data) != self.sha256:
            raise ProtocolError("a file is not the array that its document names; fetch it again")
        array = np.frombuffer(data, f"<{self.kind}").reshape(self.shape)
        if not bool(np.isfinite(array).all()):
            raise ProtocolError("an array has a number that is not finite")
        return array
