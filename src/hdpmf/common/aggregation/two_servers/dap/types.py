"""Types shared by messages (draft-ietf-ppm-dap-09, sections 4.1 to 4.4.1)."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import Annotated, ClassVar

from hdpmf.common.aggregation.two_servers.dap.codec import (
    U8,
    U16,
    U64,
    Fixed,
    Items,
    Message,
    Opaque,
    message,
)

REPORT_ID_SIZE = 16
TASK_ID_SIZE = 32
BATCH_ID_SIZE = 32
JOB_ID_SIZE = 16
CHECKSUM_SIZE = 32

ReportID = Annotated[bytes, Fixed(REPORT_ID_SIZE)]
TaskID = Annotated[bytes, Fixed(TASK_ID_SIZE)]
BatchID = Annotated[bytes, Fixed(BATCH_ID_SIZE)]


class Role(IntEnum):
    """Roles of DAP."""

    COLLECTOR = 0
    CLIENT = 1
    LEADER = 2
    HELPER = 3


class QueryType(IntEnum):
    """Query types. We use time intervals only."""

    RESERVED = 0
    TIME_INTERVAL = 1
    FIXED_SIZE = 2


class FixedSizeQueryType(IntEnum):
    """Subtypes of a query for a batch of fixed size."""

    BY_BATCH_ID = 0
    CURRENT_BATCH = 1


@message
class Interval(Message):
    """An interval of time in seconds since 1970; its start is within it."""

    start: U64
    duration: U64

    @property
    def end(self) -> int:
        """The first second after the interval."""
        return self.start + self.duration

    def __contains__(self, time: int) -> bool:
        return self.start <= time < self.end


@message
class HpkeCiphertext(Message):
    """An HPKE ciphertext."""

    config_id: U8
    enc: Annotated[bytes, Opaque(2, 1)]
    payload: Annotated[bytes, Opaque(4, 1)]


@message
class HpkeConfig(Message):
    """A public key and its algorithms (RFC 9180's numbers; we use one triple, see ``hpke``)."""

    id: U8
    kem_id: U16
    kdf_id: U16
    aead_id: U16
    public_key: Annotated[bytes, Opaque(2, 1)]


@message
class HpkeConfigList(Message):
    """A server's public keys, the preferred ones first."""

    hpke_configs: Annotated[tuple[HpkeConfig, ...], Items(2, 1)]


@message
class FixedSizeQuery(Message):
    """Asks for a batch of fixed size: one with an id, or whichever is ready."""

    batch_id: BatchID | None = None  # None for any that is ready

    cases: ClassVar[Mapping[IntEnum, tuple[str, ...]]] = {
        FixedSizeQueryType.BY_BATCH_ID: ("batch_id",),
        FixedSizeQueryType.CURRENT_BATCH: (),
    }


@message
class Query(Message):
    """A collector's query: one of the two."""

    batch_interval: Interval | None = None
    fixed_size_query: FixedSizeQuery | None = None

    cases: ClassVar[Mapping[IntEnum, tuple[str, ...]]] = {
        QueryType.TIME_INTERVAL: ("batch_interval",),
        QueryType.FIXED_SIZE: ("fixed_size_query",),
    }


@message
class BatchSelector(Message):
    """A batch, as the two servers name it: one of the two."""

    batch_interval: Interval | None = None
    batch_id: BatchID | None = None

    cases: ClassVar[Mapping[IntEnum, tuple[str, ...]]] = {
        QueryType.TIME_INTERVAL: ("batch_interval",),
        QueryType.FIXED_SIZE: ("batch_id",),
    }


@message
class PartialBatchSelector(Message):
    """The part of a batch selector known before collection: of time intervals, only the type."""

    batch_id: BatchID | None = None

    cases: ClassVar[Mapping[IntEnum, tuple[str, ...]]] = {
        QueryType.TIME_INTERVAL: (),
        QueryType.FIXED_SIZE: ("batch_id",),
    }
