"""The messages of DAP (draft-ietf-ppm-dap-09), their media types, paths and problem types.

Uploads, aggregation and collection.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Iterable, Mapping
from enum import IntEnum, StrEnum
from typing import Annotated, Any, ClassVar

from hdpmf.common.aggregation.two_servers.dap.codec import (
    U16,
    U64,
    Fixed,
    Items,
    Message,
    Opaque16,
    Opaque32,
    message,
)
from hdpmf.common.aggregation.two_servers.dap.types import (
    CHECKSUM_SIZE,
    BatchSelector,
    HpkeCiphertext,
    HpkeConfigList,
    Interval,
    PartialBatchSelector,
    Query,
    ReportID,
    TaskID,
)
from hdpmf.errors import DapError


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
    """A report extension.

    Attributes:
        extension_type: Which.
        extension_data: What.
    """

    extension_type: U16
    extension_data: Opaque16


@message
class ReportMetadata(Message):
    """The part of a report that both servers see.

    Attributes:
        report_id: Random; also the VDAF's nonce.
        time: Seconds since 1970, rounded down to the task's precision.
    """

    report_id: ReportID
    time: U64


@message
class PlaintextInputShare(Message):
    """The plaintext that a client encrypts to one server.

    Attributes:
        extensions: For this server.
        payload: The input share.
    """

    extensions: Annotated[tuple[Extension, ...], Items(2)]
    payload: Opaque32


@message
class InputShareAad(Message):
    """Additional data of an encrypted input share.

    Attributes:
        task_id: Of the task.
        report_metadata: Of the report.
        public_share: Of the report.
    """

    task_id: TaskID
    report_metadata: ReportMetadata
    public_share: Opaque32


@message
class Report(Message):
    """A report, uploaded by a client to the leader.

    Attributes:
        report_metadata: What both servers see.
        public_share: For both servers.
        leader_encrypted_input_share: A ``PlaintextInputShare`` for the leader.
        helper_encrypted_input_share: Another for the helper.
    """

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

    Attributes:
        prep_msg: The message of this round, for both.
        prep_share: The sender's share for the next message.
    """

    prep_msg: Opaque32 | None = None
    prep_share: Opaque32 | None = None

    cases: ClassVar[Mapping[IntEnum, tuple[str, ...]]] = {
        PingPongType.INITIALIZE: ("prep_share",),
        PingPongType.CONTINUE: ("prep_msg", "prep_share"),
        PingPongType.FINISH: ("prep_msg",),
    }


@message
class ReportShare(Message):
    """The helper's part of a report.

    Attributes:
        report_metadata: As uploaded.
        public_share: As uploaded.
        encrypted_input_share: The helper's.
    """

    report_metadata: ReportMetadata
    public_share: Opaque32
    encrypted_input_share: HpkeCiphertext


@message
class PrepareInit(Message):
    """A report share, with the leader's first preparation message.

    Attributes:
        report_share: The helper's part.
        payload: A ``PingPongMessage``.
    """

    report_share: ReportShare
    payload: Opaque32


@message
class AggregationJobInitReq(Message):
    """The leader asks the helper to check reports.

    Attributes:
        agg_param: Of the VDAF; Prio3 has none.
        part_batch_selector: What is known of their batch.
        prepare_inits: At least one.
    """

    agg_param: Opaque32
    part_batch_selector: PartialBatchSelector
    prepare_inits: Annotated[tuple[PrepareInit, ...], Items(4, 1)]


@message
class PrepareResp(Message):
    """The helper's result for a report: payload (continue), error (reject) or neither (finished).

    Attributes:
        report_id: Of the report.
        payload: A ``PingPongMessage``.
        prepare_error: Why it does not count.
    """

    report_id: ReportID
    payload: Opaque32 | None = None
    prepare_error: PrepareError | None = None

    cases: ClassVar[Mapping[IntEnum, tuple[str, ...]]] = {
        PrepareRespState.CONTINUE: ("payload",),
        PrepareRespState.FINISHED: (),
        PrepareRespState.REJECT: ("prepare_error",),
    }


@message
class AggregationJobResp(Message):
    """The helper's results, in the order of the request.

    Attributes:
        prepare_resps: One for each report.
    """

    prepare_resps: Annotated[tuple[PrepareResp, ...], Items(4, 1)]


