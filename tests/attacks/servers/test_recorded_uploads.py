"""A leader, or whoever is on the network, keeps what devices upload, and gets keys later; lists of
keys are held back, brought back, exchanged or forged on their way to devices.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from hdpmf.common.aggregation.two_servers.dap.hpke import KeyPair, input_share_info
from hdpmf.common.aggregation.two_servers.dap.messages import (
    AggregationJobInitReq,
    AggregationJobResp,
    HpkeConfigList,
    InputShareAad,
    PingPongShare,
    PlaintextInputShare,
    PrepareError,
    PrepareInit,
    Problem,
    Report,
    ReportShare,
    id_from_text,
)
from hdpmf.common.protocol.documents import to_base64
from hdpmf.common.protocol.key_list import (
    KeyList,
    PublishedKeys,
    SignedKeyList,
    read_key_list,
)
from hdpmf.common.protocol.servers import Server
from hdpmf.common.protocol.task import task_id
from hdpmf.errors import DapError
from hdpmf.private.device.pinned_servers import pin_servers
from hdpmf.private.device.store.device_store import DeviceStore
from hdpmf.untrusted.aggregator.aggregation_job import prepare_share
from hdpmf.untrusted.aggregator.hpke_keys import HPKE_KEYS_FILE, HpkeKeyRing
from hdpmf.untrusted.aggregator.sealing import KeyFile
from hdpmf.untrusted.aggregator.tasks import Rules
from tests.unit.aggregator.server_pair import END, Pair, plain_sum
from tests.unit.device.reporting_world import (
    PERIOD,
    START,
    TABLE,
    actions,
    make_store,
    make_task,
    reporter,
)
from tests.world import KnownNoise, MemoryCarrier, ServerPair, live

DAY = 86_400
ROLES = ("leader", "helper")
KEEP = Rules().keep


def on_disk(folder: Path) -> bytes:
    """All bytes of all files: databases, their logs and free pages, and whatever lies there."""
    return b"".join(path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file())


def secrets_of(pair: Pair) -> dict[str, list[bytes]]:
    """The secret keys that each server has now."""
    return {
        role: list(KeyFile(pair.state(role) / HPKE_KEYS_FILE).keys().values()) for role in ROLES
    }


def days_pass(pair: Pair, until: float, step: float = DAY / 2) -> None:
    """Both servers do what they do every hour."""
    while pair.clock.now < until:  # type: ignore[attr-defined]
        pair.clock.now += step  # type: ignore[attr-defined]
        pair.leader.collect_garbage()
        pair.helper.collect_garbage()


def opened(secret: bytes, pair: Pair, task: bytes, report: bytes, server: int) -> bytes:
    """What somebody with a secret key reads of a recorded report."""
    read = Report.decode(report)
    sealed = (read.leader_encrypted_input_share, read.helper_encrypted_input_share)[server]
    aad = InputShareAad(task, read.report_metadata, read.public_share).encode()
    info = input_share_info(pair.keys[server].dap_role)
    return PlaintextInputShare.decode(
        KeyPair(sealed.config_id, secret).open(sealed, info, aad)
    ).payload


# Recorded, and opened later


@pytest.mark.slow
def test_a_recorded_upload_stays_closed(tmp_path: Path) -> None:
    """It was open for as long as the pair lasted: the key was on the card, and on the disk."""
    pair = Pair(tmp_path)
    task = pair.add()
    recorded = [pair.report(task, seed) for seed in range(3)]
    for report in recorded:
        pair.leader.upload(task, report)
    stolen = secrets_of(pair)
    for server, role in enumerate(ROLES):  # these are the keys that matter
        assert opened(stolen[role][0], pair, task, recorded[0], server)
    pair.aggregate_all()
    assert pair.numbers(task, pair.collect(task)) == plain_sum([0, 1, 2])
    days_pass(pair, END + 16 * DAY)
    backup = tmp_path.with_name(f"{tmp_path.name}-backup")
    shutil.copytree(tmp_path, backup)
    for server, role in enumerate(ROLES):
        everything = on_disk(backup)
        for secret in stolen[role]:
            assert secret not in everything
            assert secret.hex().encode() not in everything
        ring = HpkeKeyRing(backup / role, pair.signing[server])
        assert len(ring.ages) >= 2  # there are newer ones, and one of them is in use
        for secret in KeyFile(backup / role / HPKE_KEYS_FILE).keys().values():
            with pytest.raises(DapError, match="could not be decrypted"):
                opened(secret, pair, task, recorded[0], server)


@pytest.mark.slow
def test_a_key_stays_while_reports_for_it_are_under_way_and_no_longer(tmp_path: Path) -> None:
    """The helper is away for weeks: what was confirmed counts. A task that nobody collects ends."""
    pair = Pair(tmp_path)
    task = pair.add()
    stolen = secrets_of(pair)
    pair.upload(task, [0, 1])
    days_pass(pair, END + 20 * DAY)
    assert set(stolen["helper"]) < set(secrets_of(pair)["helper"])
    pair.restart()
    assert pair.aggregate_all() == 2
    assert pair.numbers(task, pair.collect(task)) == plain_sum([0, 1])
    pair.leader.collect_garbage()
    pair.helper.collect_garbage()
    assert not set(stolen["helper"]) & set(secrets_of(pair)["helper"])
    late = pair.add(pair.a_task(begin=END + 24 * DAY, end=END + 24 * DAY + 14_400))
    stolen = secrets_of(pair)
    pair.clock.now = END + 24 * DAY + 1  # type: ignore[attr-defined]
    pair.leader.upload(late, pair.report(late, 3))
    days_pass(pair, END + 25 * DAY + KEEP)
    for role in ROLES:
        assert not set(stolen[role]) & set(secrets_of(pair)[role])


# A device with real servers behind it


class Rotating(MemoryCarrier):
    """Two real servers whose keys rotate; the test is the recommender and the network.

    Attributes:
        pair: The servers.
        lost: How many uploads the leader does not get.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__(float(START), TABLE)
        self.pair = ServerPair(self.clock, (KnownNoise(0), KnownNoise(0)), folder=folder)
        self.lost = 0
        self.refused: list[str] = []
        self.task = make_task(servers=self.pair.servers, token_key=b"")
        self.number = task_id(self.task)
        self.pair.helper.add_task(self.task)
        self.pair.leader.add_task(self.task)
        self.publish(task=self.task)

    def show(self, keys: PublishedKeys | None = None) -> None:
        """Publish lists of keys: by default those of now."""
        self.publish(keys=(self.pair.published_keys if keys is None else keys).to_bytes())

    def upload(self, leader: Server, path: str, headers: Any, body: bytes, leaving: Any) -> int:
        status = super().upload(leader, path, headers, body, leaving)
        if self.lost:
            self.lost -= 1
            return status
        if status != 201:
            return status
        try:
            self.pair.leader.upload(id_from_text(path.split("/")[2], 32), body)
        except DapError as error:
            self.refused.append(error.kind)
            return 400
        return 201

    def counted(self) -> int:
        """How many reports both servers have in their sums."""
        self.pair.aggregate_all()
        leader, helper = (
            server.counts(self.number).counted for server in (self.pair.leader, self.pair.helper)
        )
        assert leader == helper
        return leader

    @property
    def report_ids(self) -> list[bytes]:
        return [Report.decode(body).report_metadata.report_id for _, _, body in self.uploads]

    @property
    def key_ids(self) -> list[tuple[int, int]]:
        """The keys that each upload was encrypted to."""
        reports = [Report.decode(body) for _, _, body in self.uploads]
        return [
            (
                report.leader_encrypted_input_share.config_id,
                report.helper_encrypted_input_share.config_id,
            )
            for report in reports
        ]


