"""Connections that strangers may hold: how many, and for how long. Devices and the recommender's
own link are apart.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from collections import Counter
from typing import Any

PER_ADDRESS = 128
IN_ALL = 512
"""Connections on which no enrolled device has called yet."""
PATIENCE = 10.0
"""Seconds until a connection on which no enrolled device has called is cut."""


class Visitors:
    """The connections of one listener.

    Args:
        per_address: Connections of strangers, from one address.
        in_all: From all.
        patience: Seconds that each may last.
    """

    def __init__(
        self, per_address: int = PER_ADDRESS, in_all: int = IN_ALL, patience: float = PATIENCE
    ) -> None:
        self._per_address = per_address
        self._in_all = in_all
        self._patience = patience
        self._strangers: dict[tuple[str, int], _Visit] = {}
        self._by_address: Counter[str] = Counter()

    def takes(self, place: tuple[str, int]) -> bool:
        """Whether one more from there is let in."""
        return (
            len(self._strangers) < self._in_all and self._by_address[place[0]] < self._per_address
        )

    def came(self, place: tuple[str, int], visit: _Visit) -> None:
        """A connection."""
        self._strangers[place] = visit
        self._by_address[place[0]] += 1

    def is_known(self, place: tuple[str, int] | None) -> None:
        """An enrolled device has called on this connection (or it is gone): it counts no more."""
        if place is not None and self._strangers.pop((place[0], place[1]), None) is not None:
            self._by_address[place[0]] -= 1
            if not self._by_address[place[0]]:
                del self._by_address[place[0]]

    async def watch(self) -> None:
        """Cut those that stay too long, for ever."""
        while True:
            await asyncio.sleep(min(1.0, self._patience / 2))
            before = time.monotonic() - self._patience
            for place, visit in list(self._strangers.items()):
                if visit.since < before:
                    self.is_known(place)
                    with contextlib.suppress(OSError):
                        visit.shutdown(socket.SHUT_RDWR)


class _Visit(socket.socket):
    """A connection that says when it is closed."""

    def __init__(
        self, listener: socket.socket, visitors: Visitors, place: tuple[str, int], fileno: int
    ) -> None:
        super().__init__(listener.family, listener.type, listener.proto, fileno=fileno)
        self.since = time.monotonic()
        self._visitors = visitors
        self._place = place

    def close(self) -> None:
        self._visitors.is_known(self._place)
        super().close()


class Listener(socket.socket):
    """A listening socket that turns strangers away when there are too many of them."""

    visitors: Visitors

    def accept(self) -> tuple[socket.socket, Any]:
        """The next connection."""
        number, address = self._accept()  # type: ignore[attr-defined]  # as the class that we are made of does it
        place = (str(address[0]), int(address[1]))
        visit = _Visit(self, self.visitors, place, number)
        if not self.visitors.takes(place):
            socket.socket.close(visit)
            raise ConnectionAbortedError("too many strangers")
        self.visitors.came(place, visit)
        return visit, address
