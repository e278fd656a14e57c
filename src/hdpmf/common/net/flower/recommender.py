"""The recommender's end of Flower: exchanges over a run of a SuperLink that is a child of this
process.
"""

from __future__ import annotations

import logging
import secrets
import ssl
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, Self

from hdpmf.common.net.certificates import ensure_certificates
from hdpmf.common.net.flower.device import HEARTBEAT
from hdpmf.common.net.flower.gate import ENVELOPE, MAX_WAIT
from hdpmf.common.net.flower.superlink import SuperLink
from hdpmf.common.net.flower.superlink_process import SuperLinkSettings
from hdpmf.common.net.interface import MAX_BYTES, DeviceReply, Patience, check_sizes
from hdpmf.common.net.keys import check_public_key
from hdpmf.common.net.succession import names_of, told
from hdpmf.errors import ConfigError, TransportError

if TYPE_CHECKING:
    from hdpmf.common.net.flower.link import Link
    from hdpmf.common.net.flower.messages import Incoming, Outgoing

_log = logging.getLogger(__name__)

_LEFTOVER = (
    256 * 1024 * 1024
)  # bytes of unanswered messages after which a new run is started, and memory is freed
_TASK_BEAT = 10.0  # Flower ends a run whose server side was silent for a minute
WINDOW = 64
"""Devices that have a message at a time. More would wait in Flower's memory, where each look
takes time for all.
"""
_REFILL = 0.5  # seconds after which it is seen whether there is room for more
_OS = secrets.SystemRandom()
# a message outlives its exchange by so much, so that a reply at the last moment still counts
_SLACK = 1.0


class Engine(Protocol):
    """What an exchange needs of Flower, deployed or simulated."""

    def send(self, outgoing: Sequence[Outgoing], seconds: float) -> list[str]:
        """Send messages that are forgotten after ``seconds``; the message's id for each, empty
        if it was refused.
        """
        ...

    def pull(self, ids: Iterable[str], wait: float) -> list[Incoming]:
        """Replies that have come since; waits up to ``wait`` seconds for one."""
        ...

    def forget(self, unanswered: Iterable[Outgoing]) -> None:
        """The exchange is over; these messages were not answered."""
        ...


