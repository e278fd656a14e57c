"""Devices in the recommender's own process: for tests and for simulations of thousands of them."""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor

from hdpmf.common.net.interface import MAX_BYTES, Answer, DeviceReply, Patience, check_sizes

_log = logging.getLogger(__name__)


class InProcessNetwork:
    """The recommender's end, with every device's answer a function call away.

    Args:
        answers: A device's answer by its roster name.
        threads: With 0, devices answer one after another in the caller's thread, in the order of
            the messages, so that a run can be repeated bit for bit; a slow device then holds up
            those after it. With more, so many answer at the same time and replies come in any
            order.
        lost: Asked with the device's name on every message and again on every reply; what it says
            yes to is dropped.
        max_bytes: The size limit, both ways.
    """

    def __init__(
        self,
        answers: Mapping[str, Answer],
        *,
        threads: int = 0,
        lost: Callable[[str], bool] | None = None,
        max_bytes: int = MAX_BYTES,
    ) -> None:
        self._devices = {name: _Device(name, answer) for name, answer in answers.items()}
        self._pool = (
            ThreadPoolExecutor(threads, thread_name_prefix="device") if threads > 0 else None
        )
        self._lost = lost if lost is not None else _nothing_lost
        self._max_bytes = max_bytes

    def attach(self, name: str, answer: Answer) -> None:
        """A device has come, or come back with another state."""
        self._devices[name] = _Device(name, answer)

    def detach(self, name: str) -> None:
        """A device has gone."""
        self._devices.pop(name, None)

    def present(self) -> frozenset[str]:
        """Roster names of the devices that are here now."""
        return frozenset(self._devices)

    def exchange(self, messages: Mapping[str, bytes], deadline: float) -> Iterator[DeviceReply]:
        """As in ``RecommenderTransport``."""
        check_sizes(messages, self._max_bytes)
        if self._pool is None:
            return self._one_by_one(messages, deadline)
        return self._at_once(self._pool, messages, deadline)

    def close(self) -> None:
        """Devices may finish what they are at; nobody waits for it."""
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)
        self._devices.clear()

    def _one_by_one(self, messages: Mapping[str, bytes], deadline: float) -> Iterator[DeviceReply]:
        end = time.monotonic() + deadline
        for name, message in messages.items():
            if time.monotonic() >= end:
                return
            reply = self._deliver(name, message)
            if reply is not None and time.monotonic() < end:
                yield DeviceReply(name, reply)

    def _at_once(
        self, pool: ThreadPoolExecutor, messages: Mapping[str, bytes], deadline: float
    ) -> Iterator[DeviceReply]:
        patience = Patience(deadline)
        over = threading.Event()
        replies: queue.SimpleQueue[tuple[str, bytes | None]] = queue.SimpleQueue()

        def deliver(name: str, message: bytes) -> None:
            replies.put((name, None if over.is_set() else self._deliver(name, message, over)))

        try:
            for name, message in messages.items():
                pool.submit(deliver, name, message)
                patience.sent(name)
            missing = set(messages)
            while missing:
                try:
                    name, reply = replies.get(timeout=max(0.0, patience.left))
                except queue.Empty:
                    missing -= set(patience.over())
                    continue
                if name in missing:
                    missing.discard(name)
                    patience.answered(name)
                    if reply is not None:
                        yield DeviceReply(name, reply)
        finally:
            over.set()  # late replies stay in a queue that nobody reads again

    def _deliver(
        self, name: str, message: bytes, over: threading.Event | None = None
    ) -> bytes | None:
        device = self._devices.get(name)
        if device is None or self._lost(name):
            return None
        reply = device.answer_to(message, over)
        if reply is not None and len(reply) > self._max_bytes:
            _log.warning(
                "device %.16s: its reply of %d bytes is too long and was dropped", name, len(reply)
            )
            return None
        return None if reply is None or self._lost(name) else reply


class _Device:
    """One message at a time, as on a machine of its own."""

    def __init__(self, name: str, answer: Answer) -> None:
        self._name = name
        self._answer = answer
        self._turn = threading.Lock()

    def answer_to(self, message: bytes, over: threading.Event | None) -> bytes | None:
        with self._turn:
            if over is not None and over.is_set():
                # the message waited until nobody wanted its reply: it is not delivered at all
                return None
            try:
                return self._answer(message)
            except Exception as error:  # whatever a device does wrong is its own affair
                _log.warning("device %.16s failed to answer (%s)", self._name, type(error).__name__)
                return None


def _nothing_lost(_: str) -> bool:
    return False
