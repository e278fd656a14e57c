"""Submission of a task to a server: ``PUT /tasks/{task_id}``. DAP leaves this to the parties."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from hdpmf.common.base.msgpack import read
from hdpmf.errors import ProtocolError

TASK_MEDIA_TYPE = "application/hdpmf-task"
TASK_PATH = "/tasks/{task_id}"
DEVICE_HEADER, SIGNATURE_HEADER = "hdpmf-device", "hdpmf-signature"
"""Of an upload to a task for enrolled devices only."""


class TaskSubmission(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A published task and, for the leader alone, the devices (identity, users) that may report."""

    document: bytes
    devices: tuple[tuple[str, int], ...] = ()


def signed_bytes(task_id: bytes, digest: bytes) -> bytes:
    """Return the bytes that an enrolled device signs: the task and its report's SHA-256."""
    return b"hdpmf report " + task_id + digest


_DECODER = msgspec.msgpack.Decoder(TaskSubmission)


def encode_submission(document: bytes, devices: Sequence[tuple[str, int]] = ()) -> bytes:
    """The body of the request."""
    return msgspec.msgpack.encode(TaskSubmission(document=document, devices=tuple(devices)))


def decode_submission(data: bytes, max_bytes: int) -> TaskSubmission:
    """Return what ``encode_submission`` wrote; ProtocolError for anything else."""
    return read(_DECODER, data, max_bytes, ProtocolError, "a task for a server")