@pytest.fixture
def world(tmp_path: Path) -> Rotating:
    return Rotating(tmp_path)


def owner(world: Rotating) -> DeviceStore:
    store = make_store()
    pin_servers(store, world.pair.servers)
    return store


def make_list(world: Rotating, role: int, serial: int, not_after: int, pair: KeyPair) -> bytes:
    """A list that a server has really signed."""
    keys = KeyList(
        serial=serial,
        not_after=not_after,
        configs=to_base64(HpkeConfigList((pair.config,)).encode()),
    )
    return SignedKeyList.make(keys, world.pair.signing[role].sign).to_bytes()


def test_a_report_is_encrypted_to_the_newest_keys_when_it_leaves(world: Rotating) -> None:
    store = owner(world)
    world.show()
    device = reporter(store, world, 0.5)
    live(device, world, 600)
    for ring in world.pair.rings:  # after the report was made, before its moment
        ring.rotate(world.now)
    world.show()
    live(device, world, PERIOD - 800)
    assert world.key_ids == [(1, 1)]
    assert world.counted() == 1
    assert actions(store) == ["agreed", "sent"]


def test_an_older_list_is_refused_whoever_brings_it(world: Rotating) -> None:
    store = owner(world)
    old = world.pair.published_keys
    for ring in world.pair.rings:
        ring.rotate(world.now + 1)
    world.show()
    device = reporter(store, world, 0.5)
    live(device, world, 600)
    world.show(old)
    live(device, world, 600)
    device = reporter(store, world, 0.5)  # a restart forgets nothing
    live(device, world, PERIOD - 1400)
    assert any("older than the one before" in line for line in world.logged)
    assert world.key_ids == [(1, 1)]
    assert store.device.server_keys == {
        world.pair.servers.leader.signing: world.pair.leader.signed_keys(),
        world.pair.servers.helper.signing: world.pair.helper.signed_keys(),
    }


