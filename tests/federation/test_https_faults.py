"""Faults between machines, on the real wire: strangers, copies of a device, kill -9, restarts,
cut networks, clocks.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest

from hdpmf.common.aggregation.masks import DeviceIdentity
from hdpmf.common.net import polling, signing
from hdpmf.common.net.carrier import Answer
from hdpmf.common.net.certificates import ensure_certificates
from hdpmf.common.net.mailbox import Mailbox
from hdpmf.common.net.polling import PollingDevice
from tests.federation.deployed import Live, recommender, wait_until, wire_to
from tests.federation.transport_contract import MAX_BYTES, Network, ScriptedDevice


class Thread:
    """A device in a thread of this process, and what it said about its connection."""

    def __init__(
        self,
        address: str,
        authority: bytes,
        identity: DeviceIdentity,
        answer: Answer = lambda data: data,
    ) -> None:
        self.said: list[str] = []
        self.stop = threading.Event()
        device = PollingDevice(
            address, authority, identity, max_bytes=MAX_BYTES, log=self.said.append
        )
        self.thread = threading.Thread(target=device.serve, args=(answer, self.stop), daemon=True)
        self.thread.start()

    def end(self) -> None:
        self.stop.set()
        self.thread.join(30)
        assert not self.thread.is_alive()


@contextmanager
def device(*given: object) -> Iterator[Thread]:
    made = Thread(*given)  # type: ignore[arg-type]
    try:
        yield made
    finally:
        made.end()


def _says(made: Thread, word: str) -> None:
    wait_until(
        lambda: any(word in line for line in made.said), f"it says {word!r}: {made.said}", 20.0
    )


def test_a_key_that_is_not_enrolled_is_refused(live: Live):
    with device(
        live.recommender.address, live.recommender.authority, DeviceIdentity.generate()
    ) as stranger:
        _says(stranger, "not enrolled")
    assert live.recommender.mailbox.present() <= set(live.names)


def test_a_device_does_not_talk_to_a_server_of_another_authority(live: Live, tmp_path: Path):
    other = ensure_certificates(tmp_path, ["127.0.0.1"]).authority.read_bytes()
    with device(live.recommender.address, other, DeviceIdentity.generate()) as lost:
        _says(lost, "certificate")


def test_a_device_does_not_talk_to_a_server_under_a_name_that_its_certificate_is_not_for(
    live: Live,
):
    address = live.recommender.address.replace("127.0.0.1", "127.1")
    with device(address, live.recommender.authority, DeviceIdentity.generate()) as lost:
        _says(lost, "certificate")


def test_two_copies_of_a_device_give_one_contribution(live: Live, network: Network):
    first, _ = live.names
    copies = ScriptedDevice("copy")
    with device(live.recommender.address, live.recommender.authority, live.keys[first], copies):
        for _ in range(5):
            assert set(network.ask_both(b"echo x")) == set(live.names)


def test_a_device_that_is_enrolled_later_takes_part_and_one_that_is_expelled_does_not(
    tmp_path: Path,
):
    first, second = DeviceIdentity.generate(), DeviceIdentity.generate()
    names = [first.public.hex(), second.public.hex()]
    with (
        recommender(tmp_path, [first]) as shop,
        device(shop.address, shop.authority, first) as there,
        device(shop.address, shop.authority, second) as later,
    ):
        _says(later, "not enrolled")
        shop.mailbox.admit(names)
        wait_until(lambda: shop.mailbox.present() == set(names), "both are there", 90.0)
        shop.mailbox.admit(names[1:])
        assert shop.mailbox.present() == {names[1]}
        assert [
            reply.device for reply in shop.mailbox.exchange(dict.fromkeys(names, b"x"), 10.0)
        ] == names[1:]
        _says(there, "not enrolled")


@pytest.mark.parametrize(("seconds", "words"), [(-400, "behind"), (400, "ahead of")])
def test_a_device_whose_clock_is_wrong_is_told_so(
    live: Live, monkeypatch: pytest.MonkeyPatch, seconds: int, words: str
):
    shifted = SimpleNamespace(time=lambda: time.time() + seconds, monotonic=time.monotonic)
    mine = threading.current_thread

    class Clock:
        """Wrong on the device alone: the mailbox lives in this process, too."""

        monotonic = staticmethod(time.monotonic)

        @staticmethod
        def time() -> float:
            return shifted.time() if mine().name == "wrong clock" else time.time()

    monkeypatch.setattr(polling, "time", Clock)
    monkeypatch.setattr(signing, "time", Clock)
    said: list[str] = []
    stop = threading.Event()
    made = PollingDevice(
        live.recommender.address,
        live.recommender.authority,
        live.keys[live.names[0]],
        log=said.append,
    )
    thread = threading.Thread(
        target=made.serve, args=(bytes, stop), name="wrong clock", daemon=True
    )
    thread.start()
    wait_until(lambda: bool(said), "it says something")
    stop.set()
    thread.join(10)
    assert f"s {words} the recommender's; set it right" in said[0]


def test_a_device_that_is_killed_is_silent_and_takes_part_again_when_it_is_back(
    live: Live, network: Network
):
    first, second = live.names
    began = time.monotonic()
    killer = threading.Timer(1.0, live.deployment.kill, [first])
    killer.start()
    assert network.ask({first: network.sleep(30, b"never"), second: b"echo x"}, deadline=4.0) == {
        second: b"x"
    }
    killer.join()
    assert time.monotonic() - began < 30
    live.start_device(first)
    wait_until(
        lambda: network.ask_both(b"echo back", 5.0) == dict.fromkeys(live.names, b"back"),
        "both answer again",
    )


def test_a_device_that_is_gone_is_waited_for_no_longer_than_its_next_poll(
    live: Live, network: Network
):
    first, second = live.names
    live.deployment.kill(first)
    began = time.monotonic()
    assert network.ask_both(b"echo x") == {second: b"x"}
    assert time.monotonic() - began < 30.0  # and not the deadline of 60
    live.start_device(first)
    wait_until(
        lambda: network.ask_both(b"echo back", 5.0) == dict.fromkeys(live.names, b"back"),
        "both answer again",
    )


def test_unanswered_offers_and_late_contributions_do_not_pile_up(live: Live, network: Network):
    first, _ = live.names
    mailbox = live.recommender.mailbox
    for number in range(3):
        assert (
            network.ask({first: network.sleep(0.5, bytes([number]) * 8_000_000)}, deadline=0.3)
            == {}
        )
    assert network.ask_both(b"echo x") == dict.fromkeys(live.names, b"x")
    for reply in mailbox.exchange(dict.fromkeys(live.names, b"echo left early"), 30.0):
        assert reply.data
        break
    assert (mailbox._offers, mailbox._waiting_bytes) == ({}, 0)


def test_a_recommender_that_restarts_is_found_again(tmp_path: Path):
    identity = DeviceIdentity.generate()
    name = identity.public.hex()
    with recommender(tmp_path, [identity]) as first:
        port = first.port
        made = Thread(first.address, first.authority, identity)
        wait_until(lambda: name in first.mailbox.present(), "the device")
    try:
        _says(made, "cannot be reached")
        with recommender(tmp_path, [identity], port=port) as second:
            wait_until(lambda: name in second.mailbox.present(), "the device again")
            assert [reply.data for reply in second.mailbox.exchange({name: b"hello"}, 30.0)] == [
                b"hello"
            ]
    finally:
        made.end()
    assert not any("not enrolled" in line or "clock" in line for line in made.said)


def test_a_contribution_whose_answer_was_lost_is_sent_again_and_made_once(tmp_path: Path):
    """The network fails after the message was answered: the same bytes go out when it is back."""
    identity = DeviceIdentity.generate()
    name, answered = identity.public.hex(), list[bytes]()
    with recommender(tmp_path, [identity]) as shop, wire_to(shop.port) as wire:

        def answer(data: bytes) -> bytes:
            answered.append(data)
            wire.cut()
            threading.Timer(1.0, wire.mend).start()
            return b"done"

        with device(f"https://127.0.0.1:{wire.port}", shop.authority, identity, answer):
            wait_until(lambda: name in shop.mailbox.present(), "the device")
            assert [reply.data for reply in shop.mailbox.exchange({name: b"work"}, 30.0)] == [
                b"done"
            ]
        assert answered == [b"work"]


def test_a_network_that_fails_for_a_moment_costs_no_device_its_place(tmp_path: Path):
    identity = DeviceIdentity.generate()
    name = identity.public.hex()
    with recommender(tmp_path, [identity]) as shop, wire_to(shop.port) as wire:
        network = Network(shop.mailbox, (name, name))
        with device(
            f"https://127.0.0.1:{wire.port}", shop.authority, identity, ScriptedDevice("x")
        ):
            wait_until(lambda: name in shop.mailbox.present(), "the device")
            network.ask({name: b"echo x"})
            wire.cut()
            assert network.ask({name: b"echo lost"}, deadline=0.5) == {}
            wire.mend()
            wait_until(
                lambda: network.ask({name: b"echo back"}, 2.0) == {name: b"back"},
                "it answers again",
            )


def test_who_never_polls_is_not_present_and_silent():
    mailbox = Mailbox([], ["aa"])
    assert mailbox.present() == frozenset()
    began = time.monotonic()
    assert list(mailbox.exchange({"aa": b"x", "stranger": b"x"}, 0.5)) == []
    assert time.monotonic() - began < 20.0
