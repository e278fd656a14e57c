"""What goes wrong between machines, on the real engine: strangers, doubles, kill -9, a SuperLink
that dies, clocks.
"""

from __future__ import annotations

import os
import signal
import ssl
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import httpx
import pytest
from deployed import HEARTBEAT, NAMES, Live, wait_until, wire_to
from transport_contract import MAX_BYTES, Network, ScriptedDevice

from hdpmf.common.net.certificates import ensure_certificates
from hdpmf.common.net.flower import fleet as flower_fleet
from hdpmf.common.net.flower import http as flower_http
from hdpmf.common.net.flower.device import FlowerDevice
from hdpmf.common.net.flower.fleet import Fleet
from hdpmf.common.net.flower.gate import OPEN, RING
from hdpmf.common.net.flower.link import Link
from hdpmf.common.net.flower.recommender import FlowerRecommender
from hdpmf.common.net.keys import NodeKey
from hdpmf.errors import ConfigError, TransportError

FIRST, SECOND = NAMES


def _connect(
    live: Live, key: NodeKey, authority: bytes | None = None, address: str | None = None
) -> Fleet:
    return Fleet(
        address or live.recommender.address,
        authority or live.recommender.authority,
        key,
        heartbeat=HEARTBEAT,
        wait=1.0,
        max_bytes=MAX_BYTES,
    )


def test_a_key_that_is_not_enrolled_is_refused(live: Live):
    with pytest.raises(TransportError, match="not enrolled"):
        _connect(live, NodeKey.generate())


def test_a_device_does_not_talk_to_a_server_of_another_authority(live: Live, tmp_path: Path):
    other = ensure_certificates(tmp_path, ["127.0.0.1"]).authority.read_bytes()
    with pytest.raises(TransportError, match="certificate"):
        _connect(live, live.keys[FIRST], authority=other)


def test_a_device_does_not_talk_to_a_server_under_a_name_that_its_certificate_is_not_for(
    live: Live,
):
    with pytest.raises(TransportError, match="certificate"):
        _connect(live, live.keys[FIRST], address=f"127.1:{live.recommender.port}")


def test_a_second_device_with_the_same_key_is_refused_and_the_first_is_not_disturbed(
    live: Live, network: Network
):
    with pytest.raises(TransportError, match="same key is connected"):
        _connect(live, live.keys[FIRST])
    assert network.ask_both(b"name") == {name: name.encode() for name in NAMES}


def test_a_key_or_a_device_cannot_be_enrolled_twice(live: Live):
    live.recommender.admit(FIRST, live.keys[FIRST].public)  # again is no harm
    with pytest.raises(ConfigError, match="another node key"):
        live.recommender.admit(FIRST, NodeKey.generate().public)
    with pytest.raises(ConfigError, match="another device"):
        live.recommender.admit("cc33", live.keys[FIRST].public)
    with pytest.raises(ConfigError, match="public key"):
        live.recommender.admit("cc33", "no key")


def test_a_device_that_is_enrolled_later_takes_part_at_once(live: Live):
    key = NodeKey.generate()
    live.recommender.admit("dd44", key.public)
    device = FlowerDevice(
        live.recommender.address,
        live.recommender.authority,
        key,
        heartbeat=HEARTBEAT,
        max_bytes=MAX_BYTES,
    )
    stop = threading.Event()
    thread = threading.Thread(target=device.serve, args=(ScriptedDevice("dd44"), stop))
    thread.start()
    try:
        live.wait_for("dd44")
        arrivals = list(live.recommender.exchange({"dd44": b"name"}, 30.0))
        assert [(reply.device, reply.data) for reply in arrivals] == [("dd44", b"dd44")]
    finally:
        stop.set()
        thread.join(30)
    assert "dd44" not in live.recommender.present()  # it said goodbye


