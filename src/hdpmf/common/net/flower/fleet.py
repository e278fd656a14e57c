"""What we use inside Flower on a device: its client for the fleet's calls, and how it cuts a
message into objects.

Flower's own SuperNode fetches the application that the server offers and runs it. Here no call
fetches one: of a message only its bytes are taken, and they go to code that is installed on this
machine. Everything else that a server could say is bounded (size, redirects, compression), and no
failure ends the process.
"""

from __future__ import annotations

import base64
import datetime
import logging
import ssl
import time
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

from hdpmf.common.net.certificates import check_authority
from hdpmf.common.net.extras import needs
from hdpmf.common.net.flower.environment import needs_flower
from hdpmf.common.net.flower.gate import AUTHORITIES, ENVELOPE
from hdpmf.common.net.flower.http import bounded_client, said_plainly, unless_run_is_over
from hdpmf.common.net.flower.messages import bytes_in_part, data_part, record_of
from hdpmf.common.net.flower.signing import server_name, signed_headers
from hdpmf.common.net.flower.wires import Wires
from hdpmf.common.net.keys import NodeKey
from hdpmf.common.net.succession import called
from hdpmf.errors import TransportError

_log = logging.getLogger(__name__)

with needs("cryptography"):
    from cryptography.hazmat.primitives.asymmetric.ec import ECDSA
    from cryptography.hazmat.primitives.hashes import SHA256

with needs_flower():
    import httpx
    from flwr.app import Message
    from flwr.app.error import Error
    from flwr.app.message import remove_content_from_message
    from flwr.common.constant import TIMESTAMP_HEADER, ErrorCode
    from flwr.common.serde import message_from_proto, message_to_proto
    from flwr.proto.fleet_pb2 import (
        ActivateNodeRequest,
        DeactivateNodeRequest,
        PullMessagesRequest,
        PushMessagesRequest,
    )
    from flwr.proto.heartbeat_pb2 import SendNodeHeartbeatRequest
    from flwr.proto.message_pb2 import (
        ConfirmMessageReceivedRequest,
        PullObjectRequest,
        PushObjectRequest,
    )
    from flwr.proto.node_pb2 import Node
    from flwr.supercore.constant import FLEET_HTTP_PUBLIC_KEY_HEADER, FLEET_HTTP_SIGNATURE_HEADER
    from flwr.supercore.inflatable.inflatable_object import (
        get_all_nested_objects,
        get_object_tree,
        no_object_id_recompute,
    )
    from flwr.supernode.fleet_http_client import FleetHttpClient

_NO_ANSWER = Error(
    code=ErrorCode.CLIENT_APP_RAISED_EXCEPTION, reason=""
)  # why is the device's own affair
_GOODBYE_SECONDS = 2.0
_UPLOAD_TRIES = 200
_UPLOAD_PAUSE = 0.05


@dataclass(frozen=True)
class Pending:
    """A message that waits on the server: its metadata, and which objects it is made of."""

    message: Any
    tree: Any


