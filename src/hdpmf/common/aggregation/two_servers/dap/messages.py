"""The messages of DAP (draft-ietf-ppm-dap-18), their media types, paths and problem types.

Of the draft there is what one round of Prio3 over intervals of time needs: no batch of another
kind, no aggregation parameter, no extension but a task's interval. What has extensions is refused,
as the draft wants it of those that are not known.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from hashlib import sha256
from typing import Annotated

from hdpmf.common.aggregation.two_servers.dap.codec import (
    U8,
    U16,
    U32,
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
TimeInterval = Annotated[bytes, Constant(b"\x01\0\x10")]  # a batch mode; its interval follows
NoParameter = Annotated[bytes, Constant(bytes(4))]  # of aggregation: Prio3 has none
NoExtensions = Annotated[bytes, Constant(bytes(2))]

VERSION = b"dap-18"
"""Of the draft: in HPKE's info, and before a task's id in a VDAF's application context."""


class Role(IntEnum):
    """Roles of DAP."""

    COLLECTOR = 0
    CLIENT = 1
    LEADER = 2
    HELPER = 3


@message
class Interval(Message):
    """An interval of time; its start is within it. On the wire it is in steps of the task's time.

    A server keeps seconds since 1970.
    """

    start: U64
    duration: U64

    @property
    def end(self) -> int:
        """The first second after the interval."""
        return self.start + self.duration

    def __contains__(self, time: int) -> bool:
        return self.start <= time < self.end

    def in_seconds(self, precision: int) -> Interval:
        """The interval in seconds, of steps of ``precision`` seconds."""
        return Interval(self.start * precision, self.duration * precision)

    def in_steps(self, precision: int) -> Interval:
        """The interval in steps, of seconds."""
        return Interval(self.start // precision, self.duration // precision)


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


class ReportError(IntEnum):
    """Reasons to refuse a report."""

    BATCH_COLLECTED = 1
    REPORT_REPLAYED = 2
    REPORT_DROPPED = 3
    HPKE_UNKNOWN_CONFIG_ID = 4
    HPKE_DECRYPT_ERROR = 5
    VDAF_VERIFY_ERROR = 6
    TASK_EXPIRED = 7
    INVALID_MESSAGE = 8
    REPORT_TOO_EARLY = 9
    TASK_NOT_STARTED = 10
    OUTDATED_CONFIG = 11


class ReportRefusedError(DapError):
    """One report is refused, for a ``reason`` that its sender may know."""

    def __init__(self, message: str, reason: ReportError) -> None:
        super().__init__(message, reason.name.lower())
        self.reason = reason


@message
class TaskConfiguration(Message):
    """What is agreed about a task: it is in the additional data of all that is encrypted."""

    task_info: Annotated[bytes, Opaque(1, 1)]
    leader_aggregator_endpoint: Annotated[bytes, Opaque(2, 1)]
    helper_aggregator_endpoint: Annotated[bytes, Opaque(2, 1)]
    time_precision: U64
    min_batch_size: U64
    batch_mode: Annotated[bytes, Constant(b"\x01\0\0")] = field(init=False, default=b"")
    vdaf_type: U32
    vdaf_configuration: Annotated[bytes, Opaque(2)]
    # One extension, of 4 + 16 bytes: the task's interval.
    extensions: Annotated[bytes, Constant(bytes.fromhex("001400010010"))] = field(
        init=False, default=b""
    )
    task_interval: Interval


# Upload


@message
class ReportMetadata(Message):
    """The part of a report that both servers see."""

    report_id: ReportID  # random; also the VDAF's nonce
    time: U64  # in steps of the task's time
    public_extensions: NoExtensions = field(init=False, default=b"")


@message
class PlaintextInputShare(Message):
    """The plaintext that a client encrypts to one server."""

    private_extensions: NoExtensions = field(init=False, default=b"")
    payload: Annotated[bytes, Opaque(4, 1)]


@message
class InputShareAad(Message):
    """Additional data of an encrypted input share."""

    task_id: TaskID
    task_configuration: TaskConfiguration
    report_metadata: ReportMetadata
    public_share: Opaque32


@message
class Report(Message):
    """A client's report."""

    report_metadata: ReportMetadata
    public_share: Opaque32
    leader_encrypted_input_share: HpkeCiphertext
    helper_encrypted_input_share: HpkeCiphertext


@message
class UploadRequest(Message):
    """Reports, uploaded to the leader."""

    reports: Annotated[tuple[Report, ...], Items(0, 1)]


@message
class ReportUploadStatus(Message):
    """Why the leader has not taken a report."""

    report_id: ReportID
    error: U8


@message
class UploadErrors(Message):
    """The leader's answer if some reports were not taken, in the order of the request."""

    status: Annotated[tuple[ReportUploadStatus, ...], Items(0, 1)]


# Aggregation


@message
class PingPongShare(Message):
    """The leader's message about a report, in VDAF's ping-pong topology; Prio3 has one round."""

    kind: Annotated[bytes, Constant(b"\x00")] = field(init=False, default=b"")  # initialize
    verifier_share: Opaque32


@message
class PingPongEnd(Message):
    """The helper's answer, with which both finish."""

    kind: Annotated[bytes, Constant(b"\x02")] = field(init=False, default=b"")  # finish
    verifier_message: Opaque32


@dataclass(frozen=True)
class _Result(Codec):
    """Continue with bytes, or an error."""

    def write(self, value: bytes | ReportError, out: bytearray, what: str) -> None:
        if isinstance(value, ReportError):
            out += bytes([_REJECT, value])
        else:
            out.append(_CONTINUE)
            Opaque(4, 1).write(value, out, what)

    def read(self, reader: Reader) -> bytes | ReportError:
        state = reader.uint(1)
        if state == _CONTINUE:
            return bytes(reader.vector(4, 1))
        error = reader.uint(1)
        if state != _REJECT or error not in set(ReportError):
            raise DapError(f"{reader.what}: an unknown result")
        return ReportError(error)


_CONTINUE, _REJECT = 0, 2


@message
class ReportShare(Message):
    """The helper's part of a report."""

    report_metadata: ReportMetadata
    public_share: Opaque32
    encrypted_input_share: HpkeCiphertext


@message
class VerifyInit(Message):
    """A report share, with the leader's first message of the check."""

    report_share: ReportShare
    payload: Annotated[bytes, Opaque(4, 1)]  # a PingPongShare


@message
class AggregationJobInitReq(Message):
    """The leader asks the helper to check reports."""

    verification_key_id: Annotated[bytes, Constant(b"\0")] = field(init=False, default=b"")
    agg_param: NoParameter = field(init=False, default=b"")
    extensions: NoExtensions = field(init=False, default=b"")
    verify_inits: Annotated[tuple[VerifyInit, ...], Items(0, 1)]


@message
class VerifyResp(Message):
    """The helper's result for a report: a ``PingPongEnd``, or why it is rejected."""

    report_id: ReportID
    result: Annotated[bytes | ReportError, _Result()]


@message
class AggregationJobResp(Message):
    """The helper's results, in the order of the request."""

    verify_resps: Annotated[tuple[VerifyResp, ...], Items(0, 1)]


# Collection


@message
class CollectionJobReq(Message):
    """The collector asks the leader for a sum."""

    query: TimeInterval = field(init=False, default=b"")
    interval: Interval
    agg_param: NoParameter = field(init=False, default=b"")
    extensions: NoExtensions = field(init=False, default=b"")


@message
class CollectionJobResp(Message):
    """A collected sum: two encrypted shares."""

    report_count: U64
    interval: Interval  # the smallest with all reports' times
    leader_encrypted_agg_share: HpkeCiphertext
    helper_encrypted_agg_share: HpkeCiphertext


@message
class AggregateShareReq(Message):
    """The leader asks the helper for its share of a sum."""

    collection_job_req: CollectionJobReq
    batch_selector: TimeInterval = field(init=False, default=b"")
    interval: Interval
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
    task_configuration: TaskConfiguration
    collection_job_req: CollectionJobReq


_MEDIA_TYPE = "application/ppm-dap"

MEDIA_TYPES: dict[type[Message], str] = {
    kind: f"{_MEDIA_TYPE};message={name}"
    for kind, name in {
        HpkeConfigList: "hpke-config-list",
        UploadRequest: "upload-req",
        UploadErrors: "upload-errors",
        AggregationJobInitReq: "aggregation-job-init-req",
        AggregationJobResp: "aggregation-job-resp",
        AggregateShareReq: "aggregate-share-req",
        AggregateShare: "aggregate-share",
        CollectionJobReq: "collection-job-req",
        CollectionJobResp: "collection-job-resp",
    }.items()
}


def media_type(header: str) -> str:
    """Return what a Content-Type says, as ``MEDIA_TYPES`` writes it: other parameters are left out.

    What is not DAP's has none.
    """
    kind, *parameters = (part.strip().lower() for part in header.split(";"))
    names = [part for part in parameters if part.startswith("message=") and kind == _MEDIA_TYPE]
    return ";".join([kind, *(name.replace('"', "") for name in names)])


PROBLEM_MEDIA_TYPE = "application/problem+json"

PROBLEM_URN = "urn:ietf:params:ppm:dap:error:"

# Relative to a server's base URL. Ids in braces are as ``id_to_text`` writes them:
# PATH.format(task_id=...) is a path.
REPORTS_PATH = "/tasks/{task_id}/reports"  # POST, leader
AGGREGATION_JOBS_PATH = "/tasks/{task_id}/aggregation_jobs"  # POST, helper
COLLECTION_JOBS_PATH = "/tasks/{task_id}/collection_jobs"  # POST, leader
AGGREGATE_SHARES_PATH = "/tasks/{task_id}/aggregate_shares"  # POST, helper
# What was made by a POST: its id is that of the request (``job_id``).
JOB_PATH = "/{job_id}"
HPKE_CONFIG_PATH = "/hpke_config"  # GET, both


class Problem(StrEnum):
    """Problem types: the ``kind`` of a ``DapError``. All but the last one are DAP's."""

    INVALID_MESSAGE = "invalidMessage"
    UNRECOGNIZED_TASK = "unrecognizedTask"
    UNRECOGNIZED_AGGREGATION_JOB = "unrecognizedAggregationJob"
    BATCH_INVALID = "batchInvalid"
    INVALID_BATCH_SIZE = "invalidBatchSize"
    BATCH_MISMATCH = "batchMismatch"
    BATCH_OVERLAP = "batchOverlap"
    UNAUTHORIZED_REQUEST = "unauthorizedRequest"  # a status says it

    @property
    def uri(self) -> str:
        """The ``type`` of a problem document."""
        return "about:blank" if self == Problem.UNAUTHORIZED_REQUEST else PROBLEM_URN + self


def problem_from_details(details: object) -> DapError:
    """Return the error for a problem document. Only its type is used: the rest is untrusted."""
    uri = details.get("type") if isinstance(details, dict) else None
    for problem in Problem:
        if uri == problem.uri and problem != Problem.UNAUTHORIZED_REQUEST:
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


def job_id(request: bytes) -> bytes:
    """Return the id of what a request makes: the same request makes it once."""
    return sha256(request).digest()[:JOB_ID_SIZE]


def combine_checksums(checksums: Iterable[bytes]) -> bytes:
    """Combine checksums of disjoint sets of reports."""
    total = 0
    for checksum in checksums:
        total ^= int.from_bytes(checksum, "big")
    return total.to_bytes(CHECKSUM_SIZE, "big")
