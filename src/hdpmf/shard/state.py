"""What a shard keeps between rounds, so that a device that was switched off goes on."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec
import numpy as np

from hdpmf.errors import StorageError

_DTYPES = {"vectors": "<f4", "raters": "<i8", "kept": "<i8", "kept_noise": "<i8", "h_total": "<f4"}


@dataclass(frozen=True, slots=True, repr=False)
class ShardState:
    """Private, like all that a shard holds, but without any rating.

    Attributes:
        round: The last round that came.
        answered: The last that was answered.
        vectors: User vectors, padded.
        raters: Ratings that take part, per item that is rated here.
        kept: Positions of the ratings that PDPMF's sampling has kept.
        kept_noise: Noise that is drawn once for all rounds.
        h_seen: Rounds whose h was looked at.
        h_total: What was found in them, per row.
        stated: Digest of the numbers of raters that the first round stated.
    """

    round: int
    answered: int
    vectors: np.ndarray
    raters: np.ndarray | None
    kept: np.ndarray | None
    kept_noise: np.ndarray | None
    h_seen: int
    h_total: np.ndarray | None
    stated: bytes = b""

    def __repr__(self) -> str:
        return f"ShardState(round {self.round})"

    def encode(self) -> bytes:
        """As bytes."""
        arrays = {}
        for name, dtype in _DTYPES.items():
            array = getattr(self, name)
            arrays[name] = None if array is None else (array.shape, array.astype(dtype).tobytes())
        return msgspec.msgpack.encode((self.round, self.answered, self.h_seen, arrays, self.stated))

    @classmethod
    def decode(cls, data: bytes) -> ShardState:
        """From bytes."""
        try:
            number, answered, seen, arrays, stated = msgspec.msgpack.decode(data, type=_Fields)
            found = {
                name: None if arrays[name] is None else np.frombuffer(arrays[name][1], dtype).reshape(arrays[name][0])
                for name, dtype in _DTYPES.items()
            }
        except (msgspec.MsgspecError, KeyError, ValueError) as error:
            raise StorageError("the kept state of a run cannot be read: the store is damaged") from error
        vectors = found.pop("vectors")
        if vectors is None:
            raise StorageError("the kept state of a run has no vectors: the store is damaged")
        return cls(round=number, answered=answered, h_seen=seen, vectors=vectors, stated=stated, **found)


_Fields = tuple[int, int, int, dict[str, tuple[list[int], bytes] | None], bytes]