class Fleet:
    """One connection of one device, from activation to its end.

    Args:
        address: ``host:port`` of the recommender.
        authority: The recommender's authority (PEM), as it was handed over at enrolment; nothing
            else is trusted.
        key: The device's key for the engine.
        heartbeat: Seconds between signs of life. The server gives up on a device after twice as
            much.
        wait: Seconds that the server may keep a question for messages, where it can.
        max_bytes: Of a message or a reply.
        before: The connection before this one, if the network failed it: as long as the server
            cannot have noticed, it is taken up again.
        wires: Opens its connections, and can cut them.
        plain_flower: The server is a SuperLink without our gate and knows Flower's signatures only.
            These are good at any other such server, for five minutes.

    Raises:
        ConfigError: The authority's certificate is none, or has ended.
        TransportError: No connection, or the server refused this device; the message says why.
    """

    def __init__(
        self,
        address: str,
        authority: bytes,
        key: NodeKey,
        *,
        heartbeat: float,
        wait: float,
        max_bytes: int,
        before: Fleet | None = None,
        wires: Wires | None = None,
        plain_flower: bool = False,
    ) -> None:
        check_authority(authority)
        self._limit = max_bytes
        self._heartbeat = heartbeat
        self._plain_flower = plain_flower
        self._asking = False
        trust = ssl.create_default_context(cadata=authority.decode("ascii"))
        self._sign = None if plain_flower else _Signature(key, server_name(called(authority)))
        sign = _FlowerSignature(key) if self._sign is None else self._sign
        self._base = f"https://{address}"
        self._client = FleetHttpClient(f"https://{address}", interceptors=[sign], verify=trust)
        self._http = bounded_client(
            trust, max_bytes + ENVELOPE, {"prefer": f"wait={wait:g}"}, wires=wires
        )
        self._client._client.close()
        self._client._client = self._http
        try:
            self._node = self._activate(key.public.encode("ascii"), before)
        except BaseException:
            self._http.close()
            raise

    def _activate(self, public: bytes, before: Fleet | None) -> Any:
        self._alive = time.monotonic()
        try:
            with said_plainly():
                request = ActivateNodeRequest(public_key=public, heartbeat_interval=self._heartbeat)
                return Node(node_id=self._client.ActivateNode(request).node_id)
        except TransportError:
            # A server that has not noticed the cut refuses a second activation, as it refuses a
            # second device with this key. Within that time no such device can have slipped in, so
            # the old connection still is ours.
            if before is None or self._alive > before._alive + 2 * self._heartbeat:
                raise
            self._node = before._node
            self.beat()
            return before._node

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Say goodbye, so that this device may come back at once, and hang up."""
        self._http.timeout = _GOODBYE_SECONDS
        try:
            self._client.DeactivateNode(DeactivateNodeRequest(node_id=self._node.node_id))
        except Exception as error:  # whatever it is: a server that is gone needs no goodbye
            _log.debug("left without a goodbye (%s)", type(error).__name__)
        finally:
            self._http.close()

    @property
    def is_heard(self) -> bool:
        """Whether a question waits at the server, which is a sign of life where the server has
        our gate.
        """
        return self._asking and not self._plain_flower

    def beat(self) -> None:
        """A sign of life."""
        now = time.monotonic()
        with said_plainly():
            answer = self._client.SendNodeHeartbeat(
                SendNodeHeartbeatRequest(node=self._node, heartbeat_interval=self._heartbeat)
            )
        if not answer.success:
            raise TransportError("the recommender does not know this connection any more")
        self._alive = now

    def authorities(self) -> bytes | None:
        """What the recommender tells about its authorities (``succession``); None where it tells
        nothing.
        """
        if self._sign is None:
            return None
        request = self._http.build_request("GET", self._base + AUTHORITIES)
        self._sign.sign(request)
        with said_plainly():
            answer = self._http.send(request)
            return answer.content if answer.status_code == httpx.codes.OK else None

    def receive(self) -> Pending | None:
        """The next message; None if there is none (a server of ours then has waited for one)."""
        now, self._asking = time.monotonic(), True
        try:
            with said_plainly():
                answer = self._client.PullMessages(PullMessagesRequest(node=self._node))
        finally:
            self._asking = False
        if not self._plain_flower:
            self._alive = now
        with said_plainly():
            if not answer.messages_list or len(answer.message_object_trees) != len(
                answer.messages_list
            ):
                return None
            return Pending(
                message_from_proto(answer.messages_list[0]), answer.message_object_trees[0]
            )

    def open(self, pending: Pending) -> bytes | None:
        """The message's bytes; None if it was withdrawn, because its time is over."""
        data = None
        with said_plainly(), unless_run_is_over():
            part = self._fetch(pending.message.metadata.run_id, data_part(pending.tree))
            data = None if part is None else bytes_in_part(part)
        if data is not None and len(data) > self._limit:
            raise TransportError(
                f"a message of {len(data)} bytes is longer than the limit of {self._limit}"
            )
        return data

    def reply(self, pending: Pending, data: bytes | None) -> None:
        """Answer a message; with None, say that there will be no answer, so that nobody waits
        for one.
        """
        run = pending.message.metadata.run_id
        with said_plainly(), unless_run_is_over():
            if data is None:
                self._push(run, Message(_NO_ANSWER, reply_to=pending.message))
            else:
                record = record_of(data, pending.message.metadata.group_id)
                self._push(run, Message(record, reply_to=pending.message))
            self._client.ConfirmMessageReceived(
                ConfirmMessageReceivedRequest(
                    node=self._node,
                    run_id=run,
                    message_object_id=pending.message.metadata.message_id,
                )
            )

    def _push(self, run: int, message: Any) -> None:
        with no_object_id_recompute():
            message.metadata.__dict__["_message_id"] = message.object_id
            objects = get_all_nested_objects(message)
            answer = self._client.PushMessages(
                PushMessagesRequest(
                    node=self._node,
                    messages_list=[message_to_proto(remove_content_from_message(message))],
                    message_object_trees=[get_object_tree(message)],
                    clientapp_runtime_list=[
                        0.0
                    ],  # how long an answer took says something about a device
                )
            )
            data_last = data_part(
                get_object_tree(message)
            )  # who sees it may take the reply for complete
            for name in sorted(answer.objects_to_push, key=data_last.__eq__):
                if name not in objects:
                    raise TransportError(
                        "the recommender asked for something that is not in the reply"
                    )
                self._client.PushObject(
                    PushObjectRequest(
                        node=self._node,
                        run_id=run,
                        session_id=answer.session_id,
                        object_id=name,
                        object_content=objects[name].deflate(),
                    )
                )

    def _fetch(self, run: int, name: str) -> bytes | None:
        request = PullObjectRequest(node=self._node, run_id=run, object_id=name)
        for _ in range(_UPLOAD_TRIES):
            answer = self._client.PullObject(request)
            if not answer.object_found:
                return None
            if answer.object_available:
                return bytes(answer.object_content)
            time.sleep(_UPLOAD_PAUSE)  # the recommender is still uploading it
        return None


class _Signature:
    """Signs every request, for this recommender and this call only (``signing``)."""

    def __init__(self, key: NodeKey, server: bytes) -> None:
        self._key = key
        self._server = server

    def sign(self, request: Any) -> None:
        """Add the headers."""
        request.headers.update(
            signed_headers(
                self._key, self._server, request.method, request.url.path, request.content
            )
        )

    def intercept(self, context: Any, call_next: Any) -> Any:
        """As Flower's clients call it."""
        self.sign(context.request)
        return call_next(context)


class _FlowerSignature:
    """Flower's own node authentication: a signed time, and nothing else. For a SuperLink without
    our gate.
    """

    def __init__(self, key: NodeKey) -> None:
        self._key = key
        self._public = base64.b64encode(key.public.encode("ascii")).decode("ascii")

    def intercept(self, context: Any, call_next: Any) -> Any:
        now = datetime.datetime.fromtimestamp(time.time(), datetime.UTC).isoformat()
        signature = self._key.private.sign(now.encode("ascii"), ECDSA(SHA256()))
        context.request.headers.update(
            {
                FLEET_HTTP_PUBLIC_KEY_HEADER: self._public,
                TIMESTAMP_HEADER: now,
                FLEET_HTTP_SIGNATURE_HEADER: base64.b64encode(signature).decode("ascii"),
            }
        )
        return call_next(context)
