"""A Grid of Flower's whose nodes are called in this process."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
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
        reply_to: PlainMessage | None = None,
    ) -> None:
        self.metadata = SimpleNamespace(dst_node_id=dst_node_id, message_type=message_type)
        self.content = content
        self.reason = ""

    @property
    def error(self) -> Any:
        return SimpleNamespace(reason=self.reason)

    def has_error(self) -> bool:
        return self.content is None


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

    def get_node_ids(self) -> list[int]:
        return list(self.contexts)

    def send_and_receive(self, messages: Iterable[Any], timeout: float) -> Iterator[Any]:
        for message in messages:
            node = message.metadata.dst_node_id
            if node in self._lost:
                continue
            try:
                yield client_app.app(message, self.contexts[node])
            except Exception as error:
                reply = PlainMessage(None)
                reply.reason = str(error)
                yield reply


@pytest.fixture
def make_grid(monkeypatch: pytest.MonkeyPatch) -> type[GridInProcess]:
    for module in (client_app, server_app):
        monkeypatch.setattr(module, "Message", PlainMessage)
    return GridInProcess
