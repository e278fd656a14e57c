"""A task that is void: both servers have signed that no sum of it was or will be released.

What a report costs is paid when it leaves. It comes back where nobody can learn anything from it,
and for that a device needs the word of *both* servers. One of them is honest, as everything here
assumes. Its word is true: its share of no sum with this report has left or ever will, and without
that share the other one's, and whatever both said to each other while they checked the report, is
random. Two servers that lie together could read the report itself.

A server that signs this has first written it into the log of what it released, which refuses every
sum of the task from then on (``hdpmf.untrusted.aggregator.collection``). The id of a task is the
digest of all that is in it, so that a signature is about no other one.
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from hdpmf.common.base.msgpack import read
from hdpmf.common.protocol.key_list import verifies
from hdpmf.common.protocol.servers import Servers
from hdpmf.errors import ProtocolError

VOID_MEDIA_TYPE = "application/hdpmf-void-task"

SIGNATURE_SIZE = 64

MOST_VOID = 256
"""Tasks in a recommender's list: the newest ones."""

MAX_VOID_BYTES = 64 + 256 * MOST_VOID

_LABEL = b"hdpmf void task 1 "


def void_statement(task_id: bytes) -> bytes:
    """Return the bytes that a server signs."""
    return _LABEL + task_id


class VoidTask(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A task and both servers' signatures, each empty while it is not known."""

    task: Annotated[bytes, Meta(min_length=32, max_length=32)]
    leader: Annotated[bytes, Meta(max_length=SIGNATURE_SIZE)] = b""
    helper: Annotated[bytes, Meta(max_length=SIGNATURE_SIZE)] = b""

    def check(self, servers: Servers) -> None:
        """Raise ProtocolError unless the keys on both cards have signed that the task is void."""
        said = void_statement(self.task)
        for server, signature in ((servers.leader, self.leader), (servers.helper, self.helper)):
            if not (isinstance(server.signing, str) and verifies(server.signing, signature, said)):
                raise ProtocolError(
                    f"refused: {server.organisation!r} has not signed that task "
                    f"{self.task.hex()[:8]} is void"
                )


_DECODER = msgspec.msgpack.Decoder(tuple[VoidTask, ...])


def encode_void_tasks(tasks: tuple[VoidTask, ...]) -> bytes:
    """Encode what a recommender publishes."""
    return msgspec.msgpack.encode(tasks)


def read_void_tasks(data: bytes) -> tuple[VoidTask, ...]:
    """Return what a recommender has published, unchecked; ProtocolError if it is something else."""
    return read(_DECODER, data, MAX_VOID_BYTES, ProtocolError, "a list of void tasks")
