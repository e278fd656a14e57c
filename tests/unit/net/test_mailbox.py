"""The mailbox behind its routes, without a network: pauses, who is waited for and how long."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator

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
        return self.send(method, path, body, headers)

    def send(
        self, method: str, path: str, body: bytes | AsyncIterator[bytes], headers: dict[str, str]
    ) -> httpx.Response:
        async def request() -> httpx.Response:
            transport = httpx.ASGITransport(self._app)
            async with httpx.AsyncClient(transport=transport, base_url="https://x") as client:
                return await client.request(method, path, content=body, headers=headers)

        return asyncio.run(request())

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


def test_a_contribution_may_come_again_but_no_other(mailbox: Mailbox) -> None:
    """It comes again where the answer to the first was lost."""
    first, second = Device(mailbox), Device(mailbox)
    mailbox.admit([first.name, second.name])
    exchange = Exchange(mailbox, first, second)
    one, two = first.offer(), second.offer()
    assert [first.contribute(one, body) for body in (b"x", b"x", b"y")] == [201, 201, 409]
    assert first.ask("DELETE", CONTRIBUTION.format(id=one)).status_code == 204
    assert first.poll().status_code == 204  # nothing more is offered to it
    assert first.contribute(two, b"x") == 410  # that of another
    assert second.contribute(two, b"z") == 201
    assert exchange.is_over()
    assert exchange.heard == [b"x", b"z"]


@pytest.mark.parametrize(("longest", "most"), [(10, 10), (None, 20), (100, 20)])
def test_a_contribution_that_is_too_long_is_not_read(
    clock: Clock, longest: int | None, most: int
) -> None:
    mailbox = Mailbox([HERE], longest=None if longest is None else lambda: longest, max_bytes=20)
    device = Device(mailbox)
    mailbox.admit([device.name])
    exchange = Exchange(mailbox, device)
    offer = device.offer()
    assert device.contribute(offer, bytes(most + 1)) == 413
    assert device.contribute(offer, bytes(most)) == 201
    assert exchange.is_over()
    assert exchange.heard == [bytes(most)]


def test_a_body_that_is_not_what_was_signed_is_not_taken(mailbox: Mailbox, device: Device) -> None:
    exchange = Exchange(mailbox, device)
    offer = device.offer()
    path = CONTRIBUTION.format(id=offer)
    signed = signed_headers(device.identity, HERE, "PUT", path, b"mine")
    assert device.send("PUT", path, b"ours", signed).status_code == 400
    assert device.contribute(offer, b"mine") == 201
    assert exchange.is_over()
    assert exchange.heard == [b"mine"]


@pytest.mark.parametrize(
    ("length", "status"), [(None, 411), ("", 411), ("1e3", 411), ("-1", 411), ("9" * 13, 411),
                           ("9" * 12, 401), ("4", 400)],
)  # fmt: skip
def test_without_a_length_nothing_is_read(
    mailbox: Mailbox, device: Device, length: str | None, status: int
) -> None:
    Exchange(mailbox, device)
    path = CONTRIBUTION.format(id=device.offer())
    headers = signed_headers(device.identity, HERE, "PUT", path, b"mine")

    async def body() -> AsyncIterator[bytes]:
        yield b"ours"

    if length is not None:
        headers["content-length"] = length
    assert device.send("PUT", path, body(), headers).status_code == status


def test_one_contribution_of_a_device_is_read_at_a_time(
    mailbox: Mailbox, device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    Exchange(mailbox, device)
    offer = device.offer()
    path = CONTRIBUTION.format(id=offer)
    headers = signed_headers(device.identity, HERE, "PUT", path, b"mine")
    headers["content-length"] = "4"
    answers = []

    async def body() -> AsyncIterator[bytes]:
        second = await asyncio.to_thread(device.ask, "PUT", path, b"more")
        answers.append(second)
        yield b"mine"

    assert device.send("PUT", path, body(), headers).status_code == 201
    assert [answer.status_code for answer in answers] == [429]
    assert answers[0].headers["retry-after"] == "5"
    assert answers[0].headers["connection"] == "close"


def test_a_contribution_that_never_arrives_is_given_up(
    mailbox: Mailbox, device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "BODY_SECONDS", 0.05)
    exchange = Exchange(mailbox, device)
    offer = device.offer()
    path = CONTRIBUTION.format(id=offer)
    headers = signed_headers(device.identity, HERE, "PUT", path, b"mine")
    headers["content-length"] = "4"

    async def body() -> AsyncIterator[bytes]:
        await asyncio.sleep(5.0)
        yield b"mine"

    assert device.send("PUT", path, body(), headers).status_code == 408
    assert device.contribute(offer, b"mine") == 201
    assert exchange.is_over()


def test_while_much_waits_others_come_back_later(
    mailbox: Mailbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = Device(mailbox), Device(mailbox)
    mailbox.admit([first.name, second.name])
    monkeypatch.setattr(module, "MAX_WAITING_BYTES", 99)
    replies = mailbox.exchange({first.name: b"?", second.name: b"?"}, 600.0)
    begun = threading.Thread(target=lambda: next(replies), daemon=True)
    begun.start()
    one, two = first.offer(), second.offer()
    assert soon(lambda: mailbox._offers[first.name][one].fetched)
    mailbox._count(99)  # of another run
    assert first.contribute(one, b"x") == 201
    begun.join(30.0)
    mailbox._count(1)
    answer = second.ask("PUT", CONTRIBUTION.format(id=two), b"y")
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "5")
    mailbox._count(-1)
    assert second.contribute(two, b"y") == 201
    assert [reply.data for reply in replies] == [b"y"]


def test_who_polled_lately_is_present(mailbox: Mailbox, device: Device, clock: Clock) -> None:
    assert mailbox.present() == frozenset()
    device.poll()
    clock.now += 14.9
    assert mailbox.present() == {device.name}
    clock.now += 0.2
    assert mailbox.present() == frozenset()
    device.poll()
    mailbox.admit([])
    assert mailbox.present() == frozenset()


def test_the_more_poll_the_longer_each_waits(
    mailbox: Mailbox, device: Device, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "IDLE_RATE", 0.05)
    monkeypatch.setattr(module, "BUSY_RATE", 0.5)

    def pause() -> float:
        clock.now += 5.1  # they are counted that often
        return float(device.poll().headers[PAUSE_HEADER])

    assert pause() == 5.0  # nobody was here
    assert pause() == 20.0
    clock.now += 39.0
    assert mailbox.present() == {device.name}  # it was told to wait, and did
    clock.now += 22.0
    assert mailbox.present() == frozenset()
    exchange = Exchange(mailbox, device)
    assert soon(lambda: device.poll().status_code == 200)
    assert pause() == 2.0
    monkeypatch.setattr(module, "BUSY_RATE", 1e-9)
    assert pause() == 300.0
    monkeypatch.setattr(module, "BUSY_RATE", 1e9)
    assert pause() == 0.2
    mailbox.close()
    assert exchange.is_over()
    clock.now += 10.1
    monkeypatch.setattr(module, "IDLE_RATE", 1e-9)
    assert pause() == 300.0
    clock.now += 700.0
    assert pause() == 5.0  # nobody was here any more


def test_a_long_offer_arrives_whole(mailbox: Mailbox, device: Device) -> None:
    message = bytes(range(256)) * 600
    replies = mailbox.exchange({device.name: message}, 600.0)
    threading.Thread(target=lambda: list(replies), daemon=True).start()
    device.offer()
    answer = device.poll()
    assert answer.content == message
    assert answer.headers["content-length"] == str(len(message))
    assert answer.headers["cache-control"] == "no-store"


def test_nothing_is_offered_to_who_is_not_enrolled_any_more(
    mailbox: Mailbox, device: Device
) -> None:
    mailbox.admit([])
    assert list(mailbox.exchange({device.name: b"?"}, 600.0)) == []