@pytest.mark.parametrize(("seconds", "words"), [(-400, "400 s behind"), (60, "60 s ahead")])
def test_a_device_whose_clock_is_wrong_is_told_so(
    live: Live, monkeypatch: pytest.MonkeyPatch, seconds: int, words: str
):
    # A second more or less may pass on the way.
    shifted = SimpleNamespace(
        time=lambda: time.time() + seconds, monotonic=time.monotonic, sleep=time.sleep
    )
    monkeypatch.setattr(flower_fleet, "time", shifted)
    monkeypatch.setattr(flower_http, "time", shifted)
    with pytest.raises(
        TransportError, match=r"this machine's clock is \d+ s (ahead of|behind)"
    ) as caught:
        _connect(live, NodeKey.generate())
    assert words.split()[2] in str(caught.value)


@pytest.mark.slow
def test_a_recommender_that_restarts_is_called_that(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
):
    """Not a wrong clock, nor a key that is not enrolled: it stops while a question waits, and
    starts slowly.
    """
    key, stop = NodeKey.generate(), threading.Event()
    roster = {"aa11": key.public}
    caplog.set_level("INFO", "hdpmf.common.net.flower.device")
    first = FlowerRecommender(tmp_path, roster=roster, heartbeat=HEARTBEAT)
    device = FlowerDevice(first.address, first.authority, key, heartbeat=HEARTBEAT)
    thread = threading.Thread(target=device.serve, args=(lambda data: data, stop))
    thread.start()
    try:
        wait_until(lambda: "aa11" in first.present(), "the device")
        first.close()
        register = Link.register

        def slowly(link: Link, public: str) -> None:
            time.sleep(2.0)
            register(link, public)

        monkeypatch.setattr(Link, "register", slowly)
        with FlowerRecommender(
            tmp_path, port=first.port, roster=roster, heartbeat=HEARTBEAT
        ) as second:
            wait_until(lambda: "aa11" in second.present(), "the device again")
            stop.set()
            thread.join(30)
    finally:
        stop.set()
    said = "\n".join(record.getMessage() for record in caplog.records)
    assert "the recommender is starting or stopping; trying again" in said
    assert "clock" not in said
    assert "not enrolled" not in said


@pytest.mark.parametrize(
    "path",
    [
        "/v1/control/start-run",  # runs the sender's code on the server, if it is let through
        "/v1/control/register-node",
        "/v1/control/list-runs",
        "/v1/runtime/acquire-task",
        "/v1/runtime/push-messages",
        "/v1/fleet/get-fab",
        "/v1/fleet/register-node",
        "/docs",
        "/openapi.json",
        RING,
        OPEN,
    ],
)
def test_what_is_not_for_devices_is_not_there_for_them(live: Live, path: str):
    url = f"https://{live.recommender.address}{path}"
    for secret in ("", "guessed"):
        response = httpx.post(
            url,
            content=b"",
            headers={"x-hdpmf-secret": secret},
            verify=_trust(live),
            trust_env=False,
        )
        assert response.status_code == 404, response.text


def test_the_superlinks_secret_is_in_no_command_line_and_no_environment(live: Live):
    superlink = live.recommender.superlink
    assert superlink is not None
    for what in ("cmdline", "environ"):
        assert superlink.secret.encode() not in Path(f"/proc/{superlink.pid}/{what}").read_bytes()


def test_a_device_that_is_killed_is_silent_and_takes_part_again_when_it_is_back(
    live: Live, network: Network
):
    began = time.monotonic()
    killer = threading.Timer(1.0, live.deployment.kill, [FIRST])
    killer.start()
    assert network.ask({FIRST: network.sleep(30, b"never"), SECOND: b"echo x"}, deadline=4.0) == {
        SECOND: b"x"
    }
    killer.join()
    assert time.monotonic() - began < 30
    live.start_device(FIRST)  # refused until the server has missed two signs of life, then let in
    wait_until(
        lambda: network.ask_both(b"echo back", 5.0) == dict.fromkeys(NAMES, b"back"),
        "both answer again",
    )


