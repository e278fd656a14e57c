"""Attacks on the wire: TLS on loopback. Strangers, replayed requests, participants that break the
rules.

One recommender with its mailbox; participants are threads with real connections. Every test is
bounded in time.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import resource
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hdpmf.common.aggregation.masks import DeviceIdentity
from hdpmf.common.net.certificates import ensure_certificates
from hdpmf.common.net.https import HttpsAnswer, HttpsClient
from hdpmf.common.net.polling import PollingDevice, drawn_pause
from hdpmf.common.net.signing import (
    DIGEST_HEADER,
    OFFER_HEADER,
    TIME_HEADER,
    RequestVerifier,
    server_name,
    signed_headers,
)
from hdpmf.common.protocol.task import DEVICE_HEADER, SIGNATURE_HEADER
from hdpmf.errors import TransportError
from tests.federation.deployed import recommender, wait_until

from .test_tls import GOOD, OLD, client

HONEST = 12
POLL = "/offers"


class Caller:
    """Somebody with a key, who signs requests and sends what it likes."""

    def __init__(self, town: Town, identity: DeviceIdentity) -> None:
        self.identity = identity
        self._town = town
        self._client = HttpsClient("the town", town.authority, keep=10.0)

    def ask(self, method: str, path: str, body: bytes = b"", **instead: str) -> HttpsAnswer:
        """Send a request; ``instead`` are headers that are not as they were signed."""
        headers = signed_headers(self.identity, self._town.name, method, path, body)
        return self._client.request(
            method, self._town.address + path, most=5_000_000, body=body, headers=headers | instead
        )

    def offer(self) -> tuple[str, bytes]:
        """Poll until there is an offer; its id and its bytes."""
        while (polled := self.ask("GET", POLL)).status != 200:
            if self._town.stop.wait(0.1):
                raise TransportError("over")
        return polled.headers[OFFER_HEADER], polled.body

    def close(self) -> None:
        self._client.close()


Behaviour = Callable[[Caller, threading.Event], None]


class Town:
    """A recommender and its participants."""

    def __init__(self, folder: Path, n: int, longest: int | None = None) -> None:
        self.keys = {
            identity.public.hex(): identity
            for identity in (DeviceIdentity.generate() for _ in range(n))
        }
        self._stack = contextlib.ExitStack()
        made = self._stack.enter_context(
            recommender(folder, list(self.keys.values()), longest=longest)
        )
        self.mailbox, self.port, self.address, self.authority = (
            made.mailbox,
            made.port,
            made.address,
            made.authority,
        )
        self.name = server_name(self.authority, "")
        self.stop = threading.Event()
        self.threads: list[threading.Thread] = []

    @property
    def trust(self) -> ssl.SSLContext:
        return ssl.create_default_context(cadata=self.authority.decode("ascii"))

    def caller(self, name: str) -> contextlib.closing[Caller]:
        return contextlib.closing(Caller(self, self.keys[name]))

    def start_honest(self, *names: str) -> None:
        for name in names:
            device = PollingDevice(self.address, self.authority, self.keys[name])
            self._start(
                lambda device=device: device.serve(lambda data: b"it is " + data, self.stop)
            )

    def start(self, behaviour: Behaviour, name: str) -> None:
        def live() -> None:
            with self.caller(name) as caller:
                while not self.stop.is_set():
                    # The recommender may hang up first, whatever it was in the middle of.
                    with contextlib.suppress(TransportError, OSError):
                        behaviour(caller, self.stop)
                    self.stop.wait(0.2)

        self._start(live)

    def _start(self, target: Callable[[], None]) -> None:
        self.threads.append(threading.Thread(target=target, daemon=True))
        self.threads[-1].start()

    def wait_for(self, names: list[str], seconds: float = 60.0) -> None:
        wait_until(lambda: set(names) <= self.mailbox.present(), "devices are there", seconds)

    def ask(self, names: list[str], deadline: float = 30.0) -> set[str]:
        data = {name: b"what is your name, device " + name.encode() for name in names}
        replies = self.mailbox.exchange(data, deadline)
        return {reply.device for reply in replies if reply.data == b"it is " + data[reply.device]}

    def close(self) -> None:
        self.stop.set()
        for thread in self.threads:
            thread.join(20)
        self._stack.close()


def never_contributes(caller: Caller, stop: threading.Event) -> None:
    caller.ask("GET", POLL)


def sends_rubbish(caller: Caller, stop: threading.Event) -> None:
    offer, _ = caller.offer()
    caller.ask("PUT", f"/contributions/{offer}", b"\xff" * 1000)


def hangs_up_in_the_middle(caller: Caller, stop: threading.Event) -> None:
    """Announces a contribution of which little comes, and that slowly."""
    offer, _ = caller.offer()
    path = f"/contributions/{offer}"
    headers = signed_headers(caller.identity, caller._town.name, "PUT", path, bytes(100_000))
    with _connection(caller._town) as wire:
        wire.sendall(_head("PUT", path, headers | {"content-length": "100000"}))
        for _ in range(20):
            wire.sendall(bytes(10))
            if stop.wait(0.2):
                return


def refuses_everything(caller: Caller, stop: threading.Event) -> None:
    offer, _ = caller.offer()
    caller.ask("DELETE", f"/contributions/{offer}")


@pytest.fixture(scope="module")
def town(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Town]:
    made = Town(tmp_path_factory.mktemp("town"), HONEST + 5)
    names = list(made.keys)
    made.start_honest(*names[:HONEST])
    try:
        made.wait_for(names[:HONEST])
        yield made
    finally:
        made.close()


# 16. One enrolled device stops every exchange.


@pytest.mark.slow
@pytest.mark.parametrize(
    ("place", "behaviour"),
    list(enumerate([never_contributes, sends_rubbish, hangs_up_in_the_middle, refuses_everything])),
)
def test_a_hostile_device_costs_its_own_turn_only(town: Town, place: int, behaviour: Behaviour):
    names = list(town.keys)[:HONEST]
    hostile = list(town.keys)[HONEST + place]
    town.start(behaviour, hostile)
    if behaviour is never_contributes:
        town.wait_for([hostile])
    for _ in range(3):
        begun = time.monotonic()
        assert town.ask([hostile, *names]) == set(names)
        assert time.monotonic() - begun < 20.0  # and not the deadline of 30


@pytest.mark.slow
def test_many_light_honest_devices_are_all_heard(tmp_path: Path):
    crowd = Town(tmp_path, 60)
    names = list(crowd.keys)
    try:
        crowd.start_honest(*names)
        crowd.wait_for(names, 120.0)
        for _ in range(3):
            assert crowd.ask(names, 60.0) == set(names)
    finally:
        crowd.close()


def test_nobody_contributes_in_anothers_name(tmp_path: Path):
    """An enrolled device knows the id of another's offer, and answers first."""
    place = Town(tmp_path, 2)
    name, other = place.keys
    heard: dict[str, bytes] = {}

    def exchange() -> None:
        messages = {name: b"for the victim", other: b"for the thief"}
        heard.update({reply.device: reply.data for reply in place.mailbox.exchange(messages, 30.0)})

    try:
        with place.caller(name) as victim, place.caller(other) as thief:
            asking = threading.Thread(target=exchange, daemon=True)
            asking.start()
            (asked, data), (own, mine) = victim.offer(), thief.offer()
            assert (data, mine) == (b"for the victim", b"for the thief")
            forged = f"/contributions/{asked}"
            assert thief.ask("PUT", forged, b"forged").status == 410  # in its own name
            assert thief.ask("DELETE", forged).status == 410
            assert (
                thief.ask("PUT", forged, b"forged", **{DEVICE_HEADER: name}).status == 401
            )  # in the victim's
            assert thief.ask("GET", POLL, **{DEVICE_HEADER: name}).status == 401
            assert thief.ask("PUT", f"/contributions/{'0' * 32}", b"forged").status == 410
            assert victim.ask("PUT", forged, b"true").status == 201
            assert victim.ask("PUT", forged, b"true").status == 201  # the same bytes again
            assert victim.ask("PUT", forged, b"other").status == 409
            assert victim.ask("GET", POLL).status == 204  # answered
            assert thief.ask("PUT", f"/contributions/{own}", b"mine").status == 201
            asking.join(30.0)
            assert victim.ask("PUT", forged, b"late").status == 410  # the exchange is over
        assert heard == {name: b"true", other: b"mine"}
    finally:
        place.close()


