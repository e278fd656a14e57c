"""Strangers hold so many connections, from one address and in all, and each for so long; devices
are not counted.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Iterator

import pytest

from hdpmf.common.net.flower.doors import Listener, Visitors


class Door:
    """A listener on loopback, and who knocks."""

    def __init__(self, **limits: float) -> None:
        self.visitors = Visitors(**limits)  # type: ignore[arg-type]
        self._stack = contextlib.ExitStack()
        self.listener = self._stack.enter_context(Listener(socket.AF_INET, socket.SOCK_STREAM))
        self.listener.visitors = self.visitors
        self.listener.bind(("127.0.0.1", 0))
        self.listener.listen()

    def knock(
        self, source: str = "127.0.0.1"
    ) -> tuple[socket.socket, socket.socket | None, tuple[str, int]]:
        """The caller's end, ours where it was let in, and the caller's place."""
        caller = self._stack.enter_context(socket.socket())
        caller.bind((source, 0))
        caller.settimeout(5.0)
        caller.connect(self.listener.getsockname())
        try:
            visit, _ = self.listener.accept()
        except ConnectionAbortedError:
            assert caller.recv(1) == b""  # hung up on at once
            return caller, None, caller.getsockname()
        return caller, self._stack.enter_context(visit), caller.getsockname()

    def close(self) -> None:
        self._stack.close()


@pytest.fixture
def door() -> Iterator[Door]:
    made = Door(per_address=3, in_all=5)
    yield made
    made.close()


def test_one_address_holds_so_many(door: Door) -> None:
    assert all(door.knock()[1] for _ in range(3))
    assert door.knock()[1] is None
    assert door.knock("127.0.0.2")[1] is not None  # others come in all the same


def test_all_together_hold_so_many(door: Door) -> None:
    assert all(door.knock(f"127.0.0.{number}")[1] for number in range(2, 7))
    assert door.knock("127.0.0.9")[1] is None


def test_a_device_is_no_stranger_and_a_closed_connection_is_none(door: Door) -> None:
    _, _, known = door.knock()
    _, closed, _ = door.knock()
    door.knock()
    assert door.knock()[1] is None
    door.visitors.is_known(known)
    door.visitors.is_known(known)  # twice makes no second place
    assert door.knock()[1] is not None
    assert door.knock()[1] is None
    assert closed is not None
    closed.close()
    assert door.knock()[1] is not None
    assert door.knock()[1] is None
    door.visitors.is_known(None)  # a connection without an address


def test_a_stranger_is_cut_when_it_stays_and_a_device_is_not() -> None:
    door = Door(patience=0.1)
    stranger, _, _ = door.knock()
    device, _, known = door.knock()
    door.visitors.is_known(known)
    late, visit, _ = door.knock()
    visit.since += 60.0  # type: ignore[union-attr]  # it came a minute later

    async def watch() -> None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(door.visitors.watch(), 0.4)

    asyncio.run(watch())
    assert stranger.recv(1) == b""
    for stays in (device, late):
        stays.settimeout(0.05)
        with pytest.raises(TimeoutError):
            stays.recv(1)
    door.close()
