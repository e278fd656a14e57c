"""The untrusted side as a Flower ServerApp: a run that reaches devices by Flower's Grid."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import numpy as np
from flwr.app import DEFAULT_TTL, Context, Message, RecordDict
from flwr.serverapp import Grid, ServerApp

from hdpmf.common.base.files import atomic_write
from hdpmf.common.data import Ratings, RatingScale, load_dataset
from hdpmf.common.data.item_features import read_item_table
from hdpmf.common.net.carrier import MAX_BYTES, DeviceReply, RecommenderTransport, check_sizes
from hdpmf.common.privacy import PrivacySpec, PrivacyWeights
from hdpmf.common.protocol import CatalogueTable, DeviceCard
from hdpmf.common.protocol.catalogue import catalogue_table
from hdpmf.common.protocol.enrolment import Enrolled
from hdpmf.common.protocol.servers import Servers
from hdpmf.errors import ConfigError, FederationError, MissingExtraError, ProtocolError
from hdpmf.flower.client_app import Card, Question, ReportTask, UserVectors, pack, unpack
from hdpmf.lab.simulate.simulate import Simulation
from hdpmf.lab.simulate.simulate import simulate as simulate_with
from hdpmf.lab.simulate.virtual_device import (
    DeviceRatings,
    PublicFacts,
    SentReport,
    Vectors,
    VirtualDevice,
)
from hdpmf.private.device.policy import Policy
from hdpmf.untrusted.service.aggregation.direct import Direct
from hdpmf.untrusted.service.aggregation.masks import Masks
from hdpmf.untrusted.service.publish import public_files
from hdpmf.untrusted.service.run import Run
from hdpmf.untrusted.service.settings import Pace, RunSettings

_IN_FLIGHT = 256  # messages that the Grid has at a time: bounds the memory
_POLL_SECONDS = 0.02
_OBJECT_BYTES = 256 * 2**20  # shared memory of Ray: a worker has one device at a time
_START_SECONDS = 600.0  # nodes may be started on other machines first

Config = dict[str, Any]
T = TypeVar("T")

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Run what the run config says: a simulation on a data set or, without one, a run of silos."""
    config = dict(context.run_config)
    output = Path(str(config.pop("output")))
    outcome = (
        _simulate_data_set(grid, config) if config["data"] else _ask_silos(grid, config, output)
    )
    atomic_write(output, msgspec.json.format(msgspec.json.encode(outcome), indent=1))


def simulate(
    train: Ratings,
    settings: RunSettings,
    weights: PrivacyWeights | None = None,
    *,
    devices: int | None = None,
    processes: int = 2,
    **more: Any,
) -> Simulation:
    """Run a federation of simulated devices on Flower's simulation engine, from this process.

    Args:
        train: The ratings on the devices.
        settings: What the run is about.
        weights: Privacy weights; without them every rating has weight 1.
        devices: How many: users are dealt to them; None gives every user its own.
        processes: Workers of Ray on this machine. A cluster that ``RAY_ADDRESS`` names has its own
            number.
        more: As for ``hdpmf.lab.simulate.simulate.simulate``.

    Raises:
        MissingExtraError: Ray is not installed.
        FederationError: A device failed, or too few took part.
    """
    nodes = train.n_users if devices is None else devices
    return run_on_engine(
        lambda grid: simulate_on(grid, train, settings, weights, devices=devices, **more),
        nodes,
        processes,
    )


def run_on_engine(main: Callable[[Grid], T], nodes: int, processes: int) -> T:
    """Call a function with the Grid of Flower's simulation engine and return its result.

    ``nodes`` is the number of simulated nodes, one for each device; ``processes`` is as in
    `simulate`.

    Raises:
        MissingExtraError: Ray is not installed.
        FederationError: The simulation ended without a result.
    """
    # A warning about GPUs otherwise.
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    try:
        import ray as _  # noqa: F401 - Flower would end this process without it
        from flwr.simulation import run_simulation
    except ModuleNotFoundError as error:
        raise MissingExtraError(
            "this needs Flower with Ray: pip install 'hdpmf[flower]'"
        ) from error
    from hdpmf.flower.client_app import app as client_app

    server, results = ServerApp(), list[T]()

    @server.main()
    def run(grid: Grid, context: Context) -> None:
        results.append(main(grid))

    # "local", or Ray would join whatever cluster was last started on this machine.
    here: dict[str, int | str] = {}
    if "RAY_ADDRESS" not in os.environ:
        here = {"address": "local", "num_cpus": processes, "object_store_memory": _OBJECT_BYTES}
    run_simulation(
        server_app=server,
        client_app=client_app,
        num_supernodes=nodes,
        backend_config={
            "client_resources": {"num_cpus": 1.0, "num_gpus": 0.0},
            "init_args": {"include_dashboard": False, "log_to_driver": False, **here},
        },
    )
    if not results:
        raise FederationError("the simulation ended without a result; see what Flower said above")
    return results[0]


