"""The private side as a Flower ClientApp, and the records that both halves of the app exchange.

Each message is answered by a device restored from its state, on whichever worker is free. A
simulated device is bytes in ``context.state`` between two messages. A silo is a device store on the
SuperNode's own disk, named by its node config: ``--node-config 'store="/srv/silo.store"'``.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeVar

import msgspec
from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp

from hdpmf.common.net.carrier import FilesHere
from hdpmf.common.protocol.servers import Servers
from hdpmf.errors import ConfigError, ProtocolError
from hdpmf.lab.simulate.virtual_device import PublicFacts, VirtualDevice
from hdpmf.private.device.participant import Participant
from hdpmf.private.device.store.catalogues import PinnedRoster
from hdpmf.private.device.store.device_store import DeviceStore

_RECORD, _FIELD = "hdpmf", "data"

T = TypeVar("T")


class ReportTask(msgspec.Struct, frozen=True):
    """A task of two servers: the pair that simulated devices trust, and the time."""

    servers: Servers
    now: float


class Question(msgspec.Struct, frozen=True):
    """Sent to a node.

    Attributes:
        public: Facts that all simulated devices share; of these a silo takes the roster.
        message: The recommender's message to the device.
        files: The files that the recommender publishes, to learn from or with a task in them.
        task: For a report.
        device: The simulated device itself, with the first message that it gets.
    """

    public: PublicFacts
    message: bytes = b""
    files: dict[str, bytes] = {}
    task: ReportTask | None = None
    device: bytes = b""


class Card(msgspec.Struct, frozen=True):
    """A silo, as the roster lists it."""

    identity: str
    users: int


class UserVectors(msgspec.Struct, frozen=True):
    """The user vectors of a simulated device, float32, one after the other."""

    users: list[str]
    vectors: bytes


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


_log = logging.getLogger(__name__)

app = ClientApp()


@app.query("card")
def card(message: Message, context: Context) -> Message:
    """Return the silo's card for the roster."""
    with _silo(context) as store:
        return Message(pack(Card(store.identity.public.hex(), store.users)), reply_to=message)


@app.query("answer")
def answer(message: Message, context: Context) -> Message:
    """Return a device's reply to a message of the recommender."""
    question = unpack(message.content, Question)
    if "store" in context.node_config:
        with _silo(context) as store, _participant(store, question, context) as silo:
            return Message(pack(silo.answer(question.message)), reply_to=message)
    with _simulated(question, context) as device:
        return Message(pack(device.answer(question.message)), reply_to=message)


@app.query("learn")
def learn(message: Message, context: Context) -> Message:
    """Let a device learn from the files that the recommender publishes."""
    question = unpack(message.content, Question)
    if "store" in context.node_config:
        with _silo(context) as store, _participant(store, question, context) as silo:
            silo.look()
    else:
        with _simulated(question, context) as device:
            device.learn(question.files)
    return Message(pack(b""), reply_to=message)


@app.query("report")
def report(message: Message, context: Context) -> Message:
    """Return a simulated device's reports to two servers, whose keys they are encrypted to."""
    question = unpack(message.content, Question)
    task = question.task
    if task is None:
        raise ConfigError("a report needs a task")
    with _simulated(question, context) as device:
        sent = device.reports(task.servers, question.files, task.now)
        return Message(pack(sent), reply_to=message)


@app.query("vectors")
def vectors(message: Message, context: Context) -> Message:
    """Return a simulated device's user vectors, by which a simulation measures its model."""
    with _simulated(unpack(message.content, Question), context) as device:
        found = device.vectors
    reply = (
        UserVectors([], b"") if found is None else UserVectors(found.users, found.vectors.tobytes())
    )
    return Message(pack(reply), reply_to=message)


@contextmanager
def _simulated(question: Question, context: Context) -> Iterator[VirtualDevice]:
    """Make the device that this node is: the server app deals it with its first message."""
    if "store" in context.node_config:
        raise ConfigError("this node has a store of its own, which takes part in no simulation")
    device = VirtualDevice.from_bytes(
        question.device or unpack(context.state, bytes), question.public
    )
    try:
        yield device
        context.state.update(pack(device.to_bytes()))
    finally:
        device.close()


@contextmanager
def _silo(context: Context) -> Iterator[DeviceStore]:
    if "store" not in context.node_config:
        raise ConfigError("this node has no store: start it with --node-config 'store=\"PATH\"'")
    with DeviceStore.open(str(context.node_config["store"]), serving=True) as store:
        yield store


@contextmanager
def _participant(store: DeviceStore, question: Question, context: Context) -> Iterator[Participant]:
    """Make the participant of a silo; only a masked sum under way is in the node's memory."""
    if question.public.roster:
        roster = PinnedRoster.from_bytes(question.public.roster)
        store.pin_roster(roster.roster.keys, roster.users)
    agent = Participant(store, FilesHere(question.files), log=_log.warning)
    if context.state:
        agent.resume(unpack(context.state, bytes))
    yield agent
    agent.settle()
    context.state.update(pack(agent.suspend()))
