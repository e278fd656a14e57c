"""A server on several hosts: nothing is shared but the database, and what was copied at set-up."""

from __future__ import annotations

import random
import shutil
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from pathlib import Path

import httpx
import pytest
import sqlalchemy as sa

from hdpmf.common.aggregation.two_servers.dap.hpke import KeyPair
from hdpmf.common.net.parties import PartyKey
from hdpmf.common.protocol.servers import Collector, card_to_json
from hdpmf.errors import ConfigError, HdpmfError, StorageError
from hdpmf.lab.simulate.deploy import free_port
from hdpmf.untrusted.aggregator.authentication import CardFiles
from hdpmf.untrusted.aggregator.datastore import ServerDatabase, key_rows, released
from hdpmf.untrusted.aggregator.folder import AggregatorConfig, AggregatorFolder, KeyRules, Limits
from hdpmf.untrusted.aggregator.hpke_keys import HPKE_KEYS_FILE
from hdpmf.untrusted.aggregator.key_file import DAY, KEY_SIZE, NAME_SIZE, KeyFile
from hdpmf.untrusted.aggregator.key_table import DATABASE_KEY_FILE, KeyTables
from hdpmf.untrusted.aggregator.sealing import BATCH_KEYS_FILE
from tests.aggregator.postgres import cluster, new_database
from tests.aggregator.server_processes import HELPER, LEADER, Asked, Pair, make_task, near

ROLES = (HELPER, LEADER)


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with cluster() as found:
        yield found


class Balancer:
    """What stands before the hosts of a server: each connection to another one, if it answers."""

    def __init__(self, port: int, hosts: list[int]) -> None:
        self._hosts = hosts
        self._turn = 0
        self._listener = socket.create_server(("127.0.0.1", port), backlog=128)
        self._joined: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def close(self) -> None:
        """End all that is joined, and wait for the threads."""
        self._listener.shutdown(socket.SHUT_RDWR)
        for end in self._joined:
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(60)
        self._listener.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                caller, _ = self._listener.accept()
                joining = threading.Thread(target=self._join, args=(caller,), daemon=True)
                joining.start()
                self._threads.append(joining)

    def _join(self, caller: socket.socket) -> None:
        for _ in self._hosts:
            self._turn += 1
            try:
                port = self._hosts[self._turn % len(self._hosts)]
                host = socket.create_connection(("127.0.0.1", port), timeout=10)
            except OSError:
                continue
            host.settimeout(None)
            self._joined += [caller, host]
            with caller, host:
                back = threading.Thread(target=_pump, args=(host, caller), daemon=True)
                back.start()
                _pump(caller, host)
                back.join()
            return
        caller.close()


def _pump(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(1 << 16):
            target.sendall(data)
    for end in (source, target):
        with suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)


class Hosts:
    """Two hosts of each of the two servers, behind the addresses on their cards."""

    def __init__(self, pair: Pair) -> None:
        self.pair = pair
        self.ports: dict[str, int] = {}
        self._balancers = []
        for role in ROLES:
            first = pair.folders[role].path
            second = first.with_name(f"{role}-2")
            shutil.copytree(first, second)
            for path in (first, second):
                config = path / "config.toml"
                self.ports[path.name] = free_port()
                on_card = f"port = {pair.folders[role].config.port}\n"
                text = config.read_text()
                assert on_card in text
                config.write_text(text.replace(on_card, f"port = {self.ports[path.name]}\n"))
            listening = [self.ports[role], self.ports[f"{role}-2"]]
            self._balancers.append(Balancer(pair.folders[role].config.port, listening))

    def start(self) -> None:
        for name in self.ports:
            path = self.pair.folders[LEADER].path.with_name(name)
            self.pair.deployment.start(name, "hdpmf", "aggregator", "serve", str(path))
        wait("all hosts answer", lambda: self.all_have("build_info", *self.ports))
        wait(
            "both leaders know the helper's clock",
            lambda: self.all_have("aggregator_partner_reachable", LEADER, f"{LEADER}-2"),
        )

    def close(self) -> None:
        for balancer in self._balancers:
            balancer.close()

    def all_have(self, metric: str, *names: str) -> bool:
        """Whether a metric is more than 0 on all of these hosts."""
        return all(self.metric(name, metric) > 0 for name in names)

    def metric(self, name: str, metric: str) -> float:
        """The sum over a metric of one host; 0 while it does not answer."""
        self.pair.deployment.check()
        role = name.removesuffix("-2")
        token = {"authorization": f"Bearer {self.pair.folders[role].metrics_token}"}
        try:
            url = f"https://localhost:{self.ports[name]}/metrics"
            text = self.pair.clients[role].get(url, headers=token).text
        except httpx.HTTPError:
            return 0.0
        lines = [line for line in text.splitlines() if line.startswith(f"hdpmf_{metric}")]
        return sum(float(line.split()[-1]) for line in lines)

    def upload(self, asked: Asked, report: bytes) -> None:
        """As a device does: on a new connection, again until it is taken."""
        end = time.monotonic() + 60
        while True:
            with suppress(httpx.HTTPError):
                with httpx.Client(verify=self.pair.context(LEADER), timeout=30) as client:
                    headers = {"content-type": "application/dap-report"}
                    url = self.pair.reports_url(asked)
                    answer = client.put(url, content=report, headers=headers)
                if answer.status_code == 201:
                    return
            assert time.monotonic() < end
            time.sleep(0.2)


