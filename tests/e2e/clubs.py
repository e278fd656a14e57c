"""A club of people with a real recommender and two servers, for tests in a browser."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from hdpmf.cli.main import run
from hdpmf.common.data import RatingScale
from hdpmf.common.net.web_client import WebClient
from hdpmf.common.protocol.identity import DeviceCard, Invitation
from hdpmf.common.protocol.servers import read_collector
from hdpmf.lab.simulate.deploy import Deployment
from hdpmf.private.device.connection import serve_recommender
from hdpmf.private.device.device_identity import new_device
from hdpmf.private.device.disclosures.journal import Entry
from hdpmf.private.device.memberships import join
from hdpmf.private.device.participant import Participant
from hdpmf.private.device.policy import Policy
from hdpmf.private.device.store.device_store import DeviceStore
from hdpmf.untrusted.service.folder import ServiceFolder
from tests.aggregator.server_processes import Pair

OTHERS = 20
PERIOD = "60s"
SHORT_PERIODS = Policy(min_period=10)
"""A minute stands for a day in these stories."""
FIRST = ("Quiet", "Golden", "Hidden", "Northern", "Paper", "Last", "Silver", "Distant")
SECOND = ("Harbour", "Garden", "Signal", "Winter", "Orchestra", "Mountain", "Letter")
GENRES = ("Drama", "Comedy", "Thriller", "Documentary", "Romance", "War")
TITLES = [f"{first} {second}" for first in FIRST for second in SECOND]


def films(called: str = "The") -> str:
    """A catalogue; other things have other titles, and the same ids."""
    rows = [
        f"{number},{called} "
        f"{title},{GENRES[number % 6]}|{GENRES[(number + 1 + number // 6 % 5) % 6]},{1950 + number}"
        for number, title in enumerate(TITLES, start=1)
    ]
    return "item,title,genres,year\n" + "\n".join(rows) + "\n"


def hdpmf(*arguments: object) -> None:
    """A command, in this process."""
    with pytest.raises(SystemExit) as end:
        run([str(argument) for argument in arguments])
    assert end.value.code in (0, None)


def wait_for(deployment: Deployment, reached: Callable[[], bool], seconds: float = 60.0) -> None:
    waiting = threading.Event()
    for _ in range(int(seconds * 5)):
        if reached():
            return
        deployment.check()
        waiting.wait(0.2)
    raise AssertionError("it never came true")


def make_others(folder: Path) -> list[DeviceStore]:
    """Twenty people who like one half of the items or the other."""
    folder.mkdir(exist_ok=True)
    chance = random.Random(5)
    stores = []
    for number in range(OTHERS):
        path = folder / f"other{number}.sqlite"
        store = new_device(path, scale=RatingScale(1.0, 5.0, 1.0), policy=SHORT_PERIODS)
        for film in chance.sample(range(1, len(TITLES) + 1), 20):
            store.rate(
                str(film),
                float(
                    chance.choice((4, 5)) if film % 2 == number % 2 else chance.choice((1, 2, 3))
                ),
            )
        stores.append(store)
    return stores


def invite(shop: Path, port: int, cards: Sequence[DeviceCard], pair: Pair) -> Invitation:
    """What the operator does: enrols the cards, pins the servers, invites; the servers admit the
    recommender.
    """
    ServiceFolder(shop).enroll(list(cards))
    servers = shop.with_name(f"{shop.name}-servers.json")
    servers.write_bytes(pair.servers.to_json())
    hdpmf("recommender", "servers", shop, servers, "--same-host")
    hdpmf("recommender", "invite", shop, "--address", f"https://localhost:{port}")
    for folder in pair.folders.values():
        folder.admit(read_collector((shop / "collector-card.json").read_bytes()))
    return Invitation.read((shop / "invitation.json").read_bytes())


@contextmanager
def living(stores: list[DeviceStore], invitation: Invitation) -> Iterator[None]:
    """The others' devices, each looking and reporting as it does in ``hdpmf device join``, one
    after the other.
    """
    stop = threading.Event()
    reporters = []
    for store in stores:
        join(store, invitation, same_host=True)
        client = WebClient(invitation.address, invitation.authority.encode())
        reporters.append(
            Participant(store, client, recommender=invitation.address, every=2, uniform=lambda: 0.3)
        )

    def work() -> None:
        while not stop.wait(0.3):
            for reporter in reporters:
                if not stop.is_set():
                    reporter.step()

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


@contextmanager
def answering(stores: Sequence[DeviceStore], address: str, authority: bytes) -> Iterator[None]:
    """Devices that answer a recommender, connected as in ``hdpmf device join``."""
    stop, threads = threading.Event(), []
    for store in stores:
        store.change_recommender(authority=authority)
        told = (store, address, stop, lambda line: None)
        threads.append(threading.Thread(target=serve_recommender, args=told, daemon=True))
        threads[-1].start()
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join(30)


def entries_of(path: Path) -> list[Entry]:
    with DeviceStore.open(path) as store:
        return store.ledger.entries()
