"""The untrusted side as a Flower ServerApp: the recommender trains with the clients of a Grid."""

from __future__ import annotations

import io
import time
from logging import getLogger
from pathlib import Path
from typing import Any, Literal, TypeVar

import msgspec
import numpy as np
from flwr.app import Context, Message
from flwr.serverapp import Grid, ServerApp

from hdpmf.common.base.files import atomic_write
from hdpmf.common.data import IdIndex, RatingScale, load_dataset
from hdpmf.common.data.items import read_item_table
from hdpmf.common.methods import METHODS, method_named
from hdpmf.common.methods.method import claim_of
from hdpmf.common.privacy.sampling import SeededNoise, seed_of
from hdpmf.common.protocol import Message as ProtocolMessage
from hdpmf.common.protocol import Round, decode, encode
from hdpmf.errors import ConfigError, FederationError
from hdpmf.flower.client_app import Asked, Errors, Setup, pack, unpack
from hdpmf.models.training import RECOMMENDER_STREAM
from hdpmf.untrusted.recommender import Recommender

_START_SECONDS = 600.0  # nodes may be started on other machines first
_REPLY_SECONDS = 3600.0
_POLL_SECONDS = 0.1

_log = getLogger("flwr")

T = TypeVar("T")


class RunConfig(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="kebab"
):
    """The run config of ``flwr run``: see ``pyproject.toml`` beside this file. 0: the method's own.

    Attributes:
        output: A file for the result; the item factors are written beside it, as ``.npz``.
        nodes: How many take part.
        data: A data set to simulate with; without one nodes have partition files.
        items: The item table of partition files.
    """

    output: str
    nodes: int
    method: str
    hold_out: int
    data: str
    weights: Literal["paper", "uniform"]
    seed: int
    items: str
    scale_low: float
    scale_high: float
    scale_step: float
    epsilon: float
    epochs: int
    n_factors: int
    learning_rate: float
    reg: float
    threshold: str

    @classmethod
    def of(cls, config: dict[str, Any]) -> RunConfig:
        """Return the run config; ConfigError where something in it is missing or wrong."""
        try:
            found = msgspec.convert(config, cls)
        except msgspec.ValidationError as error:
            raise ConfigError(f"the run config cannot be used: {error}") from None
        if found.nodes < 1 or found.hold_out < 0 or bool(found.data) == bool(found.items):
            raise ConfigError(
                "the run config needs nodes of at least 1, hold-out of at least 0, and either "
                "data (a simulation) or items (nodes with partition files)"
            )
        return found

    def options(self) -> dict[str, Any]:
        """Return the options of the method that are set."""
        method = method_named(self.method)
        names = ("epsilon", "epochs", "n_factors", "learning_rate", "reg", "threshold")
        given = {name: getattr(self, name) for name in names if getattr(self, name)}
        return method.own(**given)


app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Train as the run config says, and write the result and the item factors."""
    config = RunConfig.of(dict(context.run_config))
    begin = time.monotonic()
    setup, items, scale = _run(config)
    model = setup.model
    plan, mechanism, h_per_item = model.setup(len(items), scale)
    # What it draws is sent to all clients: nobody has to be kept from guessing it.
    noise = SeededNoise(setup.seed if setup.data else seed_of(None), RECOMMENDER_STREAM)
    nodes = _Nodes(grid, config.nodes, setup)
    for final in Recommender(plan, mechanism, noise, h_per_item).train(nodes.ask):
        _log.info("round %d of %d", final.number - 1, plan.epochs)
    claim = claim_of(METHODS[config.method], plan.epsilon)
    outcome = {
        "method": config.method,
        "data": config.data or config.items,
        "nodes": config.nodes,
        "rounds": plan.epochs,
        **nodes.errors(final),
        "epsilon": claim.epsilon,
        "status": claim.status,
        "view": claim.view,
        "reason": claim.reason,
        "seconds": time.monotonic() - begin,
    }
    output, table = Path(config.output), io.BytesIO()
    np.savez(table, items=items.ids, factors=final.item_factors, raters=final.raters)
    atomic_write(output.with_suffix(".npz"), table.getvalue())
    atomic_write(output, msgspec.json.format(msgspec.json.encode(outcome), indent=1))


def _run(config: RunConfig) -> tuple[Setup, IdIndex, RatingScale]:
    """Return what clients are told, the items, and their scale."""
    common: dict[str, Any] = {
        "method": config.method,
        "options": config.options(),
        "hold_out": config.hold_out,
        "seed": config.seed,
    }
    if config.data:
        ratings = load_dataset(config.data)
        setup = Setup(data=config.data, weights=config.weights, shards=config.nodes, **common)
        return setup, ratings.items, ratings.scale
    items = read_item_table(config.items).index
    scale = RatingScale(config.scale_low, config.scale_high, config.scale_step or None)
    told = scale.low, scale.high, scale.step
    return Setup(items=items.ids.tolist(), scale=told, **common), items, scale


class _Nodes:
    """The nodes of a run. Each has a part of the noise, so that all of them have to answer."""

    def __init__(self, grid: Grid, count: int, setup: Setup) -> None:
        self._grid = grid
        self._nodes = _wait_for_nodes(grid, count)
        self._setup = msgspec.msgpack.encode(setup)

    def ask(self, message: ProtocolMessage) -> list[Any]:
        """Send all clients a message of the recommender and return their replies, without order."""
        replies = self._exchange("train", message, bytes)
        self._setup = b""  # they have it now
        return [decode(reply) for reply in replies if reply]

    def errors(self, final: Round) -> dict[str, Any]:
        """Return the errors of all nodes' predictions together."""
        found = self._exchange("evaluate", final, Errors)
        n = sum(each.n for each in found)
        names = ("mse", "mae", "user_mean_mse")
        return {"n": n} | {
            name: sum(each.n * getattr(each, name) for each in found) / n if n else None
            for name in names
        }

    def _exchange(self, kind: str, message: ProtocolMessage, answer: type[T]) -> list[T]:
        data = encode(message)
        replies = list(
            self._grid.send_and_receive(
                [
                    Message(pack(Asked(data, self._setup, shard)), node, kind)
                    for shard, node in enumerate(self._nodes)
                ],
                timeout=_REPLY_SECONDS,
            )
        )
        for reply in replies:
            if reply.has_error():
                raise FederationError(f"a node failed: {reply.error.reason}")
        if len(replies) < len(self._nodes):
            raise FederationError(
                f"{len(replies)} of {len(self._nodes)} nodes answered within {_REPLY_SECONDS:g} s"
            )
        return [unpack(reply.content, answer) for reply in replies]


def _wait_for_nodes(grid: Grid, count: int) -> list[int]:
    end = time.monotonic() + _START_SECONDS
    while len(nodes := sorted(grid.get_node_ids())) < count:
        if time.monotonic() >= end:
            raise FederationError(
                f"{len(nodes)} of {count} nodes are connected after {_START_SECONDS:g} s"
            )
        time.sleep(_POLL_SECONDS)
    return nodes[:count]