def wait(what: str, reached, seconds: float = 90.0) -> None:
    end = time.monotonic() + seconds
    while not reached():
        assert time.monotonic() < end, what
        time.sleep(0.1)


def test_two_hosts_of_each_server_and_one_is_killed(url: str, tmp_path: Path) -> None:
    databases = {role: new_database(url, role) for role in ROLES}
    rng = random.Random(7)
    with Pair(
        tmp_path, databases=databases, keys=KeyRules(shared=True), limits=Limits(job_reports=4)
    ) as pair:
        hosts = Hosts(pair)
        hosts.start()
        asked = make_task(pair.servers, pair.collector.card, seconds=20)
        pair.give(asked)
        vectors: list[list[int]] = []

        def send(number: int) -> None:
            made = [[rng.randrange(256) for _ in range(4)] for _ in range(number)]
            with ThreadPoolExecutor(4) as threads:
                list(threads.map(lambda vector: hosts.upload(asked, asked.report(vector)), made))
            vectors.extend(made)

        def both_work() -> bool:
            send(4)
            return all(
                hosts.all_have(f"aggregator_{metric}", LEADER, f"{LEADER}-2")
                for metric in ("aggregated_reports_total", 'uploads_total{outcome="accepted"}')
            )

        wait("both hosts of the leader take reports and check them", both_work, 15.0)
        jobs = 'aggregator_answers_total{resource="aggregation",status="201"}'
        assert hosts.all_have(jobs, HELPER, f"{HELPER}-2")
        with ThreadPoolExecutor(1) as sending:
            under_way = sending.submit(send, 12)
            pair.deployment.kill(f"{LEADER}-2")
            pair.deployment.kill(f"{HELPER}-2")
            under_way.result()
        found, count = pair.collect(asked, 120.0)
        assert count == len(vectors)
        assert near(found, [sum(column) for column in zip(*vectors, strict=True)])
        pair.deployment.stop_all()
        hosts.close()
        for role in ROLES:
            database = ServerDatabase(databases[role])
            with database.read() as connection:
                log = sa.select(released.c.server).where(released.c.task == asked.id)
                assert sorted(connection.execute(log).scalars()) == [0, 1]  # closed once
                stores = connection.execute(sa.select(key_rows.c.store)).scalars().all()
            assert HPKE_KEYS_FILE in stores
            assert BATCH_KEYS_FILE not in stores  # erased with the batch
            database.close()
            assert KeyFile(pair.folders[role].path / HPKE_KEYS_FILE).names() == []


# Keys in the database


def name(number: int) -> bytes:
    return number.to_bytes(NAME_SIZE, "big")


class Clock:
    def __init__(self) -> None:
        self.now = time.time()

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def database(url: str, request: pytest.FixtureRequest) -> Iterator[ServerDatabase]:
    made = ServerDatabase(new_database(url, request.node.name[:60]))
    yield made
    made.close()


