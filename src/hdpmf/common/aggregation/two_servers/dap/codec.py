"""Messages as bytes: TLS's presentation language, as far as DAP uses it.

A message is a frozen dataclass whose annotations are the draft's struct::

    @message
    class ReportMetadata(Message):
        report_id: Annotated[bytes, Fixed(16)]
        time: U64

Reading compares every length with what is there before it takes anything, so memory is bounded by
the size of the input. What is left over at the end is an error. Numbers are big-endian.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field, fields
from typing import (
    Annotated,
    Any,
    Self,
    TypeVar,
    cast,
    dataclass_transform,
    get_args,
    get_origin,
    get_type_hints,
)

from hdpmf.errors import DapError

_Kind = TypeVar("_Kind", bound="type[Message]")


class Reader:
    """A cursor over received bytes of the message ``what``."""

    __slots__ = ("_data", "_end", "_offset", "what")

    def __init__(self, data: bytes | memoryview, what: str) -> None:
        self._data = memoryview(data)
        self._offset = 0
        self._end = len(self._data)
        self.what = what

    @property
    def remaining(self) -> int:
        """Bytes that are not read yet."""
        return self._end - self._offset

    def take(self, size: int) -> memoryview:
        """Return the next bytes, without copying."""
        if size > self.remaining:
            raise DapError(
                f"{self.what}: {size} bytes were announced and {self.remaining} are left; the "
                "message was cut"
            )
        self._offset += size
        return self._data[self._offset - size : self._offset]

    def uint(self, width: int) -> int:
        """Read a number of this many bytes."""
        return int.from_bytes(self.take(width), "big")

    def vector(self, width: int, minimum: int = 0) -> memoryview:
        """Bytes after their length, which is a number of ``width`` bytes."""
        size = self.uint(width)
        if size < minimum:
            raise DapError(f"{self.what}: a field that must not be empty is")
        return self.take(size)

    def finish(self) -> None:
        """Raise an error if anything is left."""
        if self.remaining:
            raise DapError(f"{self.what}: {self.remaining} bytes too many at its end")


class Codec(ABC):
    """The codec of one field."""

    @abstractmethod
    def write(self, value: Any, out: bytearray, what: str) -> None:
        """Append a value; raise DapError if it does not fit."""

    @abstractmethod
    def read(self, reader: Reader) -> Any:
        """The next value."""


@dataclass(frozen=True)
class Uint(Codec):
    """A number of ``width`` bytes."""

    width: int

    def write(self, value: int, out: bytearray, what: str) -> None:
        """Append the value."""
        if not 0 <= value < 1 << 8 * self.width:
            raise DapError(f"{what}: a number is not within 0 and 2^{8 * self.width} - 1")
        out += value.to_bytes(self.width, "big")

    def read(self, reader: Reader) -> int:
        """The next value."""
        return reader.uint(self.width)


@dataclass(frozen=True)
class Constant(Codec):
    """The same bytes in every message: of a field that is not an argument."""

    data: bytes

    def write(self, value: bytes, out: bytearray, what: str) -> None:
        """Append the bytes."""
        out += self.data

    def read(self, reader: Reader) -> bytes:
        """Take the bytes; raise DapError if they are others."""
        if reader.take(len(self.data)) != self.data:
            raise DapError(
                f"{reader.what}: of a kind or with extensions that are not for batches of time and "
                "Prio3"
            )
        return self.data


@dataclass(frozen=True)
class Fixed(Codec):
    """Exactly ``size`` bytes."""

    size: int

    def write(self, value: bytes, out: bytearray, what: str) -> None:
        """Append the value."""
        if len(value) != self.size:
            raise DapError(f"{what}: a field of {self.size} bytes has {len(value)}")
        out += value

    def read(self, reader: Reader) -> bytes:
        """The next value."""
        return bytes(reader.take(self.size))


@dataclass(frozen=True)
class Opaque(Codec):
    """Bytes after their length, which is a number of ``width`` bytes."""

    width: int
    minimum: int = 0

    def write(self, value: bytes, out: bytearray, what: str) -> None:
        """Append the value."""
        if not self.minimum <= len(value) < 1 << 8 * self.width:
            raise DapError(
                f"{what}: a field has {len(value)} bytes; {self.minimum} to 2^{8 * self.width} - 1 "
                "fit"
            )
        out += len(value).to_bytes(self.width, "big")
        out += value

    def read(self, reader: Reader) -> bytes:
        """The next value."""
        return bytes(reader.vector(self.width, self.minimum))


@dataclass(frozen=True)
class Items(Codec):
    """Messages of one kind after the length of all of them in bytes, or up to a message's end."""

    width: int  # of that length; 0: none, all that is left are items
    minimum: int = 0  # of the length: 1 if there must be an item

    item: type[Message] | None = None  # from the annotation

    def write(self, value: tuple[Message, ...], out: bytearray, what: str) -> None:
        """Append the value."""
        start = len(out)
        out += bytes(self.width)
        for item in value:
            item.write(out)
        size = len(out) - start - self.width
        if not self.minimum <= size < 1 << 8 * (self.width or 8):
            raise DapError(
                f"{what}: a list has {size} bytes; {self.minimum} to 2^{8 * self.width} - 1 fit"
            )
        if self.width:
            out[start : start + self.width] = size.to_bytes(self.width, "big")

    def read(self, reader: Reader) -> tuple[Message, ...]:
        """The next value."""
        if self.item is None:
            raise TypeError("a list's annotation is tuple[Message, ...]")
        inner = reader
        if self.width:
            inner = Reader(reader.vector(self.width, self.minimum), reader.what)
        elif reader.remaining < self.minimum:
            raise DapError(f"{reader.what}: a field that must not be empty is")
        items = []
        while inner.remaining > 0:
            items.append(self.item.read(inner))
        return tuple(items)


