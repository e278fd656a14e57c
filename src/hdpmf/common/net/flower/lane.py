"""A fast lane past Flower's web framework for the calls that make up an exchange, and a narrow one
for devices.

Through nine layers of middleware and two thread pools a request takes 4 ms of processor time, and
an exchange with eight devices has a hundred of them. Here the same handlers are called directly. Of
the recommender's calls, whatever does not succeed at once goes the long way, which then says what
is wrong. Devices have no other way: who calls was settled at the gate, and a device reaches what is
its own: the messages that are for it, and one reply to each.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from hdpmf.common.net.flower.environment import needs_flower
from hdpmf.common.net.flower.gate import CALLER, App, Message, Receive, Scope, Send, read_body

_log = logging.getLogger(__name__)

with needs_flower():
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
    from flwr.proto.runtime_pb2 import (
        GetNodesRequest,
        PullAppMessagesRequest,
        PullAppMessagesResponse,
        PushAppMessagesRequest,
    )
    from flwr.supercore.constant import TASK_TOKEN_HEADER
    from flwr.supercore.dependencies.task import authenticate_task
    from flwr.supercore.error import ApiErrorCode, FlowerError
    from flwr.supercore.inflatable.inflatable_object import iterate_object_tree
    from flwr.supercore.object_store import NoObjectInStoreError
    from flwr.supercore.protobuf.constants import PROTOBUF_MEDIA_TYPE
    from flwr.superlink.servicer.fleet import fleet_handlers
    from flwr.superlink.servicer.runtime import runtime_handlers
    from starlette.datastructures import Headers


_PARTS = 4  # of a reply: the message, its record, its values, and one to spare


class _RefusedError(Exception):
    """A device asked for what is not its own, or is no more."""

    def __init__(self, status: int) -> None:
        super().__init__()
        self.status = status


@dataclass(frozen=True)
class _Call:
    request: Any
    handle: Callable[[Any, Scope], Any]
    for_device: bool


class FastLane:
    """An ASGI application around Flower's.

    Args:
        app: Flower's SuperLink, with its state in memory: nothing here may wait for a disk.
    """

    def __init__(self, app: Any) -> None:
        self._app: App = app
        self._flower = app
        fleet, runtime = fleet_handlers, runtime_handlers
        store = self._state().object_store
        self.calls = {
            "/v1/fleet/activate-node": self._of_device(ActivateNodeRequest, fleet.activate_node),
            "/v1/fleet/deactivate-node": self._of_device(
                DeactivateNodeRequest, fleet.deactivate_node
            ),
            "/v1/fleet/send-node-heartbeat": self._of_device(
                SendNodeHeartbeatRequest, fleet.send_node_heartbeat
            ),
            "/v1/fleet/pull-messages": self._of_device(
                PullMessagesRequest, fleet.pull_messages, store=store
            ),
            "/v1/fleet/push-messages": self._of_device(PushMessagesRequest, self._take_reply),
            "/v1/fleet/pull-object": self._of_device(PullObjectRequest, fleet.pull_object),
            "/v1/fleet/push-object": self._of_device(PushObjectRequest, fleet.push_object),
            "/v1/fleet/confirm-message-received": self._of_device(
                ConfirmMessageReceivedRequest, fleet.confirm_message_received, store=store
            ),
            "/v1/runtime/get-nodes": self._of_server(GetNodesRequest, runtime.get_nodes),
            "/v1/runtime/pull-messages": self._of_server(
                PullAppMessagesRequest, self._complete_replies
            ),
            "/v1/runtime/push-messages": self._of_server(
                PushAppMessagesRequest, runtime.push_messages
            ),
            "/v1/runtime/pull-object": self._of_server(PullObjectRequest, runtime.pull_object),
            "/v1/runtime/push-object": self._of_server(PushObjectRequest, runtime.push_object),
            "/v1/runtime/confirm-message-received": self._of_server(
                ConfirmMessageReceivedRequest, runtime.confirm_message_received
            ),
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        call = self.calls.get(scope["path"]) if scope["type"] == "http" else None
        if call is None:
            await self._app(scope, receive, send)
            return
        body = await read_body(receive)
        if body is None:
            return
        answer = _answer(call, scope, body)
        if isinstance(answer, int):
            if not call.for_device:
                await self._app(scope, _again(body, receive), send)
                return
            await send(
                {
                    "type": "http.response.start",
                    "status": answer,
                    "headers": [(b"content-length", b"0")],
                }
            )
            await send({"type": "http.response.body", "body": b""})
            return
        headers = [
            (b"content-type", PROTOBUF_MEDIA_TYPE.encode()),
            (b"content-length", str(len(answer)).encode()),
        ]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": answer})

    def is_enrolled(self, public: bytes) -> bool:
        """Whether a device with this key (PEM) may connect."""
        return self.number_of(public) is not None

    def number_of(self, public: bytes) -> int | None:
        """Flower's number of the device with this key (PEM)."""
        number: int | None = self._state().get_node_id_by_public_key(public)
        return number

    def is_here(self, number: int, heartbeat: float, wait: float) -> None:
        """A sign of life of a device, which waits here for so long: Flower gives up on it two
        heartbeats after that.

        With no wait it has hung up, and is expected back, unless it has said goodbye.
        """
        state = self._state()
        node = state.nodes.get(number)
        if node is not None and (wait > 0 or node.online_until > time.time()):
            state.acknowledge_node_heartbeat(number, heartbeat + wait / 2)

    def _state(self) -> Any:
        return self._flower.state.linkstate_factory.state()

    def _of_device(self, kind: Any, handler: Any, **more: Any) -> _Call:
        def handle(request: Any, scope: Scope) -> Any:
            state, key = self._state(), scope[CALLER]
            if isinstance(request, ActivateNodeRequest):
                own = request.public_key == key
            else:
                node = (
                    request.node_id
                    if isinstance(request, DeactivateNodeRequest)
                    else request.node.node_id
                )
                own = state.get_node_id_by_public_key(key) == node
            if not own:
                raise _RefusedError(401)
            return handler(request=request, state=state, **more)

        return _Call(kind, handle, for_device=True)

    def _of_server(self, kind: Any, handler: Any) -> _Call:
        def handle(request: Any, scope: Scope) -> Any:
            state = self._state()
            headers = Headers(scope=scope)
            asked: Any = SimpleNamespace(headers=headers)
            task = authenticate_task(asked, headers[TASK_TOKEN_HEADER], state)
            return handler(request=request, state=state, task=task)

        return _Call(kind, handle, for_device=False)

    @staticmethod
    def _take_reply(request: Any, state: Any) -> Any:
        """One reply, to a message that is for this device. Flower would take it in any device's
        name.
        """
        if len(request.messages_list) != 1 or len(request.message_object_trees) != 1:
            raise _RefusedError(400)
        meta = request.messages_list[0].metadata
        asked = state.message_ins_store.get(meta.reply_to_message_id)
        parts = sum(1 for _ in iterate_object_tree(request.message_object_trees[0]))
        if (
            asked is None
            or meta.src_node_id != request.node.node_id
            or asked.metadata.dst_node_id != request.node.node_id
            or meta.run_id != asked.metadata.run_id
            or request.message_object_trees[0].object_id != meta.message_id
            or parts > _PARTS
        ):
            raise _RefusedError(403)
        return fleet_handlers.push_messages(request=request, state=state)

    @staticmethod
    def _complete_replies(request: Any, state: Any, task: Any) -> Any:
        """Replies of which every part is there. Who has sent a part only holds nobody up but
        itself.
        """
        ready = [name for name in request.message_ids if _is_complete(state, name)]
        if not ready:
            return PullAppMessagesResponse()
        return runtime_handlers.pull_messages(
            request=PullAppMessagesRequest(message_ids=ready), state=state, task=task
        )


def _is_complete(state: Any, message: str) -> bool:
    """Whether there is something to say about a message: a whole reply, or that there will be
    none.
    """
    if message not in state.message_ins_store:
        return False
    reply = state.message_ins_id_to_message_res_id.get(message)
    if reply is None:
        return True  # Flower says so if its device is gone
    with contextlib.suppress(NoObjectInStoreError):
        tree = state.object_store.get_object_tree(reply)
        return all(state.object_store.get(part.object_id) for part in iterate_object_tree(tree))
    return False


def _answer(call: _Call, scope: Scope, body: bytes) -> bytes | int:
    """The answer, or the status that says why there is none."""
    try:
        answer: bytes = call.handle(call.request.FromString(body), scope).SerializeToString()
        return answer
    except FlowerError as error:
        return 403 if error.code == ApiErrorCode.FLEET_RUN_STATUS_NOT_ALLOWED else 400
    except _RefusedError as error:
        return error.status
    except (
        Exception
    ) as error:  # whatever Flower raises; for the recommender the long way knows how to say it
        _log.debug("a request was not answered (%s)", type(error).__name__)
        return 400


def _again(body: bytes, receive: Receive) -> Receive:
    parts: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def replay() -> Message:
        return parts.pop() if parts else await receive()

    return replay
