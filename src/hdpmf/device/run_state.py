"""What a device keeps of a run, from its terms to its end."""

from __future__ import annotations

from typing import TypeVar

import msgspec

from hdpmf.device.store import DeviceStore
from hdpmf.errors import StorageError
from hdpmf.protocol import Message, Terms, decode

MAX_OPEN = 8
"""Runs under way with a recommender at a time. Terms cost nothing, so that a recommender could send any number."""

_OPEN = "open runs"
_Runs = list[bytes]

M = TypeVar("M")


class RunState(msgspec.Struct, kw_only=True):
    """How far a run is. No rating, weight or item is in it; the shard's part has the user vectors. PRIVATE.

    Attributes:
        terms: What was agreed to, encoded; None for a device that only wants the model.
        plan: The Plan or the Survey, encoded.
        opening: The Opening or the Grouping, encoded.
        labels: The taste labels that were drawn, a byte for each user.
        seed: Of the first user vectors.
        charged: The ratings that take part have paid.
        taking_part: Digest of which ones they are.
        number: The last round that was answered.
        summed: The last job whose numbers went into a secure sum; -1 for none.
        shard: Its state, encoded.
        over: The run is over.
    """

    recommender: str
    terms: bytes | None
    plan: bytes | None = None
    opening: bytes | None = None
    labels: bytes | None = None
    seed: int = 0
    charged: bool = False
    taking_part: bytes = b""
    number: int = 0
    summed: int = -1
    shard: bytes | None = None
    over: bool = False

    def __repr__(self) -> str:
        return f"RunState(number {self.number}, {'over' if self.over else 'under way'})"

    def encode(self) -> bytes:
        """As bytes."""
        return msgspec.msgpack.encode(self)


def read_state(data: bytes) -> RunState:
    """A state that was kept."""
    try:
        return msgspec.msgpack.decode(data, type=RunState)
    except msgspec.MsgspecError:
        raise StorageError("the state of a run cannot be read: the store is damaged") from None


def kept(data: bytes | None, kind: type[M]) -> M | None:
    """A message that was kept, if it is of this kind."""
    message: Message | None = None if data is None else decode(data)
    return message if isinstance(message, kind) else None


def view_of(state: RunState) -> str:
    """What the recommender of a run sees."""
    terms = kept(state.terms, Terms)
    return "nothing" if terms is None else terms.view


def open_runs(store: DeviceStore) -> list[bytes]:
    """The runs under way, oldest first."""
    data = store.get(_OPEN)
    return [] if data is None else msgspec.msgpack.decode(data, type=_Runs)


def set_open(store: DeviceStore, runs: list[bytes]) -> None:
    """Keep which runs are under way."""
    store.put(_OPEN, msgspec.msgpack.encode(runs))
