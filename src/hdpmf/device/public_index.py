"""What a recommender publishes for devices: an index, and files named by their digests. It is all its word."""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256
from typing import Protocol

import msgspec

from hdpmf.errors import ProtocolError
from hdpmf.protocol.servers import Server

INDEX = "index.json"
MOST_INDEX = 16 * 1024
"""Bytes of an index."""

_FREE, _PER_ITEM = 1 << 21, 4096
MOST_CATALOGUE = 64 << 20
"""Bytes of an item table, which says itself how many items there are."""


class Door(Protocol):
    """How a device reaches the recommender's files, and the leader. Whoever answers may be lying."""

    def fetch(self, name: str, most: int, etag: str = "") -> tuple[bytes, str] | None:
        """A file of the recommender and its ETag; None where it still has this one.

        Raises:
            TransportError: It is not there, cannot be reached, is longer than ``most``, or took too long.
        """

    def upload(
        self, leader: Server, path: str, headers: dict[str, str], body: bytes, leaving: Callable[[], None]
    ) -> int:
        """Put a report to the leader; the status of its answer.

        ``leaving`` is called when the connection is open, before anything of the report is given to it.

        Raises:
            TransportError: It cannot be reached, or did not answer.
        """


class PublicFile(msgspec.Struct, frozen=True):
    """A file that the index names.

    Attributes:
        sha256: Of what is in it.
        run: Of facts: the run that they came from.
    """

    sha256: str
    run: str = ""

    def __post_init__(self) -> None:
        if not (_is_hex(self.sha256, 64) and (not self.run or _is_hex(self.run, len(self.run)))):
            raise ValueError("a digest or a run is none")
        if len(self.run) > 64:
            raise ValueError("a run has at most 64 digits")


class PublicTask(msgspec.Struct, frozen=True):
    """The task that the index names, by its id in hexadecimal."""

    id: str

    def __post_init__(self) -> None:
        if not _is_hex(self.id, 64):
            raise ValueError("the id of a task is none")


class PublicIndex(msgspec.Struct, frozen=True):
    """What there is now.

    Attributes:
        catalogue: The item table.
        task: What two servers are asked to sum.
        model: Item facts.
        lists: A model for lists.
        authority: What the recommender tells about its authorities.
    """

    catalogue: PublicFile
    task: PublicTask | None = None
    model: PublicFile | None = None
    lists: PublicFile | None = None
    authority: PublicFile | None = None


def read_index(data: bytes) -> PublicIndex:
    """An index; ProtocolError if it is none."""
    try:
        return msgspec.json.decode(data, type=PublicIndex)
    except (msgspec.MsgspecError, ValueError):
        raise ProtocolError("refused: what the recommender publishes as its index is none") from None


def most_bytes(n_items: int) -> int:
    """What a task or facts about so many items may have."""
    return _FREE + _PER_ITEM * n_items


def fetch_file(door: Door, kind: str, file: PublicFile, most: int) -> bytes:
    """A file of this kind, with the digest that the index says."""
    got = door.fetch(f"{kind}-{file.sha256}.msgpack", most)
    if got is None or sha256(got[0]).hexdigest() != file.sha256:
        raise ProtocolError(f"refused: the {kind} is not what the index says (its SHA-256 differs)")
    return got[0]


def _is_hex(text: str, length: int) -> bool:
    return len(text) == length and set(text) <= set("0123456789abcdef")