def two_hosts(tmp_path: Path, database: ServerDatabase, clock: Clock) -> list[KeyTables]:
    (tmp_path / "first").mkdir()
    first = KeyTables(database, tmp_path / "first", clock)
    shutil.copytree(tmp_path / "first", tmp_path / "second")
    return [first, KeyTables(database, tmp_path / "second", clock)]


def test_hosts_share_keys_and_what_one_erases_is_gone_for_all(
    tmp_path: Path, database: ServerDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hdpmf.untrusted.aggregator.key_table._FRESH_SECONDS", 0.0)
    one, other = (host.open("keys") for host in two_hosts(tmp_path, database, Clock()))
    with ThreadPoolExecutor(4) as threads:  # whoever is first makes it
        made = set(threads.map(lambda at: (one, other)[at % 2].make(name(1)), range(8)))
    assert len(made) == 1
    one.put(name(2), bytes(KEY_SIZE))
    assert other.keys() == {name(1): made.pop(), name(2): bytes(KEY_SIZE)}
    other.erase([name(1), name(3)])
    assert (one.get(name(1)), one.names()) == (None, [name(2)])
    one.write_list(b"signed")
    assert other.read_list() == b"signed"
    with database.read() as connection:
        values = connection.execute(sa.select(key_rows.c.value)).scalars().all()
    assert not any(bytes(KEY_SIZE) in value for value in values)  # sealed


def test_an_erased_key_cannot_be_opened_after_two_days(
    tmp_path: Path, database: ServerDatabase
) -> None:
    """The thief has a copy of the table from before, and all hosts of two days later."""
    clock = Clock()
    hosts = two_hosts(tmp_path, database, clock)
    kept = hosts[0].open("keys").make(name(1))
    erased = hosts[0].open("keys").make(name(2))
    with database.read() as connection:
        copy = [dict(row._mapping) for row in connection.execute(sa.select(key_rows))]
    hosts[0].open("keys").erase([name(2)])
    for days in range(4):
        with database.write() as connection:
            now = [dict(row._mapping) for row in connection.execute(sa.select(key_rows))]
            connection.execute(sa.delete(key_rows))
            connection.execute(key_rows.insert(), copy)
        thief = KeyTables(database, tmp_path / "second", clock).open("keys")
        assert thief.get(name(2)) == (erased if days < 3 else None)
        with database.write() as connection:
            connection.execute(sa.delete(key_rows))
            connection.execute(key_rows.insert(), now)
        clock.now += DAY
        for host in hosts:
            host.open("keys")
            host.move_forward()
        assert [host.open("keys").get(name(1)) for host in hosts] == [kept, kept]
        restarted = KeyTables(database, tmp_path / "second", clock).open("keys")
        assert restarted.get(name(1)) == kept


def test_another_servers_folder_or_a_row_in_another_place_opens_nothing(
    tmp_path: Path, database: ServerDatabase
) -> None:
    clock = Clock()
    one, other = (host.open("keys") for host in two_hosts(tmp_path, database, clock))
    one.make(name(1))
    (tmp_path / "stranger").mkdir()
    stranger = KeyTables(database, tmp_path / "stranger", clock).open("keys")
    with pytest.raises(StorageError, match="copy the folder of the first"):
        stranger.make(name(1))
    with database.write() as connection:
        connection.execute(sa.update(key_rows), {"name": name(2)})
    with pytest.raises(StorageError, match="cannot be opened"):
        other.get(name(2))


def test_keys_of_a_folder_move_into_the_database_and_old_copies_do_not_come_back(
    tmp_path: Path, database: ServerDatabase
) -> None:
    (tmp_path / "first").mkdir()
    file = KeyFile(tmp_path / "first" / "hpke-keys")
    keys = {name(at): file.make(name(at)) for at in (1, 2)}
    file.write_list(b"signed")
    clock = Clock()
    KeyTables(database, tmp_path / "first", clock)  # makes the key that seals them
    shutil.copytree(tmp_path / "first", tmp_path / "second")
    one = KeyTables(database, tmp_path / "first", clock).open("hpke-keys")
    assert (one.keys(), one.read_list(), file.names()) == (keys, b"signed", [])
    one.erase([name(1)])
    other = KeyTables(database, tmp_path / "second", clock).open("hpke-keys")
    assert other.names() == [name(2)]
    assert KeyFile(tmp_path / "second" / "hpke-keys").names() == []


# Recommenders that were admitted on one host


@pytest.fixture
def two_folders(
    url: str, tmp_path: Path, request: pytest.FixtureRequest
) -> Iterator[list[AggregatorFolder]]:
    """Two hosts of a server, as after copying the folder."""
    config = AggregatorConfig(
        role="leader",
        organisation="x",
        name="y",
        database=new_database(url, request.node.name[:60]),
        keys=KeyRules(shared=True),
    )
    first = AggregatorFolder.create(tmp_path / "first", config)
    shutil.copytree(first.path, tmp_path / "second")
    made = [first, AggregatorFolder(tmp_path / "second")]
    yield made
    for folder in made:
        folder.key_stores._database.close()  # a process ends with its command


def a_card(organisation: str, identity: str = "") -> Collector:
    hpke = KeyPair.generate(9).config.encode().hex()
    identity = identity or PartyKey.generate().public
    return Collector(organisation=organisation, hpke=hpke, identity=identity)


def test_a_recommender_that_is_admitted_or_removed_on_one_host_is_so_on_all(
    two_folders: list[AggregatorFolder], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hdpmf.untrusted.aggregator.key_table._FRESH_SECONDS", 0.0)
    one, other = two_folders
    shop, club = a_card("shop"), a_card("club")
    one.admit(shop)
    assert other.collectors == {shop.identity: shop}
    other.admit(club)
    assert one.collectors.keys() == {shop.identity, club.identity}
    again = a_card("shop of today", shop.identity)
    other.admit(again)
    assert one.collectors[shop.identity] == again
    one.dismiss("shop of today")
    assert other.collectors == {club.identity: club}
    with pytest.raises(HdpmfError, match="key"):
        other.admit(a_card("no key", "00" * 32))  # refused as on one host
    assert not list(one.path.glob("collectors/*")) + list(other.path.glob("collectors/*"))
    one.key_stores.move_forward()
    assert one.collectors == {club.identity: club}


def test_whoever_can_write_to_the_database_admits_nobody(
    two_folders: list[AggregatorFolder], tmp_path: Path
) -> None:
    one, other = two_folders
    shop, thief = a_card("shop"), a_card("thief")
    one.admit(shop)
    (tmp_path / "forger").mkdir()
    with closing(ServerDatabase(one.config.database)) as database:
        forger = KeyTables(database, tmp_path / "forger").open("forged")
        forger.replace(thief.identity.encode(), card_to_json(thief))
        with database.write() as connection:
            forged = key_rows.c.store == "forged"
            connection.execute(sa.update(key_rows).where(forged), {"store": "admitted"})
    with pytest.raises(StorageError, match="cannot be opened"):
        _ = other.collectors


def test_cards_of_a_folder_move_into_the_database_and_old_ones_do_not_come_back(
    two_folders: list[AggregatorFolder],
) -> None:
    one, other = two_folders
    shop, club = a_card("shop"), a_card("club")
    for folder in (one, other):  # as version 1.0.0 did on each host
        for card in (shop, club):
            CardFiles(folder.path / "collectors").put(card)
    assert one.collectors.keys() == {shop.identity, club.identity}
    one.dismiss("club")
    assert other.collectors.keys() == {shop.identity}
    assert not list(one.path.glob("collectors/*")) + list(other.path.glob("collectors/*"))


def test_a_server_with_sqlite_has_no_keys_in_its_database(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="several hosts with one PostgreSQL"):
        AggregatorConfig(role="leader", organisation="x", name="y", keys=KeyRules(shared=True))
    made = AggregatorFolder.create(
        tmp_path / "it", AggregatorConfig(role="leader", organisation="x", name="y")
    )
    assert (made.path / DATABASE_KEY_FILE).stat().st_mode & 0o777 == 0o600
