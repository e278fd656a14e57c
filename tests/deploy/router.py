"""A router between hosts in user space: what ``tc netem`` would do, on kernels that have no netem
either.

Every host's interface is a TUN device, whose other end is here. Each packet waits for ``delay``
seconds, and some are lost.
"""

from __future__ import annotations

import contextlib
import fcntl
import heapq
import os
import random
import select
import struct
import threading
import time
from ipaddress import IPv4Address
from typing import Self

DEVICE = "/dev/net/tun"
_TUNSETIFF, _TUN, _NO_HEADER = 0x400454CA, 0x0001, 0x1000
_MOST = 65_536


class Router:
    """Use as a context, after all ports are open.

    Args:
        delay: Seconds from one host to another.
        loss: Share of packets that get lost. Which ones is drawn from a fixed seed.

    Attributes:
        carried: Packets that arrived.
        lost: Packets that did not.
    """

    def __init__(self, delay: float, loss: float) -> None:
        self._delay, self._loss = delay, loss
        self._drawn = random.Random(7)
        self._ports: dict[bytes, int] = {}
        self._cut: set[int] = set()
        self._under_way: list[tuple[float, int, int, bytes]] = []  # due, order, whereto, packet
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, name="router", daemon=True)
        self.carried = self.lost = 0

    def port(self, name: str, address: str) -> None:
        """Make an interface of this name, here, whose packets come to this router; it may move
        elsewhere.
        """
        file = os.open(DEVICE, os.O_RDWR | os.O_NONBLOCK)
        self._ports[IPv4Address(address).packed] = file
        fcntl.ioctl(file, _TUNSETIFF, struct.pack("16sH22x", name.encode(), _TUN | _NO_HEADER))

    def link(self, address: str, up: bool) -> None:
        """Pull a plug, or put it back."""
        file = self._ports[IPv4Address(address).packed]
        (self._cut.discard if up else self._cut.add)(file)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()
        for file in self._ports.values():
            os.close(file)

    def _run(self) -> None:
        poll = select.poll()
        for file in self._ports.values():
            poll.register(file, select.POLLIN)
        while not self._end.is_set():
            wait = self._under_way[0][0] - time.monotonic() if self._under_way else 0.1
            for file, _ in poll.poll(max(min(wait, 0.1) * 1000, 0)):
                self._take(file)
            while self._under_way and self._under_way[0][0] <= time.monotonic():
                _, _, target, packet = heapq.heappop(self._under_way)
                if target not in self._cut:
                    with contextlib.suppress(OSError):  # an interface that is down
                        os.write(target, packet)

    def _take(self, file: int) -> None:
        with contextlib.suppress(BlockingIOError, OSError):
            packet = os.read(file, _MOST)
            target = (
                self._ports.get(packet[16:20]) if packet[0] >> 4 == 4 else None
            )  # version 4, its destination
            if target is None or file in self._cut:
                return
            if self._drawn.random() < self._loss:
                self.lost += 1
                return
            self.carried += 1
            heapq.heappush(
                self._under_way, (time.monotonic() + self._delay, self.carried, target, packet)
            )
