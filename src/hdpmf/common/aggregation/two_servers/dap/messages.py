"""The messages of DAP (draft-ietf-ppm-dap-09), their media types, paths and problem types."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterable, Mapping
from enum import IntEnum, StrEnum
from typing import Annotated, Any, ClassVar

from hdpmf.common.aggregation.two_servers.dap.codec import (
    U8,
    U16,
    U64,
    Fixed,
    Items,
    Message,
    Opaque,
    Opaque16,
    Opaque32,
    message,
)
from hdpmf.errors import DapError

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


class PrepareRespState(IntEnum):
    """State of a report at the helper."""

    CONTINUE = 0
    FINISHED = 1
    REJECT = 2


class PrepareError(IntEnum):
    """Reasons to reject a report."""

    BATCH_COLLECTED = 0
    REPORT_REPLAYED = 1
    REPORT_DROPPED = 2
    HPKE_UNKNOWN_CONFIG_ID = 3
    HPKE_DECRYPT_ERROR = 4
    VDAF_PREP_ERROR = 5
    BATCH_SATURATED = 6
    TASK_EXPIRED = 7
    INVALID_MESSAGE = 8
    REPORT_TOO_EARLY = 9


class PingPongType(IntEnum):
    """Types of ping-pong messages (``MessageType`` in VDAF's section 5.8)."""

    INITIALIZE = 0
    CONTINUE = 1
    FINISH = 2


# Upload


@message
class Extension(Message):
    """A report extension."""

    extension_type: U16
    extension_data: Opaque16


@message
class ReportMetadata(Message):
    """The part of a report that both servers see."""

    report_id: ReportID  # random; also the VDAF's nonce
    time: U64  # rounded down to the task's precision


@message
class PlaintextInputShare(Message):
    """The plaintext that a client encrypts to one server."""

    extensions: Annotated[tuple[Extension, ...], Items(2)]
    payload: Opaque32


@message
class InputShareAad(Message):
    """Additional data of an encrypted input share."""

    task_id: TaskID
    report_metadata: ReportMetadata
    public_share: Opaque32


@message
class Report(Message):
    """A report, uploaded by a client to the leader."""

    report_metadata: ReportMetadata
    public_share: Opaque32
    leader_encrypted_input_share: HpkeCiphertext
    helper_encrypted_input_share: HpkeCiphertext


# Aggregation


@message
class PingPongMessage(Message):
    """A message of VDAF's ping-pong topology about one report.

    A share alone initializes, a message alone finishes, both together continue. Prio3 has one
    round: the leader initializes, and the helper finishes.
    """

    prep_msg: Opaque32 | None = None  # of this round, for both
    prep_share: Opaque32 | None = None  # for the next message

    cases: ClassVar[Mapping[IntEnum, tuple[str, ...]]] = {
        PingPongType.INITIALIZE: ("prep_share",),
        PingPongType.CONTINUE: ("prep_msg", "prep_share"),
        PingPongType.FINISH: ("prep_msg",),
    }


@message
class ReportShare(Message):
    """The helper's part of a report."""

    report_metadata: ReportMetadata
    public_share: Opaque32
    encrypted_input_share: HpkeCiphertext


@message
class PrepareInit(Message):
    """A report share, with the leader's first preparation message."""

    report_share: ReportShare
    payload: Opaque32  # a PingPongMessage


@message
class AggregationJobInitReq(Message):
    """The leader asks the helper to check reports."""

    agg_param: Opaque32  # Prio3 has none, here and below
    part_batch_selector: PartialBatchSelector
    prepare_inits: Annotated[tuple[PrepareInit, ...], Items(4, 1)]


@message
class PrepareResp(Message):
    """The helper's result for a report: a payload, an error, or neither if it has finished."""

    report_id: ReportID
    payload: Opaque32 | None = None  # a PingPongMessage
    prepare_error: PrepareError | None = None

    cases: ClassVar[Mapping[IntEnum, tuple[str, ...]]] = {
        PrepareRespState.CONTINUE: ("payload",),
        PrepareRespState.FINISHED: (),
        PrepareRespState.REJECT: ("prepare_error",),
    }


@message
class AggregationJobResp(Message):
    """The helper's results, in the order of the request."""

    prepare_resps: Annotated[tuple[PrepareResp, ...], Items(4, 1)]


# Collection


@message
class CollectionReq(Message):
    """The collector asks the leader for a sum."""

    query: Query
    agg_param: Opaque32


@message
class Collection(Message):
    """A collected sum: two encrypted shares."""

    part_batch_selector: PartialBatchSelector
    report_count: U64
    interval: Interval  # the smallest with all reports' times
    leader_encrypted_agg_share: HpkeCiphertext
    helper_encrypted_agg_share: HpkeCiphertext


@message
class AggregateShareReq(Message):
    """The leader asks the helper for its share of a sum."""

    batch_selector: BatchSelector
    agg_param: Opaque32
    report_count: U64
    checksum: Annotated[bytes, Fixed(CHECKSUM_SIZE)]  # XOR of SHA-256 of the reports' ids


@message
class AggregateShare(Message):
    """A server's share of a sum."""

    encrypted_aggregate_share: HpkeCiphertext


@message
class AggregateShareAad(Message):
    """Additional data of an encrypted aggregate share."""

    task_id: TaskID
    agg_param: Opaque32
    batch_selector: BatchSelector


MEDIA_TYPES: dict[type[Message], str] = {
    HpkeConfigList: "application/dap-hpke-config-list",
    Report: "application/dap-report",
    AggregationJobInitReq: "application/dap-aggregation-job-init-req",
    AggregationJobResp: "application/dap-aggregation-job-resp",
    AggregateShareReq: "application/dap-aggregate-share-req",
    AggregateShare: "application/dap-aggregate-share",
    CollectionReq: "application/dap-collect-req",
    Collection: "application/dap-collection",
}

PROBLEM_MEDIA_TYPE = "application/problem+json"

PROBLEM_URN = "urn:ietf:params:ppm:dap:error:"

# Relative to a server's base URL. Ids in braces are as ``id_to_text`` writes them:
# PATH.format(task_id=...) is a path.
HPKE_CONFIG_PATH = "/hpke_config"  # GET ?task_id=...
REPORTS_PATH = "/tasks/{task_id}/reports"  # PUT, leader
AGGREGATION_JOB_PATH = "/tasks/{task_id}/aggregation_jobs/{aggregation_job_id}"  # PUT, helper
# PUT, POST to poll; leader
COLLECTION_JOB_PATH = "/tasks/{task_id}/collection_jobs/{collection_job_id}"
AGGREGATE_SHARES_PATH = "/tasks/{task_id}/aggregate_shares"  # POST, helper


class Problem(StrEnum):
    """DAP's problem types: the ``kind`` of a ``DapError``."""

    INVALID_MESSAGE = "invalidMessage"
    UNRECOGNIZED_TASK = "unrecognizedTask"
    UNRECOGNIZED_AGGREGATION_JOB = "unrecognizedAggregationJob"
    OUTDATED_CONFIG = "outdatedConfig"
    REPORT_REJECTED = "reportRejected"
    REPORT_TOO_EARLY = "reportTooEarly"
    BATCH_INVALID = "batchInvalid"
    INVALID_BATCH_SIZE = "invalidBatchSize"
    BATCH_QUERIED_TOO_MANY_TIMES = "batchQueriedTooManyTimes"
    BATCH_MISMATCH = "batchMismatch"
    UNAUTHORIZED_REQUEST = "unauthorizedRequest"
    MISSING_TASK_ID = "missingTaskID"
    STEP_MISMATCH = "stepMismatch"
    BATCH_OVERLAP = "batchOverlap"


def problem_details(
    error: DapError, task_id: bytes | None = None, status: int = 400
) -> dict[str, Any]:
    """Return the problem document (RFC 9457) for a refused message."""
    details = {
        "type": PROBLEM_URN + error.kind,
        "title": re.sub("(?<=[a-z])[A-Z]", r" \g<0>", error.kind).lower(),
        "status": status,
        "detail": str(error),
    }
    return details if task_id is None else details | {"taskid": id_to_text(task_id)}


def problem_from_details(details: object) -> DapError:
    """Return the error for a problem document. Only its type is used: the rest is untrusted."""
    uri = details.get("type") if isinstance(details, dict) else None
    for problem in Problem:
        if uri == PROBLEM_URN + problem:
            return DapError(f"the other server refused: {problem}", problem)
    return DapError("the other server refused, for a reason that DAP does not define")


def id_to_text(data: bytes) -> str:
    """Return an id for a path: unpadded URL-safe base64."""
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def id_from_text(text: str, size: int) -> bytes:
    """Parse an id from a path; raise DapError unless it is the id's canonical text."""
    if len(text) == (4 * size + 2) // 3:
        try:
            data = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
        except (binascii.Error, ValueError):
            data = b""
        if len(data) == size and id_to_text(data) == text:
            return data
    raise DapError(
        f"an id of {size} bytes is expected in the path, in base64 for URLs and without padding"
    )


def combine_checksums(checksums: Iterable[bytes]) -> bytes:
    """Combine checksums of disjoint sets of reports."""
    total = 0
    for checksum in checksums:
        total ^= int.from_bytes(checksum, "big")
    return total.to_bytes(CHECKSUM_SIZE, "big")