# 17. Strangers, and long bodies.


def test_no_more_is_read_of_a_device_than_a_contribution_can_have(tmp_path: Path):
    place = Town(tmp_path, 1, longest=100_000)
    name = next(iter(place.keys))
    heard: list[bytes] = []
    message = b"a message may be longer than a contribution" + bytes(300_000)
    asking = threading.Thread(
        target=lambda: heard.extend(
            reply.data for reply in place.mailbox.exchange({name: message}, 20.0)
        ),
        daemon=True,
    )
    try:
        with place.caller(name) as caller, _connection(place) as wire:
            asking.start()
            offer, data = caller.offer()
            assert data == message
            path = f"/contributions/{offer}"
            headers = signed_headers(caller.identity, place.name, "PUT", path, bytes(300_000))
            wire.sendall(_head("PUT", path, headers | {"content-length": "300000"}))
            wire.settimeout(30.0)
            assert wire.recv(100).startswith(b"HTTP/1.1 413")
            assert caller.ask("PUT", path, bytes(100_000)).status == 201
        asking.join(20.0)
        assert heard == [bytes(100_000)]
    finally:
        place.close()


def test_a_stranger_is_refused_before_anything_of_its_body_is_read(town: Town):
    stranger = DeviceIdentity.generate()
    path = f"/contributions/{'0' * 32}"
    for headers in (
        {},
        signed_headers(stranger, town.name, "PUT", path, bytes(3_900_000)),
        {DEVICE_HEADER: "ü" * 64},
    ):
        with _connection(town) as wire:
            wire.sendall(_head("PUT", path, headers | {"content-length": "3900000"}))
            wire.settimeout(30.0)
            assert wire.recv(100).startswith(b"HTTP/1.1 401")
    with _connection(town) as wire:
        wire.sendall(_head("PUT", path, {"transfer-encoding": "chunked"}))
        wire.settimeout(30.0)
        assert wire.recv(100).startswith(b"HTTP/1.1 411")


