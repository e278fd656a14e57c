"""The same two ends on Flower's simulation engine, which spreads devices over the machines of a Ray cluster.

A device is no process here: each message goes to whichever worker is free, and the device is made for it, from what it
keeps on disk. So whatever a device keeps in memory between two messages is lost, as after a crash. Sessions of secure
sums are such; runs in which the recommender sees messages are not affected.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from hdpmf.errors import TransportError
from hdpmf.transport.extras import needs
from hdpmf.transport.flower.environment import needs_flower
from hdpmf.transport.interface import MAX_BYTES, Answer, DeviceReply, RecommenderTransport, check_sizes

Result = TypeVar("Result")

_LOOK_SECONDS = 0.02
_START_SECONDS = 60.0
_ROLL_CALL = b"who"
_ROLL_CALL_SECONDS = 600.0  # workers may have to be started on other machines first


def run_on_ray(
    main: Callable[[RecommenderTransport], Result],
    answer_of: Callable[[str], Answer],
    devices: Sequence[str],
    *,
    cpus_per_device: float = 1.0,
    ray: Mapping[str, Any] | None = None,
) -> Result:
    """Run a recommender against simulated devices; what ``main`` returns.

    Args:
        main: The recommender's side; runs in this process.
        answer_of: Makes a device from its roster name, in a worker, for every message anew. It travels to the workers
            by pickle, so it should carry paths, not data.
        devices: Roster names.
        cpus_per_device: Of a worker; a machine with 8 takes 8 / ``cpus_per_device`` of them.
        ray: Arguments of ``ray.init``, such as the address of a cluster.

    Raises:
        MissingExtraError: Ray is not installed.
        TransportError: The engine failed.
    """
    with needs("ray", extra="ray"):
        import ray as _  # noqa: F401 - the engine would end the process without it
    with needs_flower():
        from flwr.clientapp import ClientApp
        from flwr.serverapp import ServerApp
        from flwr.simulation import run_simulation

    server, results = ServerApp(), []

    @server.main()
    def run(grid: Any, context: Any) -> None:
        results.append(main(_SimulatedFleet(grid, devices)))

    run_simulation(
        server_app=server,
        client_app=_add_device(ClientApp(), answer_of, tuple(devices)),
        num_supernodes=len(devices),
        backend_config={
            "client_resources": {"num_cpus": cpus_per_device, "num_gpus": 0.0},
            "init_args": {"include_dashboard": False, **(ray or {})},
        },
    )
    if not results:
        raise TransportError("the simulation ended without a result; what it said is above")
    return results[0]


def _add_device(app: Any, answer_of: Callable[[str], Answer], devices: tuple[str, ...]) -> Any:
    @app.query()  # type: ignore[untyped-decorator]
    def answer(message: Any, context: Any) -> Any:
        from flwr.app import Message

        from hdpmf.transport.flower.messages import bytes_of, record_of

        name = devices[int(context.node_config["partition-id"])]
        data = bytes_of(message)
        if data == _ROLL_CALL:
            return Message(record_of(name.encode()), reply_to=message)
        return Message(record_of(answer_of(name)(data)), reply_to=message)

    return app


class _SimulatedFleet:
    """The recommender's end, and what an exchange needs of the engine, in one."""

    def __init__(self, grid: Any, devices: Sequence[str]) -> None:
        self._grid = grid
        self._nodes = self._wait_for(len(devices))
        # Flower numbers its nodes at random; which device is which, they have to say themselves.
        told = {reply.data.decode(): int(reply.device) for reply in self._call_the_roll()}
        if set(told) != set(devices):
            raise TransportError(f"{len(told)} of {len(devices)} simulated devices answered the roll-call")
        self._nodes = told

    def present(self) -> frozenset[str]:
        return frozenset(self._nodes)

    def exchange(self, messages: Mapping[str, bytes], deadline: float) -> Iterator[DeviceReply]:
        from hdpmf.transport.flower.recommender import exchange_over

        check_sizes(messages, MAX_BYTES)
        return exchange_over(self, self._nodes, messages, deadline, MAX_BYTES)

    def close(self) -> None:
        self._nodes = {}

    def send(self, outgoing: Sequence[Any], seconds: float) -> list[str]:
        return list(self._grid.push_messages([message.to_flower(seconds) for message in outgoing]))

    def pull(self, ids: Iterable[str], wait: float) -> list[Any]:
        from hdpmf.transport.flower.messages import Incoming, bytes_of

        end = time.monotonic() + wait
        while not (messages := list(self._grid.pull_messages(list(ids)))) and time.monotonic() < end:
            time.sleep(_LOOK_SECONDS)
        answered = []
        for message in messages:
            meta = message.metadata
            data = bytes_of(message) if message.has_content() else None
            answered.append(Incoming(meta.reply_to_message_id, meta.group_id, data))
        return answered

    def forget(self, unanswered: Iterable[Any]) -> None:
        pass

    def _wait_for(self, count: int) -> dict[str, int]:
        """The engine's nodes: it lets us begin before they are there."""
        end = time.monotonic() + _START_SECONDS
        while len(nodes := list(self._grid.get_node_ids())) < count and time.monotonic() < end:
            time.sleep(_LOOK_SECONDS)
        return {str(node): int(node) for node in nodes}

    def _call_the_roll(self) -> Iterator[DeviceReply]:
        return self.exchange(dict.fromkeys(self._nodes, _ROLL_CALL), _ROLL_CALL_SECONDS)
