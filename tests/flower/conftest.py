"""A Grid of Flower's whose nodes are called in this process."""

from __future__ import annotations

from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

import pytest
from flwr.app import Context, RecordDict

from hdpmf.flower import client_app, server_app


class PlainMessage:
    """Flower's message, which only exists in a run of Flower's."""

    def __init__(
        self,
        content: RecordDict | None,
        dst_node_id: int = 0,
        message_type: str = "",
        ttl: float = 0.0,
        reply_to: PlainMessage | None = None,
    ) -> None:
        self.metadata = SimpleNamespace(dst_node_id=dst_node_id, message_type=message_type)
        if reply_to is not None:
            asked = reply_to.metadata
            self.metadata = SimpleNamespace(
                reply_to_message_id=asked.message_id, src_node_id=asked.dst_node_id
            )
        self.content = content
        self.error = SimpleNamespace(reason="")

    def has_content(self) -> bool:
        return self.content is not None


class GridInProcess:
    """A Grid, as far as the server app uses it.

    Args:
        configs: The node config of each node; their ids begin with 100.
        lost: Nodes that never answer.
    """

    def __init__(self, configs: Iterable[dict[str, Any]], lost: Iterable[int] = ()) -> None:
        self.contexts = {
            node: Context(
                run_id=1, node_id=node, node_config=config, state=RecordDict(), run_config={}
            )
            for node, config in enumerate(configs, start=100)
        }
        self._lost = set(lost)
        self._replies: dict[str, Any] = {}
        self._count = 0

    def get_node_ids(self) -> list[int]:
        return list(self.contexts)

    def push_messages(self, messages: Iterable[Any]) -> list[str]:
        ids = []
        for message in messages:
            self._count += 1
            message.metadata.message_id = str(self._count)
            ids.append(message.metadata.message_id)
            node = message.metadata.dst_node_id
            if node in self._lost:
                continue
            try:
                reply: Any = client_app.app(message, self.contexts[node])
            except Exception as error:
                reply = PlainMessage(None, reply_to=message)
                reply.error.reason = str(error)
            self._replies[ids[-1]] = reply
        return ids

    def pull_messages(self, message_ids: Iterable[str]) -> list[Any]:
        return [self._replies.pop(name) for name in list(message_ids) if name in self._replies]


@pytest.fixture
def plain_message(monkeypatch: pytest.MonkeyPatch) -> type[PlainMessage]:
    for module in (client_app, server_app):
        monkeypatch.setattr(module, "Message", PlainMessage)
    return PlainMessage


@pytest.fixture
def make_grid(plain_message: type[PlainMessage]) -> type[GridInProcess]:
    return GridInProcess