def test_a_report_for_an_erased_key_is_encrypted_anew_and_paid_once(world: Rotating) -> None:
    """Keys that may be stolen are erased at once: DAP's outdatedConfig, then the same report."""
    store = owner(world)
    world.show()
    world.lost, world.answers = 1, [503]  # it has left, and the leader is busy
    device = reporter(store, world, 0.2)
    until_sent(device, world, 1)
    assert (world.key_ids, world.lost) == ([(0, 0)], 0)
    for ring in world.pair.rings:
        ring.rotate(world.now, erase=True)
    live(device, world, 600)
    assert set(world.refused) == {Problem.OUTDATED_CONFIG}
    assert set(world.key_ids) == {(0, 0)}  # no server has said yet that this key is gone
    assert len({body for _, _, body in world.uploads}) == 1
    world.show()
    live(device, world, PERIOD - 2500)
    assert world.key_ids[-1] == (1, 1)
    assert len(set(world.report_ids)) == 1
    assert world.counted() == 1
    assert actions(store) == ["agreed", "sent"]
    assert store.ledger.paid_in(world.number.hex(), store.ratings()).max() <= 1.0 + 1e-9


def test_a_leader_that_says_outdated_gets_nothing_by_it(world: Rotating) -> None:
    """It keeps the first report, has the device make another, and counts both: one of them."""
    store = owner(world)
    world.show()
    world.otherwise = 400
    device = reporter(store, world, 0.2)
    until_sent(device, world, 3)
    assert len({body for _, _, body in world.uploads}) == 1  # its word alone moves nothing
    lists = []
    for ring, signing in zip(world.pair.rings, world.pair.signing, strict=True):
        ring.rotate(world.now)
        gone = KeyList(  # both servers say that the first key is erased, though it is not
            serial=int(world.now) + 99,
            not_after=START + DAY,
            configs=to_base64(HpkeConfigList((ring.config,)).encode()),
        )
        lists.append(SignedKeyList.make(gone, signing.sign).to_bytes())
    world.show(PublishedKeys.of(lists[0], lists[1]))
    while world.key_ids[-1] == (0, 0) and world.now < START + PERIOD - 60:
        until_sent(device, world, len(world.uploads) + 1)
    world.otherwise = 201
    live(device, world, START + PERIOD - world.now)
    bodies = list({body: None for _, _, body in world.uploads})
    assert len(bodies) == 2
    assert len(set(world.report_ids)) == 1
    assert world.counted() == 1
    assert replayed(world, bodies[0], world.pair.keys[0]) is PrepareError.REPORT_REPLAYED
    assert world.counted() == 1
    assert actions(store) == ["agreed", "sent"]