def test_one_long_body_of_a_device_at_a_time(town: Town):
    name = list(town.keys)[HONEST + 4]
    done = threading.Event()
    asking = threading.Thread(
        target=lambda: (list(town.mailbox.exchange({name: b"x"}, 60.0)), done.set()), daemon=True
    )
    asking.start()
    with town.caller(name) as caller, _connection(town) as wire:
        offer, _ = caller.offer()
        path = f"/contributions/{offer}"
        headers = signed_headers(caller.identity, town.name, "PUT", path, bytes(100_000))
        wire.sendall(_head("PUT", path, headers | {"content-length": "100000"}) + bytes(10))
        wait_until(lambda: name in town.mailbox._sending, "the first body is being read")
        assert caller.ask("PUT", path, b"second").status == 429
        wire.close()
        wait_until(lambda: name not in town.mailbox._sending, "the first body is given up")
        assert caller.ask("PUT", path, b"second").status == 201
    assert done.wait(90.0)


@pytest.mark.slow
def test_idle_strangers_lock_nobody_out(town: Town):
    names = list(town.keys)[:HONEST]
    idle = []
    try:
        for _ in range(700):
            with contextlib.suppress(OSError):
                idle.append(socket.create_connection(("127.0.0.1", town.port), timeout=2.0))
                idle[-1].setblocking(False)
        assert town.ask(names) == set(names)
        wait_until(  # a handshake has 10 s
            lambda: sum(map(_is_cut, idle)) >= len(idle) - 128, "most of them are cut"
        )
        assert town.ask(names) == set(names)
    finally:
        for wire in idle:
            wire.close()


