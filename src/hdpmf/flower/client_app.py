"""The private side as a Flower ClientApp, and the records that both halves of the app exchange.

A client holds a shard of ratings and no store. The shard is a file on the SuperNode's own disk,
named by its node config (``partition="/srv/ratings.csv"``, and ``weights="/srv/weights.csv"`` if
wished), or in a simulation some users of a data set. Between two messages a client is arrays in
``context.state``, and any free worker goes on with it.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeVar

import msgspec
import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp

from hdpmf.common.base.threads import Workers
from hdpmf.common.data import IdIndex, Ratings, RatingScale, load_dataset
from hdpmf.common.privacy import PrivacySpec, PrivacyWeights
from hdpmf.common.privacy.sampling import Noise, ReleasedNoise, SeededNoise, seed_of
from hdpmf.common.protocol import Opening, Plan, Round, decode, encode
from hdpmf.errors import ConfigError, ProtocolError
from hdpmf.models import make_model
from hdpmf.models.factorization import Factorization
from hdpmf.models.training import CLIENT_STREAM
from hdpmf.private.client import Devices, GradientClient
from hdpmf.untrusted.recommender import Catalogue

_RECORD, _FIELD, _ARRAYS = "hdpmf", "data", "client"

T = TypeVar("T")


class Setup(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The run, as clients are told before the plan.

    Attributes:
        method: One of the paper's.
        options: Arguments of its estimator.
        hold_out: Ratings of each user that are not trained on, but predicted in the end.
        data: In a simulation: a data set whose users are dealt to so many ``shards``.
        weights: In a simulation: ``paper`` (random groups) or ``uniform``.
        seed: In a simulation: of all draws.
        items: The items, in their order, of partition files.
        scale: Of these: low, high and, where there is one, the step.
    """

    method: str
    options: dict[str, Any]
    hold_out: int
    data: str = ""
    weights: str = "paper"
    seed: int = 0
    shards: int = 1
    items: list[int | str] = []
    scale: tuple[float, float, float | None] = (1.0, 5.0, None)

    @property
    def model(self) -> Factorization:
        """A model of the method.

        Raises:
            ConfigError: It is not one of the paper's, or does not train by rounds.
        """
        model = make_model(self.method, **self.options)
        if not isinstance(model, Factorization) or self.method == "hdpmf-paid":
            raise ConfigError(
                f"{self.method} does not train over machines; choose hdpmf, hdpmf-w, hdpmf-r, "
                "pdpmf, dpmf or mf"
            )
        return model


class Asked(msgspec.Struct, frozen=True):
    """Sent to a node: a message of the recommender; a `Setup` and the shard with the first."""

    message: bytes
    setup: bytes = b""
    shard: int = 0


class Errors(msgspec.Struct, frozen=True):
    """The errors on the ratings that a node has held out, and those of its users' own means."""

    n: int
    mse: float = 0.0
    mae: float = 0.0
    user_mean_mse: float = 0.0


class _Kept(msgspec.Struct, frozen=True):
    """What a node has been told: a `Setup`, its shard, and two messages of the recommender."""

    setup: bytes
    shard: int
    plan: bytes = b""
    opening: bytes = b""


def pack(value: object) -> RecordDict:
    """Return a value as the content of a Flower message or as a node's state."""
    return RecordDict({_RECORD: ConfigRecord({_FIELD: msgspec.msgpack.encode(value)})})


def unpack(content: RecordDict, kind: type[T]) -> T:
    """Return the value that `pack` was given.

    Raises:
        ProtocolError: It is something else.
    """
    record = content.get(_RECORD)
    data = record.get(_FIELD) if isinstance(record, ConfigRecord) else None
    try:
        return msgspec.msgpack.decode(data if isinstance(data, bytes) else b"", type=kind)
    except msgspec.MsgspecError as error:
        raise ProtocolError(f"a Flower message has no {kind.__name__} in it: {error}") from None


app = ClientApp()


@app.train()
def train(message: Message, context: Context) -> Message:
    """Answer a message of the recommender; what it asks no reply to is answered with nothing."""
    asked = unpack(message.content, Asked)
    kept = _Kept(asked.setup, asked.shard) if asked.setup else unpack(context.state, _Kept)
    said = decode(asked.message)
    with _workers(kept) as workers:
        client = _client(kept, context, workers)
        reply = client.answer(said)
        match said:
            case Plan():
                kept = msgspec.structs.replace(kept, plan=asked.message)
            case Opening():
                kept = msgspec.structs.replace(kept, opening=asked.message)
        context.state.update(pack(kept))
        if kept.opening:
            arrays = {name: Array(array) for name, array in client.state().items()}
            context.state[_ARRAYS] = ArrayRecord(arrays)
    return Message(pack(b"" if reply is None else encode(reply)), reply_to=message)


