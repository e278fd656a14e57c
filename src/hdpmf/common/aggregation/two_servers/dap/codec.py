"""Messages as bytes: TLS's presentation language, as far as DAP uses it.

A message is a frozen dataclass whose annotations are the draft's struct::

    @message
    class Extension(Message):
        extension_type: U16
        extension_data: Opaque16

A struct with a ``select`` has ``cases``: for every tag, which of the optional fields follow it. The
tag is not a field of its own, so that it cannot contradict them.

Reading compares every length with what is there before it takes anything, so memory is bounded by
the size of the input. What is left over at the end is an error. Numbers are big-endian.
"""

from __future__ import annotations

import types
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, fields
from enum import IntEnum
from typing import (
    Annotated,
    Any,
    ClassVar,
    Self,
    TypeVar,
    Union,
    cast,
    dataclass_transform,
    get_args,
    get_origin,
    get_type_hints,
)

from hdpmf.errors import DapError

_Kind = TypeVar("_Kind", bound="type[Message]")
_Member = TypeVar("_Member", bound=IntEnum)


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
class Choice(Codec):
    """One byte that must be a member of an enumeration."""

    kind: type[IntEnum]

    def write(self, value: IntEnum, out: bytearray, what: str) -> None:
        """Append the value."""
        out.append(value)

    def read(self, reader: Reader) -> IntEnum:
        """The next value."""
        return choose(self.kind, reader)


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
    """Messages of one kind after the length of all of them in bytes."""

    width: int
    minimum: int = 0  # of the length: 1 if there must be an item

    item: type[Message] | None = None  # from the annotation

    def write(self, value: tuple[Message, ...], out: bytearray, what: str) -> None:
        """Append the value."""
        start = len(out)
        out += bytes(self.width)
        for item in value:
            item.write(out)
        size = len(out) - start - self.width
        if not self.minimum <= size < 1 << 8 * self.width:
            raise DapError(
                f"{what}: a list has {size} bytes; {self.minimum} to 2^{8 * self.width} - 1 fit"
            )
        out[start : start + self.width] = size.to_bytes(self.width, "big")

    def read(self, reader: Reader) -> tuple[Message, ...]:
        """The next value."""
        if self.item is None:
            raise TypeError("a list's annotation is tuple[Message, ...]")
        inner = Reader(reader.vector(self.width, self.minimum), reader.what)
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
U64 = Annotated[int, Uint(8)]
Opaque16 = Annotated[bytes, Opaque(2)]
Opaque32 = Annotated[bytes, Opaque(4)]


class Message:
    """Base class of messages; see the module's docstring.

    Attributes:
        cases: For each tag of a select, which optional fields follow it.
    """

    __slots__ = ()
    cases: ClassVar[Mapping[IntEnum, tuple[str, ...]]] = {}

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
        always, optional = layout(type(self))
        for name, codec in always:
            codec.write(getattr(self, name), out, type(self).__name__)
        if self.cases:
            tag = self.tag
            out.append(tag)
            for name in self.cases[tag]:
                optional[name].write(getattr(self, name), out, type(self).__name__)

    @classmethod
    def read(cls, reader: Reader) -> Self:
        """Read the message from where the reader is."""
        always, optional = layout(cls)
        values = {name: codec.read(reader) for name, codec in always}
        if cls.cases:
            tag = choose(type(next(iter(cls.cases))), reader)
            if tag not in cls.cases:
                raise DapError(f"{reader.what}: {tag.name} is not for messages")
            values |= {name: optional[name].read(reader) for name in cls.cases[tag]}
        return cls(**values)

    @property
    def tag(self) -> IntEnum:
        """The case of the select, by the fields that are present."""
        there = {name for name in layout(type(self))[1] if getattr(self, name) is not None}
        for tag, names in self.cases.items():
            if there == set(names):
                return tag
        raise DapError(
            f"{type(self).__name__}: these fields do not go together: "
            f"{', '.join(sorted(there)) or 'none'}"
        )

    def __repr__(self) -> str:
        # Shares travel in opaque fields: of those, and of anything else that may be long, only the
        # size is shown.
        always, optional = layout(type(self))
        shown = []
        for name in [*dict(always), *optional]:
            value = getattr(self, name)
            if isinstance(value, bytes):
                value = f"<{len(value)} bytes>"
            elif isinstance(value, tuple):
                value = f"<{len(value)} items>"
            elif isinstance(value, IntEnum):
                value = value.name
            if value is not None:
                shown.append(f"{name}={value}")
        return f"{type(self).__name__}({', '.join(shown)})"


@dataclass_transform(frozen_default=True)
def message(cls: _Kind) -> _Kind:
    """Make a class a message: a frozen dataclass that shows no bytes."""
    return cast(_Kind, dataclass(frozen=True, repr=False)(cls))


_Layout = tuple[list[tuple[str, Codec]], dict[str, Codec]]
_LAYOUTS: dict[type[Message], _Layout] = {}


def choose(kind: type[_Member], reader: Reader) -> _Member:
    """One byte as a member of an enumeration."""
    value = reader.uint(1)
    try:
        return kind(value)
    except ValueError:
        raise DapError(f"{reader.what}: {value} is no {kind.__name__}") from None


def layout(cls: type[Message]) -> _Layout:
    """Return the layout of a message: fixed fields in order, and fields of cases by name."""
    if cls not in _LAYOUTS:
        _LAYOUTS[cls] = _find_layout(cls)
    return _LAYOUTS[cls]


def _find_layout(cls: type[Message]) -> _Layout:
    hints = get_type_hints(cls, include_extras=True)
    codecs = {field.name: _codec(hints[field.name]) for field in fields(cls)}  # type: ignore[arg-type]
    of_cases = {name for names in cls.cases.values() for name in names}
    always = [(name, codec) for name, codec in codecs.items() if name not in of_cases]
    return always, {name: codec for name, codec in codecs.items() if name in of_cases}


def _codec(hint: Any) -> Codec:
    """The codec that an annotation stands for."""
    if get_origin(hint) in (Union, types.UnionType):
        (hint,) = (part for part in get_args(hint) if part is not types.NoneType)
    if get_origin(hint) is Annotated:
        kind, codec = get_args(hint)
        return (
            Items(codec.width, codec.minimum, get_args(kind)[0])
            if isinstance(codec, Items)
            else codec
        )
    return Choice(hint) if issubclass(hint, IntEnum) else Nested(hint)