def exchange_over(
    engine: Engine,
    nodes: Mapping[str, int],
    messages: Mapping[str, bytes],
    deadline: float,
    max_bytes: int,
    silent: dict[str, int] | None = None,
) -> Iterator[DeviceReply]:
    """One exchange: ``WINDOW`` devices at a time, in an order that is drawn, so that nobody is
    always last.

    Args:
        engine: Flower.
        nodes: Flower's number of every device that is connected, by its roster name.
        messages: One for each device.
        deadline: Seconds that a device has.
        max_bytes: Of a reply.
        silent: How often each device was silent in a row (``Patience``).
    """
    from hdpmf.common.net.flower.messages import Outgoing

    queue = [
        (name, Outgoing(nodes[name], data, secrets.token_hex(16)))
        for name, data in messages.items()
        if name in nodes
    ]
    _OS.shuffle(queue)
    patience = Patience(deadline, silent)
    waiting: dict[str, tuple[str, Outgoing]] = {}
    unanswered: list[Outgoing] = []
    try:
        while waiting or queue:
            room = WINDOW - patience.at_work()
            if queue and room >= min(len(queue), WINDOW // 2):
                batch, queue = queue[:room], queue[room:]
                ids = engine.send([sent for _, sent in batch], deadline + _SLACK)
                for name, (device, sent) in zip(ids, batch, strict=True):
                    if name:
                        waiting[name] = device, sent
                        patience.sent(device)
                continue
            longest = _REFILL if queue else MAX_WAIT
            for reply in (
                engine.pull(list(waiting), min(max(patience.left, 0.0), longest)) if waiting else ()
            ):
                if reply.to not in waiting:
                    continue
                device, sent = waiting.pop(reply.to)
                patience.answered(device)
                # As bytes: a device may put anything into a token, and texts beyond ASCII cannot be
                # compared this way.
                if not secrets.compare_digest(reply.token.encode(), sent.token.encode()):
                    _log.warning(
                        "a reply in the name of device %.16s was not from it and was dropped",
                        device,
                    )
                elif reply.data is None or len(reply.data) > max_bytes:
                    _log.warning(
                        "device %.16s sent no reply that could be used, or one that is too long",
                        device,
                    )
                else:
                    yield DeviceReply(device, reply.data)
            late = set(patience.over())
            for name in [name for name, (device, _) in waiting.items() if device in late]:
                unanswered.append(waiting.pop(name)[1])
    finally:
        engine.forget([*unanswered, *(sent for _, sent in waiting.values())])


class FlowerRecommender:
    """Starts a SuperLink, and starts it again if it dies.

    Args:
        folder: Where certificates, Flower's own files and the log go.
        port: Port to listen on; 0 for any free one, which then is kept.
        names: Host names and addresses under which devices reach it: the certificate is for these.
        roster: Public node key of every enrolled device, by its roster name.
        heartbeat: Seconds; devices may not ask for signs of life more often.
        max_bytes: The size limit, both ways.
        max_reply: Of replies, where what is asked for is shorter: more of a device's body is not
            read.

    Attributes:
        authority: What devices need to trust this recommender (PEM).
        superlink: The child process.
    """

    def __init__(
        self,
        folder: Path,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        names: Sequence[str] = ("localhost", "127.0.0.1"),
        roster: Mapping[str, str] | None = None,
        heartbeat: float = HEARTBEAT,
        max_bytes: int = MAX_BYTES,
        max_reply: int | None = None,
    ) -> None:
        self._folder = folder
        self._host = host
        self.port = port
        self._heartbeat = heartbeat
        self._max_bytes = max_bytes
        self._max_reply = max_bytes if max_reply is None else min(max_reply, max_bytes)
        self._keys: dict[str, str] = {}
        self._silent: dict[str, int] = {}
        self._certificates = ensure_certificates(folder / "tls", names)
        self.authority = self._certificates.authority.read_bytes()
        self.superlink: SuperLink | None = None
        self._link: Link | None = None
        self._guard = threading.RLock()
        self._closed = threading.Event()
        for name, node in (roster or {}).items():
            self._note(name, node)
        try:
            self._connected()
        except BaseException:
            self.close()
            raise
        self._heart = threading.Thread(target=self._beat, name="run-heartbeat", daemon=True)
        self._heart.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def address(self) -> str:
        """``host:port`` for devices on this machine."""
        return f"{self._host}:{self.port}"

    def admit(self, device: str, node: str) -> None:
        """Let a device connect: its roster name, and the public node key on its card. Again is no
        harm.

        Raises:
            ConfigError: The device is enrolled with another key, the key belongs to another device,
                or it is no key.
        """
        with self._guard:
            if self._note(device, node):
                self._connected().register(self._keys[device])

    def present(self) -> frozenset[str]:
        """As in ``RecommenderTransport``."""
        return frozenset(self._nodes())

    def exchange(self, messages: Mapping[str, bytes], deadline: float) -> Iterator[DeviceReply]:
        """As in ``RecommenderTransport``. If the SuperLink dies meanwhile, who has not answered
        is silent.
        """
        check_sizes(messages, self._max_bytes)
        return self._exchange(messages, deadline)

    def close(self) -> None:
        """End the run and the SuperLink."""
        self._closed.set()
        with self._guard:
            self._give_up_link()
            if self.superlink is not None:
                self.superlink.stop()
                self.superlink = None

    def _exchange(self, messages: Mapping[str, bytes], deadline: float) -> Iterator[DeviceReply]:
        try:
            link, nodes = self._connected(), self._nodes()
            yield from exchange_over(link, nodes, messages, deadline, self._max_reply, self._silent)
        except TransportError as error:
            _log.warning("an exchange was cut short: %s", error)
            self._give_up_link()

    def _nodes(self) -> dict[str, int]:
        try:
            online = self._connected().online()
        except TransportError as error:
            _log.warning("the SuperLink does not answer: %s", error)
            self._give_up_link()
            return {}
        return {name: online[key] for name, key in self._keys.items() if key in online}

    def _note(self, device: str, node: str) -> bool:
        key = check_public_key(node)
        held = self._keys.get(device)
        if held is not None and held != key:
            raise ConfigError(f"device {device[:16]} is enrolled with another node key already")
        if held is None and key in self._keys.values():
            raise ConfigError(
                f"the node key of device {device[:16]} belongs to another device already"
            )
        self._keys[device] = key
        return held is None

    def _connected(self) -> Link:
        """The connection, made again together with what it needs if something broke."""
        from hdpmf.common.net.flower.link import Link

        with self._guard:
            if self._closed.is_set():
                raise TransportError("the recommender's transport is closed")
            fresh = self.superlink is None or not self.superlink.alive
            if self.superlink is None or not self.superlink.alive:
                if self.superlink is not None:
                    _log.warning("the SuperLink has died and is started again")
                    self.superlink.stop()
                self._link = None
                tls = self._folder / "tls"
                settings = SuperLinkSettings(
                    host=self._host,
                    port=self.port,
                    certificate=str(self._certificates.server),
                    key=str(self._certificates.key),
                    authorities=tuple(each.decode("ascii") for each in names_of(tls)),
                    told=told(tls),
                    max_bytes=self._max_bytes + ENVELOPE,
                    max_reply=self._max_reply + ENVELOPE,
                    shortest_heartbeat=self._heartbeat,
                )
                self.superlink = SuperLink(self._folder, settings)
                self.port = self.superlink.port
            if self._link is not None and self._link.leftover > _LEFTOVER:
                self._give_up_link()
            if self._link is None:
                trust = ssl.create_default_context(cadata=self.authority.decode("ascii"))
                trust.check_hostname = (
                    False  # our own child on our own machine, under a name for others
                )
                self._link = Link(
                    f"127.0.0.1:{self.superlink.own_port}",
                    trust,
                    self.superlink.secret,
                    max_bytes=self._max_bytes + ENVELOPE,
                )
            if fresh:
                for key in self._keys.values():
                    self._link.register(key)
                self._link.let_devices_in()
            return self._link

    def _give_up_link(self) -> None:
        with self._guard:
            if self._link is not None:
                self._link.close()
                self._link = None

    def _beat(self) -> None:
        while not self._closed.wait(_TASK_BEAT):
            link = self._link
            if link is None:
                continue
            try:
                link.beat()
            except TransportError as error:
                _log.warning("the run of the SuperLink is lost: %s", error)
                self._give_up_link()
