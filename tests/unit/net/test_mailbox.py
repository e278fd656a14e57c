"""The mailbox behind its routes, without a network: pauses, who is waited for and how long."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator

import httpx
import pytest
from starlette.applications import Starlette

from hdpmf.common.aggregation.masks import DeviceIdentity
from hdpmf.common.net import mailbox as module
from hdpmf.common.net.mailbox import Mailbox
from hdpmf.common.net.signing import (
    CLOCK_HEADER,
    CONTRIBUTION,
    OFFER_HEADER,
    OFFERS,
    PAUSE_HEADER,
    signed_headers,
)

HERE = "films.example"


class Clock:
    """Stands in for the module `time` of the mailbox."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now

    def time(self) -> float:
        return time.time()


class Device:
    """A participant that sends one request after the other."""

    def __init__(self, mailbox: Mailbox) -> None:
        self.identity = DeviceIdentity.generate()
        self.name = self.identity.public.hex()
        self._app = Starlette(routes=mailbox.routes)

    def ask(self, method: str, path: str, body: bytes = b"") -> httpx.Response:
        headers = signed_headers(self.identity, HERE, method, path, body)

        async def send() -> httpx.Response:
            transport = httpx.ASGITransport(self._app)
            async with httpx.AsyncClient(transport=transport, base_url="https://x") as client:
                return await client.request(method, path, content=body, headers=headers)

        return asyncio.run(send())

    def poll(self) -> httpx.Response:
        return self.ask("GET", OFFERS)

    def offer(self) -> str:
        """The id of the next offer."""
        assert soon(lambda: self.poll().status_code == 200)
        return self.poll().headers[OFFER_HEADER]

    def contribute(self, offer: str, body: bytes) -> int:
        return self.ask("PUT", CONTRIBUTION.format(id=offer), body).status_code


class Exchange(threading.Thread):
    """An exchange in a thread of its own."""

    def __init__(self, mailbox: Mailbox, *devices: Device) -> None:
        super().__init__(daemon=True)
        self._replies = mailbox.exchange({device.name: b"numbers?" for device in devices}, 600.0)
        self.heard: list[bytes] = []
        self.start()

    def run(self) -> None:
        self.heard += [reply.data for reply in self._replies]

    def is_over(self) -> bool:
        self.join(30.0)
        return not self.is_alive()


def soon(reached: Callable[[], bool]) -> bool:
    end = time.monotonic() + 30.0
    while not reached() and time.monotonic() < end:
        time.sleep(0.01)
    return reached()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(module, "time", made)
    return made


@pytest.fixture
def mailbox(clock: Clock) -> Iterator[Mailbox]:
    made = Mailbox([HERE])
    yield made
    made.close()


@pytest.fixture
def device(mailbox: Mailbox) -> Device:
    made = Device(mailbox)
    mailbox.admit([made.name])
    return made


def test_an_offer_is_answered_once(mailbox: Mailbox, device: Device) -> None:
    assert device.poll().status_code == 204
    exchange = Exchange(mailbox, device)
    offer = device.offer()
    assert device.poll().content == b"numbers?"
    assert device.contribute(offer, b"no numbers") == 201
    assert exchange.is_over()
    assert exchange.heard == [b"no numbers"]
    assert device.contribute(offer, b"others") == 410
    assert device.poll().status_code == 204


def test_who_refuses_is_not_waited_for(mailbox: Mailbox, device: Device) -> None:
    exchange = Exchange(mailbox, device)
    path = CONTRIBUTION.format(id=device.offer())
    assert device.ask("DELETE", path).status_code == 204
    assert exchange.is_over()
    assert exchange.heard == []


def test_strangers_are_told_the_time_and_nothing_else(mailbox: Mailbox, device: Device) -> None:
    Exchange(mailbox, device)
    offer, stranger = device.offer(), Device(mailbox)
    answer = stranger.poll()
    assert (answer.status_code, answer.content) == (401, b"")
    assert abs(float(answer.headers[CLOCK_HEADER]) - time.time()) < 60
    assert stranger.contribute(offer, b"x") == 401


def test_polls_are_frequent_during_an_exchange_and_a_while_after(
    mailbox: Mailbox, device: Device, clock: Clock
) -> None:
    assert device.poll().headers[PAUSE_HEADER] == "5.000"
    exchange = Exchange(mailbox, device)
    offer = device.offer()
    assert device.poll().headers[PAUSE_HEADER] == "0.200"
    device.contribute(offer, b"x")
    assert exchange.is_over()
    clock.now += 9.9
    assert device.poll().headers[PAUSE_HEADER] == "0.200"
    clock.now += 0.2
    assert device.poll().headers[PAUSE_HEADER] == "5.000"


def test_who_does_not_come_is_waited_for_ten_seconds_and_then_less(
    mailbox: Mailbox, device: Device, clock: Clock
) -> None:
    other = Device(mailbox)
    mailbox.admit([device.name, other.name])
    for seconds in (10.0, 5.0):
        exchange = Exchange(mailbox, device)
        assert soon(lambda: other.poll().headers[PAUSE_HEADER] == "0.200")  # it has begun
        clock.now += seconds - 0.1
        exchange.join(0.6)  # it looks every quarter of a second
        assert exchange.is_alive()
        clock.now += 0.2
        assert exchange.is_over()
        assert exchange.heard == []
        clock.now += 60.0


def test_what_nobody_takes_any_more_holds_no_room(
    mailbox: Mailbox, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that breaks off between two contributions leaves the second unread."""
    first, second = Device(mailbox), Device(mailbox)
    mailbox.admit([first.name, second.name])
    replies = mailbox.exchange({first.name: b"?", second.name: b"?"}, 600.0)
    heard = threading.Thread(target=lambda: next(replies), daemon=True)
    heard.start()
    one, two = first.offer(), second.offer()
    assert first.contribute(one, b"x" * 100) == 201
    heard.join(30.0)
    assert second.contribute(two, b"y" * 100) == 201
    replies.close()  # type: ignore[attr-defined]
    monkeypatch.setattr(module, "MAX_WAITING_BYTES", 0)
    again = Exchange(mailbox, first)
    assert first.contribute(first.offer(), b"z") == 201
    assert again.is_over()
