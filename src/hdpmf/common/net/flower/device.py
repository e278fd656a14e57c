"""A device's end of Flower: our own loop, which runs only what is installed here."""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from hdpmf.common.net.certificates import check_authority
from hdpmf.common.net.interface import MAX_BYTES, Answer
from hdpmf.common.net.keys import NodeKey
from hdpmf.common.protocol.addresses import check_address
from hdpmf.errors import HdpmfError, TransportError

if TYPE_CHECKING:
    from hdpmf.common.net.flower.fleet import Fleet
    from hdpmf.common.net.flower.wires import Wires

_log = logging.getLogger(__name__)

HEARTBEAT = 10.0
"""Seconds between signs of life: the least that Flower allows. A crashed device can come back
after twice as long.
"""

# how long one question for messages may take; less by a draw, so that devices do not ask together
_WAIT = 15.0
# from ``stop`` on: until the server has to be done with what is under way, and again for a goodbye
_LEAVING = 1.0
_LAST_REPLY = 5.0  # the same where ``stop`` came with an answer, which still has to go out
_LOOK = 0.1
_POLL = 0.1  # pause after an empty answer that came at once: a server that does not wait for us
_FIRST_PAUSE = 0.2
_LONGEST_PAUSE = 5.0


class FlowerDevice:
    """Answers messages that come over Flower.

    Args:
        address: ``host:port`` of the recommender.
        authority: The recommender's authority (PEM), handed over when the device was enrolled.
        key: The device's key for the engine; its public part is on the recommender's roster.
        heartbeat: Seconds between signs of life.
        max_bytes: The size limit, both ways.
        plain_flower: The server is a SuperLink without our gate (see ``Fleet``).
        follow: What to trust from now on, after what the recommender has told about its authorities
            (``succession``); whatever it raises is said, and nothing changes.
        log: Told how the connection is, in lines for the device's owner; by default this module's
            log is.
    """

    def __init__(
        self,
        address: str,
        authority: bytes,
        key: NodeKey,
        *,
        heartbeat: float = HEARTBEAT,
        max_bytes: int = MAX_BYTES,
        plain_flower: bool = False,
        follow: Callable[[bytes], bytes] | None = None,
        log: Callable[[str], None] | None = None,
    ) -> None:
        self._address = check_address(address)
        check_authority(authority)
        self._authority = authority
        self._key = key
        self._heartbeat = heartbeat
        self._max_bytes = max_bytes
        self._plain_flower = plain_flower
        self._follow = follow
        self._log = log
        self._last_trouble = ""

    def serve(self, answer: Answer, stop: threading.Event) -> None:
        """As in ``DeviceTransport``: until ``stop``, whatever the network or the recommender do."""
        from hdpmf.common.net.flower.wires import Wires

        wires = Wires()
        with _Departure(wires, stop) as departure:
            self._serve(wires, departure, answer, stop)

    def _serve(
        self, wires: Wires, departure: _Departure, answer: Answer, stop: threading.Event
    ) -> None:
        from hdpmf.common.net.flower.fleet import Fleet

        pause = _FIRST_PAUSE
        fleet: Fleet | None = None
        while not stop.is_set():
            try:
                with Fleet(
                    self._address,
                    self._authority,
                    self._key,
                    heartbeat=self._heartbeat,
                    wait=_WAIT * random.uniform(0.7, 1.0),
                    max_bytes=self._max_bytes,
                    before=fleet,
                    wires=wires,
                    plain_flower=self._plain_flower,
                ) as fleet:
                    self._say("connected to %s", self._address)
                    pause = _FIRST_PAUSE
                    self._learn(fleet)
                    self._answer_messages(fleet, departure.waits_for(answer), stop)
            except TransportError as error:
                self._say("%s; trying again", error)
                # Not all at once: a thousand devices that were cut off together must not come back
                # together.
                stop.wait(pause * random.uniform(0.5, 1.0))
                pause = min(2 * pause, _LONGEST_PAUSE)

    def _learn(self, fleet: Fleet) -> None:
        """Once in a connection: whoever changes authorities starts anew."""
        told = None if self._follow is None else fleet.authorities()
        if self._follow is None or told is None:
            return
        try:
            self._authority = self._follow(told)
        except HdpmfError as error:
            _log.warning("%s", error)

    def _answer_messages(self, fleet: Fleet, answer: Answer, stop: threading.Event) -> None:
        with _Heart(fleet, self._heartbeat) as heart:
            while not stop.is_set():
                heart.check()
                asked = time.monotonic()
                pending = fleet.receive()
                if pending is not None:
                    data = fleet.open(pending)
                    if data is not None:
                        fleet.reply(pending, self._reply_to(data, answer))
                elif time.monotonic() - asked < _POLL:
                    stop.wait(_POLL)

    def _reply_to(self, message: bytes, answer: Answer) -> bytes | None:
        try:
            reply = answer(message)
        except Exception as error:  # a fault of ours must not end the loop, and its text stays here
            _log.error(
                "a message of %d bytes could not be answered (%s)",
                len(message),
                type(error).__name__,
            )
            return None
        if len(reply) > self._max_bytes:
            _log.error(
                "a reply of %d bytes is longer than the limit of %d and stays here",
                len(reply),
                self._max_bytes,
            )
            return None
        return reply

    def _say(self, words: str, *values: object) -> None:
        """Once, not at every attempt."""
        text = words % values
        if text != self._last_trouble:
            self._last_trouble = text
            if self._log is None:
                _log.info("%s", text)
            else:
                self._log(text)


class _Departure:
    """Sees to it that ``stop`` is noticed: a server that answers byte by byte, or never, is not
    waited for.
    """

    def __init__(self, wires: Wires, stop: threading.Event) -> None:
        self._wires = wires
        self._stop = stop
        self._patience = _LEAVING
        self._answering = False
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="departure", daemon=True)

    def __enter__(self) -> _Departure:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()

    def waits_for(self, answer: Answer) -> Answer:
        """The same answers. While one is made here no time is counted, and the reply to the last
        one goes out.
        """

        def made(message: bytes) -> bytes:
            stopped, self._answering = self._stop.is_set(), True
            try:
                return answer(message)
            finally:
                if self._stop.is_set() and not stopped:
                    self._patience = _LAST_REPLY
                self._answering = False

        return made

    def _watch(self) -> None:
        steps = [self._wires.end, self._wires.cut]  # the last one first
        waited = 0.0
        while not self._stop.wait(_LEAVING):  # it need not look as often as long as nobody leaves
            if self._end.is_set():
                return
        while steps and not self._end.wait(_LOOK):
            if self._stop.is_set() and not self._answering:
                waited += _LOOK
                if waited >= self._patience:
                    steps.pop()()
                    waited, self._patience = 0.0, _LEAVING


class _Heart:
    """Signs of life from a thread of its own, so that a long answer does not look like a crash."""

    def __init__(self, fleet: Fleet, seconds: float) -> None:
        self._fleet = fleet
        # The server waits for two intervals, so one lost sign of life does not cost the connection.
        self._seconds = 0.8 * seconds
        self._end = threading.Event()
        self._trouble: TransportError | None = None
        self._thread = threading.Thread(target=self._beat, name="heartbeat", daemon=True)

    def __enter__(self) -> _Heart:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join(timeout=self._seconds)

    def check(self) -> None:
        """Raise what went wrong, if anything did."""
        if self._trouble is not None:
            raise self._trouble

    def _beat(self) -> None:
        while not self._end.wait(self._seconds):
            try:
                if not self._fleet.is_heard:
                    self._fleet.beat()
            except TransportError as error:
                self._trouble = error
                return