def _is_cut(wire: socket.socket) -> bool:
    try:
        return wire.recv(1, socket.MSG_PEEK) == b""
    except BlockingIOError:
        return False
    except ConnectionError:
        return True


@contextlib.contextmanager
def _connection(town: Town) -> Iterator[ssl.SSLSocket]:
    raw = socket.create_connection(("127.0.0.1", town.port), timeout=10.0)
    with raw, town.trust.wrap_socket(raw, server_hostname="127.0.0.1") as wire:
        yield wire


def _head(method: str, path: str, headers: dict[str, str]) -> bytes:
    lines = "".join(f"{field}: {value}\r\n" for field, value in ({"host": "x"} | headers).items())
    return f"{method} {path} HTTP/1.1\r\n{lines}\r\n".encode()


def test_nobody_gets_an_older_tls_or_none(town: Town):
    for version in (*OLD, GOOD):
        refused = (
            contextlib.nullcontext()
            if version == GOOD
            else pytest.raises((ssl.SSLError, ConnectionError))
        )
        with (
            socket.create_connection(("127.0.0.1", town.port), timeout=10.0) as raw,
            refused,
            client(town.authority, version).wrap_socket(raw, server_hostname="127.0.0.1") as wire,
        ):
            assert wire.version() == "TLSv1.2"
    with socket.create_connection(("127.0.0.1", town.port), timeout=10.0) as raw:
        raw.sendall(_head("GET", POLL, {}))
        with contextlib.suppress(ConnectionError):
            assert not raw.recv(100).startswith(b"HTTP")


@pytest.mark.parametrize(
    "path", ["/", "/docs", "/openapi.json", "/../etc/passwd", "/offers/x", "/contributions"]
)
def test_nothing_else_is_there(town: Town, path: str):
    with town.caller(next(iter(town.keys))) as caller:
        for method in ("GET", "POST", "PUT", "DELETE"):
            assert caller.ask(method, path).status in (404, 405)
        assert caller.ask("POST", POLL).status == 405


# 18. Headers that one recommender has seen.


def test_what_one_recommender_was_sent_is_of_no_use_at_another(town: Town, tmp_path: Path):
    elsewhere = ensure_certificates(tmp_path / "tls", ["127.0.0.1"]).authority.read_bytes()
    identity = next(iter(town.keys.values()))
    path, body = f"/contributions/{'0' * 32}", b"body"
    with contextlib.closing(Caller(town, identity)) as caller:
        good = signed_headers(identity, town.name, "PUT", path, body)
        assert (
            caller.ask("PUT", path, body, **good).status == 410
        )  # the control: signed, and no such offer
        for server in (server_name(elsewhere, ""), server_name(b"", "other.example")):
            seen = signed_headers(identity, server, "PUT", path, body)
            assert caller.ask("PUT", path, body, **seen).status == 401
        assert caller.ask("DELETE", path, b"", **good).status == 401
        assert caller.ask("PUT", f"/contributions/{'1' * 32}", body, **good).status == 401
        assert caller.ask("GET", POLL, **good).status == 401
        assert caller.ask("PUT", path, body + b"x", **good).status == 401  # another length
        assert caller.ask("PUT", path, body, **(good | {TIME_HEADER: "1"})).status == 401
        forged = good | {DIGEST_HEADER: hashlib.sha256(b"ydob").hexdigest()}
        assert caller.ask("PUT", path, b"ydob", **forged).status == 401
        stranger = signed_headers(DeviceIdentity.generate(), town.name, "PUT", path, body)
        assert caller.ask("PUT", path, body, **stranger).status == 401