def until_sent(device: Any, world: Rotating, uploads: int) -> None:
    """Let time pass until there were so many uploads."""
    while len(world.uploads) < uploads:
        assert world.now < START + PERIOD
        world.now += min(device.step(), 5.0)


def replayed(world: Rotating, body: bytes, keys: Any) -> PrepareError | None:
    """What the helper says to a report that the leader sends by itself."""
    report = Report.decode(body)
    task = world.pair.leader.task(world.number)
    ready = prepare_share(
        keys, task, report.report_metadata, report.public_share, report.leader_encrypted_input_share
    )
    assert not isinstance(ready, PrepareError)
    share = ReportShare(
        report.report_metadata, report.public_share, report.helper_encrypted_input_share
    )
    init = PrepareInit(share, PingPongShare(ready[1]).encode())
    request = AggregationJobInitReq((init,)).encode()
    answer = world.pair.helper.aggregation_job(world.number, b"j" * 16, request)
    return AggregationJobResp.decode(answer).prepare_resps[0].result


# Between the servers


def test_a_report_that_the_helper_cannot_open_is_not_confirmed(tmp_path: Path) -> None:
    """It was confirmed, paid for and lost: the helper alone knew that its key was gone."""
    pair = Pair(tmp_path)
    task = pair.add()
    report = pair.report(task, 0)
    pair.leader.follow_partner_keys()
    pair.rings[1].rotate(pair.clock(), erase=True)
    pair.leader.follow_partner_keys()
    with pytest.raises(DapError) as refused:
        pair.leader.upload(task, report)
    assert refused.value.kind == Problem.OUTDATED_CONFIG
    assert pair.leader.lacks_partner_keys  # it may be a newer key, too
    pair.rings[1].rotate(pair.clock())
    newest = pair.report(task, 1)
    with pytest.raises(DapError):
        pair.leader.upload(task, newest)
    pair.leader.follow_partner_keys()
    assert not pair.leader.lacks_partner_keys
    pair.leader.upload(task, newest)
    pair.leader.upload(task, newest)  # the same bytes again are the same report
    pair.aggregate_all()
    assert pair.helper.counts(task).counted == 1


@pytest.mark.parametrize("forger", ["the leader's list", "another key", "a stranger's", "nothing"])
def test_nobody_else_makes_the_helpers_list(world: Rotating, forger: str) -> None:
    """With its own key in the helper's place the leader would read everything."""
    store = owner(world)
    real = world.pair.published_keys
    assert real.leader is not None
    mine = make_list(world, 0, int(world.now) + 9, START + 5 * DAY, KeyPair.generate(9))
    stranger = SignedKeyList.make(
        KeyList(
            serial=START,
            not_after=START + DAY,
            configs=to_base64(HpkeConfigList((KeyPair.generate(0).config,)).encode()),
        ),
        lambda data: bytes(64),
    ).to_bytes()
    other = {
        "the leader's list": real.leader.to_bytes(),
        "another key": mine,
        "a stranger's": stranger,
    }
    world.show(PublishedKeys.of(real.leader.to_bytes(), other.get(forger, b"")))
    device = reporter(store, world, 0.5)
    live(device, world, PERIOD - 1000)
    assert world.uploads == []  # there is no other key that it falls back to
    assert (forger == "nothing") != any("not signed by the key" in line for line in world.logged)
    assert any("has not come yet" in line for line in world.logged)
    world.show()
    live(device, world, 990)
    assert world.counted() == 1
    assert actions(store) == ["agreed", "sent"]


def test_an_old_list_is_not_used_for_ever(world: Rotating) -> None:
    """Whoever holds newer lists back gets no reports, and the owner gets the budget back."""
    store = owner(world)
    servers = world.pair.servers
    soon = START + 1000
    lists = [make_list(world, role, START, soon, KeyPair.generate(0)) for role in (0, 1)]
    world.show(PublishedKeys.of(lists[0], lists[1]))
    live(reporter(store, world, 0.5), world, PERIOD + 200)
    assert world.uploads == []
    assert actions(store) == ["agreed", "returned"]
    assert any("was valid until" in line for line in world.logged)
    assert read_key_list(lists[0], servers.leader).not_after == soon