def simulate_on(grid: Grid, train: Ratings, *args: Any, **more: Any) -> Simulation:
    """Run a federation of simulated devices on the nodes of a Grid.

    The other arguments are those of ``hdpmf.lab.simulate.simulate.simulate``.
    """
    table = catalogue_table(train.items, train.scale, train.item_table)
    return simulate_with(train, *args, engine=partial(DevicesOnFlower, grid, table), **more)


class GridTransport:
    """The recommender's end of a Grid.

    Args:
        grid: Flower's.
        nodes: The node of each device.
        wrap: Makes a device's question of the recommender's message to it.
        strict: Raise FederationError where a node fails, instead of taking it for silent.
    """

    def __init__(
        self,
        grid: Grid,
        nodes: Mapping[str, int],
        wrap: Callable[[str, bytes], Question],
        *,
        strict: bool,
    ) -> None:
        self._grid = grid
        self._nodes = nodes
        self._wrap = wrap
        self._strict = strict

    def present(self) -> frozenset[str]:
        """Return the devices whose nodes are connected now."""
        there = set(self._grid.get_node_ids())
        return frozenset(device for device, node in self._nodes.items() if node in there)

    def exchange(self, messages: Mapping[str, bytes], deadline: float) -> Iterator[DeviceReply]:
        """Send each device its message and yield the replies as they come."""
        check_sizes(messages)
        devices = {self._nodes[device]: device for device in messages if device in self._nodes}
        questions = (
            (node, self._wrap(device, messages[device])) for node, device in devices.items()
        )
        for node, content in _ask(self._grid, "answer", questions, deadline, strict=self._strict):
            try:
                data = unpack(content, bytes)
            except ProtocolError:  # a malformed reply is no reply
                continue
            if node in devices and len(data) <= MAX_BYTES:
                yield DeviceReply(devices[node], data)

    def close(self) -> None:
        """Do nothing: the Grid is Flower's to close."""


class DevicesOnFlower:
    """The devices of a simulation, one for each node of Flower's simulation engine.

    A device is dealt to its node with its first message; from then on the engine keeps it.
    """

    def __init__(
        self,
        grid: Grid,
        table: CatalogueTable,
        parts: Sequence[DeviceRatings],
        policy: str,
        seed: int,
    ) -> None:
        agreed = Policy.from_toml(policy)
        devices = [
            VirtualDevice.create(part, agreed, number, seed) for number, part in enumerate(parts)
        ]
        self.cards = tuple(device.card for device in devices)
        names = [card.identity for card in self.cards]
        self._grid = grid
        self._table = table
        self._public = PublicFacts.of(table)
        self._nodes = dict(zip(names, _wait_for_nodes(grid, len(devices)), strict=True))
        self._undealt = dict(zip(names, devices, strict=True))
        self.network: RecommenderTransport = GridTransport(
            grid, self._nodes, self._question, strict=True
        )

    def pin_roster(self, cards: Sequence[DeviceCard]) -> None:
        """Make every device pin the same roster, before the first message."""
        self._public = PublicFacts.of(self._table, cards)
        for device in self._undealt.values():
            device.pin_roster(cards)

    def reports(
        self, servers: Servers, files: Mapping[str, bytes], now: float
    ) -> Iterator[SentReport]:
        """Return every device's reports to two servers, for the task that is published."""
        for content in self._ask_all("report", files, ReportTask(servers, now)):
            yield from unpack(content, list[SentReport])

    def learn(self, files: Mapping[str, bytes]) -> None:
        """Let every device learn from the files, which travel in a message of their own."""
        for _ in self._ask_all("learn", files):
            pass

    def vectors(self) -> list[Vectors]:
        """Return the user vectors of devices that have finished a run."""
        replies = [unpack(content, UserVectors) for content in self._ask_all("vectors")]
        return [
            Vectors(
                reply.users, np.frombuffer(reply.vectors, np.float32).reshape(len(reply.users), -1)
            )
            for reply in replies
            if reply.users
        ]

    def close(self) -> None:
        """Let go of devices that were never dealt."""
        for device in self._undealt.values():
            device.close()

    def _ask_all(
        self, action: str, files: Mapping[str, bytes] | None = None, task: ReportTask | None = None
    ) -> Iterator[RecordDict]:
        more: dict[str, Any] = {"files": dict(files or {}), "task": task}
        questions = ((node, self._question(name, **more)) for name, node in self._nodes.items())
        for _, content in _ask(self._grid, action, questions, DEFAULT_TTL, strict=True):
            yield content

    def _question(self, name: str, message: bytes = b"", **more: Any) -> Question:
        device = self._undealt.pop(name, None)
        state = b"" if device is None else device.to_bytes()
        if device is not None:
            device.close()
        return Question(self._public, message, device=state, **more)


