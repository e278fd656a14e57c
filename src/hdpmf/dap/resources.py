"""Where messages go: paths, media types, problems, and ids as they stand in a path."""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Iterable
from enum import StrEnum
from typing import Any

from hdpmf.dap.basics import CHECKSUM_SIZE, HpkeConfigList
from hdpmf.dap.codec import Message
from hdpmf.dap.messages import (
    AggregateShare,
    AggregateShareReq,
    AggregationJobContinueReq,
    AggregationJobInitReq,
    AggregationJobResp,
    Collection,
    CollectionReq,
    Report,
)
from hdpmf.errors import DapError

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

# Relative to a server's base URL. Ids in braces are as ``id_to_text`` writes them: PATH.format(task_id=...) is a path.
HPKE_CONFIG_PATH = "/hpke_config"  # GET ?task_id=...
REPORTS_PATH = "/tasks/{task_id}/reports"  # PUT, leader
AGGREGATION_JOB_PATH = "/tasks/{task_id}/aggregation_jobs/{aggregation_job_id}"  # PUT, POST to continue; helper
COLLECTION_JOB_PATH = "/tasks/{task_id}/collection_jobs/{collection_job_id}"  # PUT, POST to poll, DELETE; leader
AGGREGATE_SHARES_PATH = "/tasks/{task_id}/aggregate_shares"  # POST, helper


class Problem(StrEnum):
    """DAP's problem types: what a ``DapError`` has as its kind."""

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


def problem_details(error: DapError, task_id: bytes | None = None, status: int = 400) -> dict[str, Any]:
    """The answer to a message that was refused (RFC 9457), for ``PROBLEM_MEDIA_TYPE``."""
    details = {"type": PROBLEM_URN + error.kind, "status": status, "detail": str(error)}
    return details if task_id is None else details | {"taskid": id_to_text(task_id)}


def problem_from_details(details: object) -> DapError:
    """What another server refused, from its answer. What it says beyond the type is not repeated: anybody wrote it."""
    uri = details.get("type") if isinstance(details, dict) else None
    for problem in Problem:
        if uri == PROBLEM_URN + problem:
            return DapError(f"the other server refused: {problem}", problem)
    return DapError("the other server refused, and its reason is none that DAP knows")


def id_to_text(data: bytes) -> str:
    """An id as it stands in a path: base64 for URLs, no padding."""
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def id_from_text(text: str, size: int) -> bytes:
    """An id of so many bytes from a path. Each id has one text only; any other is a DapError."""
    if len(text) == (4 * size + 2) // 3:
        try:
            data = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
        except (binascii.Error, ValueError):
            data = b""
        if len(data) == size and id_to_text(data) == text:
            return data
    raise DapError(f"an id of {size} bytes is expected in the path, in base64 for URLs and without padding")


def report_checksum(report_ids: Iterable[bytes]) -> bytes:
    """Exclusive or of the SHA-256 of report ids: both servers count the same reports if it is the same.

    Checksums of two sets without common reports combine by exclusive or, too (``combine_checksums``).
    """
    return combine_checksums(hashlib.sha256(report_id).digest() for report_id in report_ids)


def combine_checksums(checksums: Iterable[bytes]) -> bytes:
    """The checksum of all reports from those of parts."""
    total = 0
    for checksum in checksums:
        total ^= int.from_bytes(checksum, "big")
    return total.to_bytes(CHECKSUM_SIZE, "big")
