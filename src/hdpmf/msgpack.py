"""Reading messages of a peer that is not trusted: bounded, and every failure is an error of ours."""

from __future__ import annotations

from typing import TypeVar

import msgspec

from hdpmf.errors import HdpmfError

M = TypeVar("M")


def read(decoder: msgspec.msgpack.Decoder[M], data: bytes, max_bytes: int, error: type[HdpmfError], what: str) -> M:
    """The message in ``data``.

    Args:
        decoder: Knows which messages there are.
        data: What the peer sent.
        max_bytes: A hostile peer must not be able to fill the memory.
        error: Raised for anything that is not exactly one valid message. An error of this kind that a message's own
            checks raise is passed on as it is.
        what: What the message should have been, for people.
    """
    if len(data) > max_bytes:
        raise error(f"a message of {len(data)} bytes is longer than the limit of {max_bytes}")
    try:
        return decoder.decode(data)
    except msgspec.MsgspecError as trouble:
        cause = trouble.__cause__
        if isinstance(cause, error):
            raise cause from None
        raise error(f"not {what}: {trouble}") from None
    except (UnicodeDecodeError, RecursionError) as trouble:
        # msgspec lets these through as they are; their text would quote the sender's bytes.
        raise error(f"not {what} ({type(trouble).__name__})") from None
