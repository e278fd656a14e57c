"""A fast lane past Flower's web framework for the calls that make up an exchange.

Through nine layers of middleware and two thread pools a request takes 4 ms of processor time, and an exchange with
eight devices has a hundred of them. Here the same authentication and the same handlers are called directly. Whatever
does not succeed at once goes the long way, which then says what is wrong.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from hdpmf.transport.flower.environment import needs_flower
from hdpmf.transport.flower.gate import App, Message, Receive, Scope, Send, read_body

_log = logging.getLogger(__name__)

with needs_flower():
    from flwr.proto.fleet_pb2 import PullMessagesRequest, PushMessagesRequest
    from flwr.proto.heartbeat_pb2 import SendNodeHeartbeatRequest
    from flwr.proto.message_pb2 import ConfirmMessageReceivedRequest, PullObjectRequest, PushObjectRequest
    from flwr.proto.runtime_pb2 import GetNodesRequest, PullAppMessagesRequest, PushAppMessagesRequest
    from flwr.supercore.constant import TASK_TOKEN_HEADER
    from flwr.supercore.dependencies.task import authenticate_task
    from flwr.supercore.protobuf.constants import PROTOBUF_MEDIA_TYPE
    from flwr.superlink.routers.fleet.node_auth import authenticate_node
    from flwr.superlink.servicer.fleet import fleet_handlers
    from flwr.superlink.servicer.runtime import runtime_handlers
    from starlette.datastructures import Headers


@dataclass(frozen=True)
class _Call:
    request: Any
    handle: Callable[[Any, Headers], Any]


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
            "/v1/fleet/send-node-heartbeat": self._of_device(SendNodeHeartbeatRequest, fleet.send_node_heartbeat),
            "/v1/fleet/pull-messages": self._of_device(PullMessagesRequest, fleet.pull_messages, store=store),
            "/v1/fleet/push-messages": self._of_device(PushMessagesRequest, fleet.push_messages),
            "/v1/fleet/pull-object": self._of_device(PullObjectRequest, fleet.pull_object),
            "/v1/fleet/push-object": self._of_device(PushObjectRequest, fleet.push_object),
            "/v1/fleet/confirm-message-received": self._of_device(
                ConfirmMessageReceivedRequest, fleet.confirm_message_received, store=store
            ),
            "/v1/runtime/get-nodes": self._of_server(GetNodesRequest, runtime.get_nodes),
            "/v1/runtime/pull-messages": self._of_server(PullAppMessagesRequest, runtime.pull_messages),
            "/v1/runtime/push-messages": self._of_server(PushAppMessagesRequest, runtime.push_messages),
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
        if answer is None:
            await self._app(scope, _again(body, receive), send)
            return
        headers = [(b"content-type", PROTOBUF_MEDIA_TYPE.encode()), (b"content-length", str(len(answer)).encode())]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": answer})

    def _state(self) -> Any:
        return self._flower.state.linkstate_factory.state()

    def _of_device(self, kind: Any, handler: Any, **more: Any) -> _Call:
        def handle(request: Any, headers: Headers) -> Any:
            # All of a web request that it looks at.
            asked = SimpleNamespace(headers=headers, state=SimpleNamespace(protobuf_request=request), app=self._flower)
            authenticate_node(asked)  # type: ignore[arg-type]
            return handler(request=request, state=self._state(), **more)

        return _Call(kind, handle)

    def _of_server(self, kind: Any, handler: Any) -> _Call:
        def handle(request: Any, headers: Headers) -> Any:
            state = self._state()
            asked: Any = SimpleNamespace(headers=headers)
            task = authenticate_task(asked, headers[TASK_TOKEN_HEADER], state)
            return handler(request=request, state=state, task=task)

        return _Call(kind, handle)


def _answer(call: _Call, scope: Scope, body: bytes) -> bytes | None:
    try:
        answer: bytes = call.handle(call.request.FromString(body), Headers(scope=scope)).SerializeToString()
        return answer
    except Exception as error:  # whatever Flower raises: the long way asks it again and knows how to say it
        _log.debug("a request takes the long way (%s)", type(error).__name__)
        return None


def _again(body: bytes, receive: Receive) -> Receive:
    parts: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def replay() -> Message:
        return parts.pop() if parts else await receive()

    return replay
