"""The collector's ``PUT /tasks/{task_id}``, which DAP leaves to the parties."""

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
    """A task, and who may report in it.

    Attributes:
        document: The task as it is published.
        devices: Identity and number of users of each; for the leader alone.
    """

    document: bytes
    devices: tuple[tuple[str, int], ...] = ()


def signed_bytes(task_id: bytes, digest: bytes) -> bytes:
    """Return what a device signs of its report: the task and the report's SHA-256."""
    return b"hdpmf report " + task_id + digest


_DECODER = msgspec.msgpack.Decoder(TaskSubmission)


def encode_submission(document: bytes, devices: Sequence[tuple[str, int]] = ()) -> bytes:
    """The body of the request."""
    return msgspec.msgpack.encode(TaskSubmission(document=document, devices=tuple(devices)))


def decode_submission(data: bytes, max_bytes: int) -> TaskSubmission:
    """Decode ``encode_submission``'s output; anything else is a ProtocolError."""
    return read(_DECODER, data, max_bytes, ProtocolError, "a task for a server")
