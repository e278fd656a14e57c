"""Bounded decoding of MessagePack from an untrusted peer; every failure is one of our errors.

Arrays are (dtype, shape, raw little-endian data).
"""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec
import numpy as np

from hdpmf.errors import HdpmfError, ProtocolError

M = TypeVar("M")

_FREE = 64 << 20  # bytes of memory that any message may take
# And how many times its length; texts in lists of lists, as in a catalogue, take ten times.
_TIMES = 16
_MOST = 2 << 30
_LARGEST = 80  # bytes of memory that a byte on the wire can become

# By the first byte of a value: how many bytes of length follow, how many bytes follow anyway, and
# what it is.
_FIXED = {
    0xC0: 0,
    0xC2: 0,
    0xC3: 0,
    0xCA: 4,
    0xCB: 8,
    0xCC: 1,
    0xCD: 2,
    0xCE: 4,
    0xCF: 8,
    0xD0: 1,
    0xD1: 2,
    0xD2: 4,
}
_FIXED |= {0xD3: 8, 0xD4: 2, 0xD5: 3, 0xD6: 5, 0xD7: 9, 0xD8: 17}
_BYTES = {0xC4: 1, 0xC5: 2, 0xC6: 4, 0xC7: 1, 0xC8: 2, 0xC9: 4, 0xD9: 1, 0xDA: 2, 0xDB: 4}
_LISTS = {0xDC: (2, 1), 0xDD: (4, 1), 0xDE: (2, 2), 0xDF: (4, 2)}


def read(
    decoder: msgspec.msgpack.Decoder[M],
    data: bytes,
    max_bytes: int,
    error: type[HdpmfError],
    what: str,
) -> M:
    """The message in ``data``.

    Args:
        decoder: Knows which messages there are.
        data: What the peer sent.
        max_bytes: A hostile peer must not be able to fill the memory.
        error: Raised for anything that is not exactly one valid message. An error of this kind that
            a message's own checks raise is passed on as it is.
        what: What the message should have been, for people.
    """
    if len(data) > max_bytes:
        raise error(f"a message of {len(data)} bytes is longer than the limit of {max_bytes}")
    if not fits_in_memory(data):
        raise error(
            f"a message of {len(data)} bytes would take too much memory: it is cut into "
            "very small pieces"
        )
    try:
        return decoder.decode(data)
    except msgspec.MsgspecError as trouble:
        cause = trouble.__cause__
        if isinstance(cause, error):
            raise cause from None
        raise error(f"not {what}: {trouble}") from None
    except error:
        raise
    except HdpmfError as trouble:  # of a value that files have, too, whose checks have their own
        raise error(f"not {what}: {trouble}") from None
    except (UnicodeDecodeError, RecursionError) as trouble:
        # msgspec lets these through as they are; their text would quote the sender's bytes.
        raise error(f"not {what} ({type(trouble).__name__})") from None


def fits_in_memory(data: bytes) -> bool:
    """Check that a message, decoded, takes no more memory than is fair for its length.

    A list of empty lists takes 64 bytes for each byte of it. So the heads of all values are looked
    at before anything is made of them; what they carry (arrays, texts) is skipped.
    """
    if len(data) * _LARGEST <= _FREE:
        return True
    budget = min(max(_FREE, _TIMES * len(data)), _MOST)
    offset, end = 0, len(data)
    while offset < end:
        head = data[offset]
        offset += 1
        if head < 0x80 or head >= 0xE0 or (skip := _FIXED.get(head)) is not None:
            if 0x80 <= head < 0xE0:
                offset += skip or 0
            budget -= 40
        elif head < 0xA0:  # a short map or list
            budget -= 64 + 8 * (head & 0x0F) * (16 if head < 0x90 else 1)
        elif head < 0xC0:
            size = head & 0x1F
            offset += size
            budget -= 58 + 2 * size
        elif (width := _BYTES.get(head)) is not None:
            size = int.from_bytes(data[offset : offset + width], "big")
            offset += width + size
            budget -= 58 + (size if head < 0xC7 else 2 * size)
        elif (wide := _LISTS.get(head)) is not None:
            count = int.from_bytes(data[offset : offset + wide[0]], "big") * wide[1]
            offset += wide[0]
            budget -= 64 + 8 * count * (8 if wide[1] == 2 else 1)
        if budget < 0:
            return False
    return True


_DTYPES: dict[str, np.dtype[Any]] = {
    name: np.dtype(f"<{name}") for name in ("f2", "f4", "i8", "i1", "i4", "u2", "u4")
}


def array_to_plain(value: Any) -> Any:
    """Encode an array; what else msgspec asks for is refused."""
    if isinstance(value, np.ndarray):
        name = next((name for name, dtype in _DTYPES.items() if dtype == value.dtype), None)
        if name is None:
            raise ProtocolError(f"arrays of {value.dtype} cannot be sent; {', '.join(_DTYPES)} can")
        return {
            "dtype": name,
            "shape": list(value.shape),
            "data": value.astype(_DTYPES[name]).tobytes(),
        }
    raise ProtocolError(f"a {type(value).__name__} cannot be sent")


def array_from_plain(kind: type, value: Any) -> Any:
    """Decode an array, checked."""
    if kind is not np.ndarray:
        raise ProtocolError(f"a {kind.__name__} cannot be received")
    try:
        dtype = _DTYPES[value["dtype"]]
        shape = tuple(value["shape"])
        data = value["data"]
        if len(value) != 3 or len(shape) > 2 or not all(type(n) is int and n >= 0 for n in shape):
            raise ValueError
        return np.frombuffer(data, dtype).reshape(shape)
    except (KeyError, TypeError, ValueError):
        # The chain is cut: a foreign traceback would only show the sender's bytes.
        raise ProtocolError(
            "an array in the message does not have the form {dtype, shape, data}"
        ) from None