def test_a_body_that_is_not_the_signed_one_is_not_taken(tmp_path: Path):
    place = Town(tmp_path, 1)
    name = next(iter(place.keys))
    heard: list[bytes] = []
    asking = threading.Thread(
        target=lambda: heard.extend(
            reply.data for reply in place.mailbox.exchange({name: b"x"}, 20.0)
        ),
        daemon=True,
    )
    try:
        with place.caller(name) as caller:
            asking.start()
            offer, _ = caller.offer()
            path = f"/contributions/{offer}"
            signed = signed_headers(caller.identity, place.name, "PUT", path, b"true")
            assert caller.ask("PUT", path, b"fals", **signed).status == 400
            assert caller.ask("PUT", path, b"true", **signed).status == 201
        asking.join(20.0)
        assert heard == [b"true"]
    finally:
        place.close()


def test_a_signature_is_good_for_a_while_only(monkeypatch: pytest.MonkeyPatch):
    identity = DeviceIdentity.generate()
    verifier = RequestVerifier(["here"], lambda _: True)
    headers = signed_headers(identity, "here", "PUT", "/", b"")
    assert verifier.caller(headers, "PUT", "/", 0) == identity.public.hex()
    for changed in ("GET", "/", 0), ("PUT", "/x", 0), ("PUT", "/", 1):
        assert verifier.caller(headers, *changed) is None
    for name in headers:
        assert (
            verifier.caller(
                {other: value for other, value in headers.items() if other != name}, "PUT", "/", 0
            )
            is None
        )
        for wrong in ("", "x", "nan", "inf", "ü", "00" * 32, "00" * 64):
            assert verifier.caller(headers | {name: wrong}, "PUT", "/", 0) is None
    assert RequestVerifier(["here"], lambda _: False).caller(headers, "PUT", "/", 0) is None
    now = time.time()
    for seconds in (-301.0, 301.0):
        monkeypatch.setattr(time, "time", lambda seconds=seconds: now + seconds)
        assert verifier.caller(headers, "PUT", "/", 0) is None
    assert headers[SIGNATURE_HEADER]


# A recommender that wants to know when its participants are at what.


@pytest.mark.parametrize(
    "suggested", ["0", "-1", "1e-9", "nan", "inf", "-inf", "soon", "", "1e300", "0.2", "600"]
)
def test_whatever_pause_is_suggested_it_has_bounds_and_is_drawn(suggested: str):
    drawn = [drawn_pause(suggested) for _ in range(50)]
    assert all(0.1 <= pause <= 900.0 for pause in drawn)
    assert len(set(drawn)) > 25


# Participants that read slowly.


@pytest.mark.slow
def test_slow_readers_do_not_cost_a_copy_of_an_offer_each(tmp_path: Path):
    place = Town(tmp_path, 60)
    offer = bytes(4_000_000)
    asking = threading.Thread(
        target=lambda: list(place.mailbox.exchange(dict.fromkeys(place.keys, offer), 10.0)),
        daemon=True,
    )
    try:
        with contextlib.ExitStack() as stack:
            asking.start()
            before = _resident()
            for identity in place.keys.values():
                wire = stack.enter_context(_connection(place))
                headers = signed_headers(identity, place.name, "GET", POLL)
                wire.sendall(_head("GET", POLL, headers))  # and nothing is read
            time.sleep(3.0)
            assert _resident() - before < 0.4 * 60 * len(offer)
    finally:
        place.mailbox.close()
        place.close()


def _resident() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()


def test_requests_of_one_kind_have_one_size():
    """Somebody on the network sees sizes: they depend on the length of a contribution only."""
    identity = DeviceIdentity.generate()

    def size(method: str, body: bytes) -> int:
        path = f"/contributions/{'0' * 32}" if body else POLL
        return len(_head(method, path, signed_headers(identity, "a" * 64, method, path, body)))

    assert len({size("GET", b"") for _ in range(50)}) == 1
    assert len({size("PUT", os.urandom(1000)) for _ in range(50)}) == 1