@dataclass(frozen=True)
class Nested(Codec):
    """A nested message."""

    kind: type[Message]

    def write(self, value: Message, out: bytearray, what: str) -> None:
        """Append the value."""
        value.write(out)

    def read(self, reader: Reader) -> Message:
        """The next value."""
        return self.kind.read(reader)


U8 = Annotated[int, Uint(1)]
U16 = Annotated[int, Uint(2)]
U32 = Annotated[int, Uint(4)]
U64 = Annotated[int, Uint(8)]
Opaque32 = Annotated[bytes, Opaque(4)]


class Message:
    """Base class of messages; see the module's docstring."""

    __slots__ = ()

    def encode(self) -> bytes:
        """Encode the message; raise DapError if a field does not fit."""
        out = bytearray()
        self.write(out)
        return bytes(out)

    @classmethod
    def decode(cls, data: bytes | memoryview) -> Self:
        """Decode all the bytes; raise DapError if they are not this message."""
        reader = Reader(data, cls.__name__)
        result = cls.read(reader)
        reader.finish()
        return result

    def write(self, out: bytearray) -> None:
        """Append the message to other bytes."""
        for name, codec in layout(type(self)).items():
            codec.write(getattr(self, name), out, type(self).__name__)

    @classmethod
    def read(cls, reader: Reader) -> Self:
        """Read the message from where the reader is."""
        values = {}
        for name, codec in layout(cls).items():
            value = codec.read(reader)
            if not isinstance(codec, Constant):
                values[name] = value
        return cls(**values)

    def __repr__(self) -> str:
        # Shares travel in opaque fields: of those, and of anything else that may be long, only the
        # size is shown.
        shown = []
        for name in layout(type(self)):
            value = getattr(self, name)
            if isinstance(value, bytes):
                value = f"<{len(value)} bytes>"
            elif isinstance(value, tuple):
                value = f"<{len(value)} items>"
            shown.append(f"{name}={value}")
        return f"{type(self).__name__}({', '.join(shown)})"


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def message(cls: _Kind) -> _Kind:
    """Make a class a message: a frozen dataclass that shows no bytes."""
    return cast(_Kind, dataclass(frozen=True, repr=False)(cls))


_LAYOUTS: dict[type[Message], dict[str, Codec]] = {}


def layout(cls: type[Message]) -> dict[str, Codec]:
    """Return the codec of each field of a message, in order."""
    if cls not in _LAYOUTS:
        hints = get_type_hints(cls, include_extras=True)
        _LAYOUTS[cls] = {each.name: _codec(hints[each.name]) for each in fields(cls)}  # type: ignore[arg-type]
    return _LAYOUTS[cls]


def _codec(hint: Any) -> Codec:
    """The codec that an annotation stands for."""
    if get_origin(hint) is not Annotated:
        return Nested(hint)
    kind, codec = get_args(hint)
    if isinstance(codec, Items):
        return Items(codec.width, codec.minimum, get_args(kind)[0])
    return cast(Codec, codec)
