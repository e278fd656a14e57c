"""Looking over a Parquet file before it is decoded.

The decoder believes what a file says about itself: a damaged page header that announces a negative
number of values makes it ask for 2^61 bytes and end the whole process, which no ``except`` can
catch. So the numbers that it allocates by are read here first. Structure only: no values are
decoded.

The numbers are in Thrift's compact protocol: https://parquet.apache.org/docs/file-format/metadata/
"""

from __future__ import annotations

from typing import Any

_MAGIC = b"PAR1"
_MAX_ROWS = 2**31 - 1
_MAX_PAGE = 1 << 30
_MAX_DEPTH = 16
_TRUE, _FALSE, _BYTE, _SHORT, _INT, _LONG, _DOUBLE, _BINARY, _LIST, _SET, _MAP, _STRUCT = range(
    1, 13
)
# The fields we look at, by their numbers in parquet.thrift.
_FILE_ROWS, _FILE_GROUPS = 3, 4
_GROUP_COLUMNS, _GROUP_ROWS = 1, 3
_CHUNK_META = 3
_META_VALUES, _META_DATA_OFFSET, _META_DICTIONARY_OFFSET = 5, 9, 11
_PAGE_KIND, _PAGE_UNPACKED, _PAGE_PACKED = 1, 2, 3
# Where each kind of page keeps its header: data, dictionary, data version 2.
_PAGE_HEADER = {0: 5, 2: 7, 3: 8}
_DICTIONARY = 2


def is_sound(data: bytes) -> bool:
    """Tell whether sizes and counts in the file fit the file and each other."""
    if len(data) < 12 or data[:4] != _MAGIC or data[-4:] != _MAGIC:
        return False
    length = int.from_bytes(data[-8:-4], "little")
    if length > len(data) - 12:
        return False
    try:
        meta = _Compact(data, len(data) - 8 - length).struct()
        return _sound_groups(data, meta)
    except (IndexError, KeyError, TypeError, ValueError, AttributeError):
        return False  # a field is missing, or is not what it should be


def _sound_groups(data: bytes, meta: dict[int, Any]) -> bool:
    rows = 0
    for group in meta[_FILE_GROUPS]:
        for chunk in group[_GROUP_COLUMNS]:
            if not _sound_pages(data, chunk[_CHUNK_META]):
                return False
        if not 0 <= group[_GROUP_ROWS] <= _MAX_ROWS:
            return False
        rows += group[_GROUP_ROWS]
    return bool(rows == meta[_FILE_ROWS] <= _MAX_ROWS)


def _sound_pages(data: bytes, meta: dict[int, Any]) -> bool:
    values, offset = meta[_META_VALUES], meta[_META_DATA_OFFSET]
    dictionary = meta.get(_META_DICTIONARY_OFFSET, 0)
    if 0 < dictionary < offset:  # some writers say 0 where there is none
        offset = dictionary
    if not 0 <= values <= _MAX_ROWS:
        return False
    seen = 0
    while seen < values:
        if not len(_MAGIC) <= offset < len(data):
            return False
        reader = _Compact(data, offset)
        page = reader.struct()
        kind, packed, unpacked = page[_PAGE_KIND], page[_PAGE_PACKED], page[_PAGE_UNPACKED]
        # Every number in the page's own header is a count or a length.
        own = page[_PAGE_HEADER[kind]]
        numbers = [number for number in own.values() if type(number) is int]
        if min(numbers) < 0 or max(numbers) > _MAX_ROWS:
            return False
        if not (0 <= unpacked <= _MAX_PAGE and 0 <= packed <= len(data) - reader.offset):
            return False
        seen += 0 if kind == _DICTIONARY else own[1]
        offset = reader.offset + packed
    return bool(seen == values)


class _Compact:
    """A reader of Thrift's compact protocol; structs become dictionaries by field number."""

    def __init__(self, data: bytes, offset: int) -> None:
        self._data = data
        self.offset = offset

    def struct(self, depth: int = 0) -> dict[int, Any]:
        """Read a struct up to its end."""
        if depth > _MAX_DEPTH:
            raise ValueError("nested too deeply")
        fields: dict[int, Any] = {}
        number = 0
        while header := self._byte():
            number = number + (header >> 4) if header >> 4 else self._signed()
            fields[number] = self._value(header & 15, depth)
        return fields

    def _value(self, kind: int, depth: int) -> Any:
        if kind in (_TRUE, _FALSE):
            return kind == _TRUE
        if kind == _BYTE:
            return self._byte()
        if kind in (_SHORT, _INT, _LONG):
            return self._signed()
        if kind in (_DOUBLE, _BINARY):
            return self._skip(8 if kind == _DOUBLE else self._unsigned())
        if kind in (_LIST, _SET):
            return self._list(depth)
        if kind == _STRUCT:
            return self.struct(depth + 1)
        raise ValueError("no such type in Parquet")  # it has no maps either

    def _list(self, depth: int) -> list[Any]:
        header = self._byte()
        size = self._unsigned() if header >> 4 == 15 else header >> 4
        kind = header & 15
        if size > len(self._data):  # each element takes a byte or more
            raise ValueError("list longer than the file")
        return [
            self._byte() == _TRUE if kind in (_TRUE, _FALSE) else self._value(kind, depth)
            for _ in range(size)
        ]

    def _byte(self) -> int:
        self.offset += 1
        return self._data[self.offset - 1]

    def _skip(self, size: int) -> None:
        if size > len(self._data) - self.offset:
            raise ValueError("text longer than the file")
        self.offset += size

    def _unsigned(self) -> int:
        value = shift = 0
        while True:
            byte = self._byte()
            value |= (byte & 127) << shift
            if byte < 128:
                return value
            shift += 7
            if shift > 63:
                raise ValueError("number longer than 64 bits")

    def _signed(self) -> int:
        value = self._unsigned()
        return (value >> 1) ^ -(value & 1)
