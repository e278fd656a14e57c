"""The messages of DAP (draft-ietf-ppm-dap-09), their media types, paths and problem types."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from typing import Annotated

from hdpmf.common.aggregation.two_servers.dap.codec import (
    U8,
    U16,
    U64,
    Codec,
    Constant,
    Fixed,
    Items,
    Message,
    Opaque,
    Opaque32,
    Reader,
    message,
)
from hdpmf.errors import DapError

REPORT_ID_SIZE = 16
TASK_ID_SIZE = 32
JOB_ID_SIZE = 16
CHECKSUM_SIZE = 32

ReportID = Annotated[bytes, Fixed(REPORT_ID_SIZE)]
TaskID = Annotated[bytes, Fixed(TASK_ID_SIZE)]
TimeInterval = Annotated[bytes, Constant(b"\x01")]  # the type of query; no batches of fixed size
NoParameter = Annotated[bytes, Constant(bytes(4))]  # of aggregation: Prio3 has none


class Role(IntEnum):
    """Roles of DAP."""

    COLLECTOR = 0
    CLIENT = 1
    LEADER = 2
    HELPER = 3


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


# Upload


@message
class ReportMetadata(Message):
    """The part of a report that both servers see."""

    report_id: ReportID  # random; also the VDAF's nonce
    time: U64  # rounded down to the task's precision


@message
class PlaintextInputShare(Message):
    """The plaintext that a client encrypts to one server."""

    extensions: Annotated[bytes, Constant(bytes(2))] = field(init=False, default=b"")  # none
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
class PingPongShare(Message):
    """The leader's message about a report, in VDAF's ping-pong topology; Prio3 has one round."""

    kind: Annotated[bytes, Constant(b"\x00")] = field(init=False, default=b"")  # initialize
    prep_share: Opaque32


@message
class PingPongEnd(Message):
    """The helper's answer, with which both finish."""

    kind: Annotated[bytes, Constant(b"\x02")] = field(init=False, default=b"")  # finish
    prep_msg: Opaque32


@dataclass(frozen=True)
class _Result(Codec):
    """Continue with bytes, or an error."""

    def write(self, value: bytes | PrepareError, out: bytearray, what: str) -> None:
        if isinstance(value, PrepareError):
            out += bytes([_REJECT, value])
        else:
            out.append(_CONTINUE)
            Opaque(4).write(value, out, what)

    def read(self, reader: Reader) -> bytes | PrepareError:
        state = reader.uint(1)
        if state == _CONTINUE:
            return bytes(reader.vector(4))
        error = reader.uint(1)
        if state != _REJECT or error not in set(PrepareError):
            raise DapError(f"{reader.what}: an unknown result")
        return PrepareError(error)


_CONTINUE, _REJECT = 0, 2


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
    payload: Opaque32  # a PingPongShare


@message
class AggregationJobInitReq(Message):
    """The leader asks the helper to check reports."""

    agg_param: NoParameter = field(init=False, default=b"")
    query_type: TimeInterval = field(init=False, default=b"")
    prepare_inits: Annotated[tuple[PrepareInit, ...], Items(4, 1)]


@message
class PrepareResp(Message):
    """The helper's result for a report: a ``PingPongEnd``, or why it is rejected."""

    report_id: ReportID
    result: Annotated[bytes | PrepareError, _Result()]


@message
class AggregationJobResp(Message):
    """The helper's results, in the order of the request."""

    prepare_resps: Annotated[tuple[PrepareResp, ...], Items(4, 1)]


# Collection


@message
class CollectionReq(Message):
    """The collector asks the leader for a sum."""

    query_type: TimeInterval = field(init=False, default=b"")
    interval: Interval
    agg_param: NoParameter = field(init=False, default=b"")


@message
class Collection(Message):
    """A collected sum: two encrypted shares."""

    query_type: TimeInterval = field(init=False, default=b"")
    report_count: U64
    interval: Interval  # the smallest with all reports' times
    leader_encrypted_agg_share: HpkeCiphertext
    helper_encrypted_agg_share: HpkeCiphertext


@message
class AggregateShareReq(Message):
    """The leader asks the helper for its share of a sum."""

    query_type: TimeInterval = field(init=False, default=b"")
    interval: Interval
    agg_param: NoParameter = field(init=False, default=b"")
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
    agg_param: NoParameter = field(init=False, default=b"")
    query_type: TimeInterval = field(init=False, default=b"")
    interval: Interval


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
    BATCH_MISMATCH = "batchMismatch"
    UNAUTHORIZED_REQUEST = "unauthorizedRequest"
    BATCH_OVERLAP = "batchOverlap"


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