@app.evaluate()
def evaluate(message: Message, context: Context) -> Message:
    """Return the errors of predictions by the final factors."""
    kept, final = unpack(context.state, _Kept), decode(unpack(message.content, Asked).message)
    if not isinstance(final, Round):
        raise ProtocolError(f"the final factors come in a Round, not in a {type(final).__name__}")
    shard, model = _shard(kept, context), _setup(kept.setup).model
    ratings, weights = shard.train, shard.weights
    with _workers(kept) as workers:
        vectors = _client(kept, context, workers).vectors
    beta, gamma = weights.for_users(ratings.users), weights.for_items(ratings.items)
    model.devices_ = Devices.after_training(ratings, vectors, beta, gamma)
    model.catalogue_ = Catalogue(ratings.items, final.item_factors, final.raters, ratings.scale)
    found = Errors(0)
    if len(shard.test):
        error = model.score(shard.test)
        means = make_model("user-mean").fit(ratings).score(shard.test)
        found = Errors(
            int(error["n"]), float(error["mse"]), float(error["mae"]), float(means["mse"])
        )
    return Message(pack(found), reply_to=message)


@dataclass(frozen=True, slots=True, repr=False)
class _Shard:
    """A client's ratings, over the items of the whole catalogue. PRIVATE."""

    train: Ratings
    test: Ratings
    weights: PrivacyWeights


def _workers(kept: _Kept) -> Workers:
    return Workers(1 if _setup(kept.setup).data else None)  # a simulation has many clients at once


def _client(kept: _Kept, context: Context, workers: Workers) -> GradientClient:
    """Return the client as its last answer left it."""
    shard, setup = _shard(kept, context), _setup(kept.setup)
    _, mechanism, _ = setup.model.setup(shard.train.n_items, shard.train.scale)
    noise: Noise = ReleasedNoise()
    seed = seed_of(None)
    if setup.data:
        noise, seed = SeededNoise(setup.seed, CLIENT_STREAM + kept.shard), setup.seed
    client = GradientClient(shard.train, shard.weights, mechanism, noise, seed, workers)
    plan = decode(kept.plan) if kept.plan else None
    opening = decode(kept.opening) if kept.opening else None
    match plan, opening, context.state.get(_ARRAYS):
        case Plan(), Opening(), ArrayRecord() as arrays:
            client.resume(plan, opening, {name: each.numpy() for name, each in arrays.items()})
        case Plan(), None, _:
            client.accept(plan)
    return client


@lru_cache(maxsize=2)
def _setup(data: bytes) -> Setup:
    try:
        return msgspec.msgpack.decode(data, type=Setup)
    except msgspec.MsgspecError as error:
        raise ProtocolError(f"this is no setup of a run: {error}") from None


def _shard(kept: _Kept, context: Context) -> _Shard:
    path, simulated = context.node_config.get("partition"), bool(_setup(kept.setup).data)
    if simulated and path is not None:
        raise ConfigError("this node has ratings of its own, which take part in no simulation")
    if simulated:
        return _dealt(kept.setup, kept.shard)
    if path is None:
        raise ConfigError(
            "this node has no ratings: start it with --node-config 'partition=\"PATH\"'"
        )
    return _read(kept.setup, str(path), str(context.node_config.get("weights", "")))


@lru_cache(maxsize=1)
def _read(told: bytes, path: str, weights: str) -> _Shard:
    """Return the shard in a file; every rating has weight 1 where there is no file of weights."""
    setup = _setup(told)
    low, high, step = setup.scale
    ratings = Ratings.read(path, scale=RatingScale(low, high, step)).over(setup.items)
    train, test = _held_out(ratings, setup)
    if weights:
        return _Shard(train, test, PrivacyWeights.from_frame(ratings, weights))
    return _Shard(train, test, PrivacyWeights.uniform(ratings))


def _dealt(told: bytes, number: int) -> _Shard:
    """Return a shard of a data set: every so-manieth user."""
    everyone, shards = _data_set(told), _setup(told).shards
    users = everyone.train.users
    here = np.arange(len(users)) % shards == number
    own = IdIndex(users.ids[here])
    train, test = (
        part.take(here[part.user_codes]).reindex(own, part.items)
        for part in (everyone.train, everyone.test)
    )
    return _Shard(train, test, everyone.weights)


@lru_cache(maxsize=1)
def _data_set(told: bytes) -> _Shard:
    setup = _setup(told)
    train, test = _held_out(load_dataset(setup.data), setup)
    if setup.weights == "paper":
        return _Shard(train, test, PrivacySpec().draw(train, setup.seed))
    return _Shard(train, test, PrivacyWeights.uniform(train))


def _held_out(ratings: Ratings, setup: Setup) -> tuple[Ratings, Ratings]:
    if setup.hold_out:
        return ratings.hold_out(setup.hold_out, rng=setup.seed)
    return ratings, ratings.take(np.zeros(len(ratings), bool))