def _ask(
    grid: Grid,
    action: str,
    questions: Iterable[tuple[int, object]],
    seconds: float,
    *,
    strict: bool,
) -> Iterator[tuple[int, RecordDict]]:
    """Send nodes their questions, a few at a time, and yield what they reply as it comes."""
    end = time.monotonic() + seconds
    ttl = min(seconds, DEFAULT_TTL)
    unsent = iter(questions)
    waiting: set[str] = set()
    while True:
        messages = [
            Message(pack(question), node, f"query.{action}", ttl=ttl)
            for node, question in islice(unsent, _IN_FLIGHT - len(waiting))
        ]
        if messages:
            waiting.update(grid.push_messages(messages))
        if not waiting or time.monotonic() >= end:
            return
        replies = list(grid.pull_messages(waiting))
        if not replies:
            time.sleep(_POLL_SECONDS)
        for reply in replies:
            waiting.discard(reply.metadata.reply_to_message_id)
            if reply.has_content():
                yield reply.metadata.src_node_id, reply.content
            elif strict:
                raise FederationError(f"a simulated device failed: {reply.error.reason}")


def _wait_for_nodes(grid: Grid, count: int) -> list[int]:
    end = time.monotonic() + _START_SECONDS
    while len(nodes := sorted(grid.get_node_ids())) < count:
        if time.monotonic() >= end:
            raise FederationError(
                f"{len(nodes)} of {count} nodes are connected after {_START_SECONDS:g} s"
            )
        time.sleep(_POLL_SECONDS)
    return nodes[:count]


def _simulate_data_set(grid: Grid, config: Config) -> Config:
    """Simulate a federation of a data set's users."""
    seed = int(config["seed"])
    train, test = load_dataset(str(config["data"])).hold_out(10, rng=seed)
    devices = int(config["devices"]) or train.n_users
    users = train.n_users if config["view"] != "sums" else devices
    done = simulate_on(
        grid,
        train,
        _settings(config, users),
        PrivacySpec().draw(train, seed),
        test=test,
        devices=devices,
        seed=seed,
    )
    return done.result.as_dict()


def _ask_silos(grid: Grid, config: Config, output: Path) -> Config:
    """Conduct a run with the silos that are connected; its model is written beside the summary."""
    if config["view"] == "two-servers":
        raise ConfigError(
            "silos on Flower answer directly or sum by masks; for two servers see "
            "docs/two-servers.md"
        )
    items = read_item_table(Path(str(config["items"])))
    scale = RatingScale(config["scale-low"], config["scale-high"], config["scale-step"] or None)
    table = catalogue_table(items.index, scale, items)
    nodes, cards = dict[str, int](), list[DeviceCard]()
    asked = ((node, None) for node in _wait_for_nodes(grid, int(config["silos"])))
    for node, content in _ask(grid, "card", asked, _START_SECONDS, strict=False):
        silo = unpack(content, Card)
        nodes[silo.identity] = node
        cards.append(DeviceCard(name=f"silo {node}", identity=silo.identity, users=silo.users))
    enrolled = Enrolled(cards)
    public = PublicFacts.of(table, cards if config["view"] == "sums" else ())
    transport = GridTransport(
        grid, nodes, lambda _, message: Question(public, message), strict=False
    )

    def learn(*published: Any) -> None:
        question = Question(public, files=public_files(*published))
        questions = ((node, question) for node in nodes.values())
        for _ in _ask(grid, "learn", questions, _START_SECONDS, strict=False):
            pass

    learn(table)
    run = Run(
        settings=_settings(config, sum(enrolled.users.values())),
        table=table,
        enrolled=enrolled,
        aggregation=(Masks if config["view"] == "sums" else Direct)(transport),
        pace=Pace(gather=0.0, deadline=_START_SECONDS, attempts=2),
    )
    outcome = run.conduct()
    learn(table, outcome.model)
    outcome.model.save(output.with_suffix(".model"))
    return outcome.summary


def _settings(config: Config, users: int) -> RunSettings:
    """Make the run's settings of those keys of a run config that are theirs."""
    names = {key: key.replace("-", "_") for key in config}
    own = {
        name: config[key] for key, name in names.items() if name in RunSettings.__struct_fields__
    }
    return msgspec.convert({"minimum": users} | own, RunSettings)