@message
class PrepareContinue(Message):
    """The leader's next preparation message of a report. Prio3 does not need it.

    Attributes:
        report_id: Of the report.
        payload: A ``PingPongMessage``.
    """

    report_id: ReportID
    payload: Opaque32


@message
class AggregationJobContinueReq(Message):
    """The leader goes on with a job. Prio3 does not need it.

    Attributes:
        step: Which.
        prepare_continues: At least one.
    """

    step: U16
    prepare_continues: Annotated[tuple[PrepareContinue, ...], Items(4, 1)]


# Collection


@message
class CollectionReq(Message):
    """The collector asks the leader for a sum.

    Attributes:
        query: Of which batch.
        agg_param: Of the VDAF; Prio3 has none.
    """

    query: Query
    agg_param: Opaque32


@message
class Collection(Message):
    """A collected sum: two encrypted shares.

    Attributes:
        part_batch_selector: Which batch it is.
        report_count: How many reports are in it.
        interval: The smallest that has their times.
        leader_encrypted_agg_share: The leader's share.
        helper_encrypted_agg_share: The helper's share.
    """

    part_batch_selector: PartialBatchSelector
    report_count: U64
    interval: Interval
    leader_encrypted_agg_share: HpkeCiphertext
    helper_encrypted_agg_share: HpkeCiphertext


@message
class AggregateShareReq(Message):
    """The leader asks the helper for its share of a sum.

    Attributes:
        batch_selector: Of which batch.
        agg_param: Of the VDAF; Prio3 has none.
        report_count: How many reports the leader has counted.
        checksum: Exclusive or of the SHA-256 of their ids (``report_checksum``).
    """

    batch_selector: BatchSelector
    agg_param: Opaque32
    report_count: U64
    checksum: Annotated[bytes, Fixed(CHECKSUM_SIZE)]


@message
class AggregateShare(Message):
    """A server's share of a sum.

    Attributes:
        encrypted_aggregate_share: For the collector.
    """

    encrypted_aggregate_share: HpkeCiphertext


@message
class AggregateShareAad(Message):
    """Additional data of an encrypted aggregate share.

    Attributes:
        task_id: Of the task.
        agg_param: Of the VDAF; Prio3 has none.
        batch_selector: Of which batch.
    """

    task_id: TaskID
    agg_param: Opaque32
    batch_selector: BatchSelector


MEDIA_TYPES: dict[type[Message], str] = {
    HpkeConfigList: "application/dap-hpke-config-list",
    Report: "application/dap-report",
    AggregationJobInitReq: "application/dap-aggregation-job-init-req",
    AggregationJobContinueReq: "application/dap-aggregation-job-continue-req",
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

AGGREGATION_JOB_PATH = (
    "/tasks/{task_id}/aggregation_jobs/{aggregation_job_id}"  # PUT, POST to continue; helper
)

COLLECTION_JOB_PATH = (
    "/tasks/{task_id}/collection_jobs/{collection_job_id}"  # PUT, POST to poll, DELETE; leader
)

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
    details = {"type": PROBLEM_URN + error.kind, "status": status, "detail": str(error)}
    return details if task_id is None else details | {"taskid": id_to_text(task_id)}


def problem_from_details(details: object) -> DapError:
    """Return the error for a problem document. Only its type is used: the rest is untrusted."""
    uri = details.get("type") if isinstance(details, dict) else None
    for problem in Problem:
        if uri == PROBLEM_URN + problem:
            return DapError(f"the other server refused: {problem}", problem)
    return DapError("the other server refused, and its reason is none that DAP knows")


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


def report_checksum(report_ids: Iterable[bytes]) -> bytes:
    """Return the XOR of the report ids' SHA-256, by which both servers compare their reports.

    Checksums of two sets without common reports combine by exclusive or, too
    (``combine_checksums``).
    """
    return combine_checksums(hashlib.sha256(report_id).digest() for report_id in report_ids)


def combine_checksums(checksums: Iterable[bytes]) -> bytes:
    """Combine checksums of disjoint sets of reports."""
    total = 0
    for checksum in checksums:
        total ^= int.from_bytes(checksum, "big")
    return total.to_bytes(CHECKSUM_SIZE, "big")