def test_unanswered_messages_and_late_replies_do_not_pile_up(
    live: Live, network: Network, monkeypatch: pytest.MonkeyPatch
):
    superlink = live.recommender.superlink
    assert superlink is not None
    size = 8_000_000
    monkeypatch.setattr("hdpmf.common.net.flower.recommender._LEFTOVER", 2 * size)

    def left_over(number: int) -> None:
        order = network.sleep(0.3, bytes([number]) * size)
        assert network.ask({FIRST: order}, deadline=0.3) == {}
        network.ask({FIRST: b"echo x"})  # the device is done with it

    for number in range(3):
        left_over(number)
    before = _resident(superlink.pid)
    for number in range(3, 15):
        left_over(number)
    grown = (_resident(superlink.pid) - before) / size
    assert grown < 6, f"{grown:.1f} of 12 messages, and some of their replies, are still there"
    assert network.ask_both(b"echo x") == dict.fromkeys(NAMES, b"x")


def test_when_the_superlink_dies_it_is_started_again_and_the_devices_find_it(
    live: Live, network: Network
):
    superlink = live.recommender.superlink
    assert superlink is not None
    port = live.recommender.port
    killer = threading.Timer(1.0, os.kill, [superlink.pid, signal.SIGKILL])
    killer.start()
    assert network.ask_both(network.sleep(10, b"lost"), deadline=30.0) == {}
    killer.join()
    live.wait_for(*NAMES)
    assert live.recommender.port == port
    assert live.recommender.superlink is not superlink
    # A device that was still at the lost message is slow to come back; both are there in the end.
    wait_until(
        lambda: network.ask_both(b"echo back", 15.0) == dict.fromkeys(NAMES, b"back"),
        "both answer again",
    )


def test_a_network_that_fails_for_a_moment_costs_no_device_its_place(live: Live):
    key = NodeKey.generate()
    live.recommender.admit("ee55", key.public)
    network = Network(live.recommender, ("ee55", "ee55"))
    stop = threading.Event()
    with wire_to(live.recommender.port) as wire:
        device = FlowerDevice(
            f"127.0.0.1:{wire.port}",
            live.recommender.authority,
            key,
            heartbeat=10 * HEARTBEAT,
            max_bytes=MAX_BYTES,
        )
        thread = threading.Thread(target=device.serve, args=(ScriptedDevice("ee55"), stop))
        thread.start()
        try:
            live.wait_for("ee55")
            wire.cut()
            assert network.ask({"ee55": b"echo lost"}, deadline=0.5) == {}
            wire.mend()
            # The server has noticed nothing and would refuse a second device with this key for
            # twenty seconds; the one that was there is let go on at once.
            wait_until(
                lambda: network.ask({"ee55": b"echo back"}, 2.0) == {"ee55": b"back"},
                "it answers again",
                12.0,
            )
        finally:
            stop.set()
            thread.join(30)


def test_nothing_is_left_when_the_process_that_started_it_is_killed(tmp_path: Path):
    script = (
        "import sys, time\n"
        "from pathlib import Path\n"
        "from hdpmf.common.net.flower.recommender import FlowerRecommender\n"
        "recommender = FlowerRecommender(Path(sys.argv[1]))\n"
        "print(recommender.superlink.pid, recommender.port, flush=True)\n"
        "time.sleep(600)\n"
    )
    starter = subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path)],
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        assert starter.stdout is not None
        pid = int(starter.stdout.readline().split()[0])
        assert _runs(pid)
    finally:
        starter.kill()
        starter.communicate()
    wait_until(lambda: not _runs(pid), "the SuperLink is gone")


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().split(") ")[1][0] not in "ZX"
    except FileNotFoundError:
        return False


def _resident(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _trust(live: Live) -> ssl.SSLContext:
    return ssl.create_default_context(cadata=live.recommender.authority.decode())
