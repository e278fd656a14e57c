"""Runs with two servers, both in this process: exact sums, kills at every step, servers that are away or refuse."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from hashlib import sha256
from typing import Any

import msgspec
import numpy as np
import pytest

pytest.importorskip("pyhpke")
pytest.importorskip("sqlalchemy")

from hdpmf.aggregator.helper import Helper
from hdpmf.aggregator.keys import ServerKeys
from hdpmf.aggregator.leader import Leader
from hdpmf.aggregator.store import ServerDatabase
from hdpmf.aggregator.tasks import Rules
from hdpmf.dap import Collection, InputShareAad, PlaintextInputShare, Problem, Report, ReportMetadata, Role
from hdpmf.dap.basics import HpkeConfig
from hdpmf.dap.hpke import KeyPair, input_share_info, seal
from hdpmf.errors import ConfigError, DapError, FederationError, ProtocolError, TransportError
from hdpmf.privacy import PrivacyWeights
from hdpmf.privacy.sampling import SeededNoise
from hdpmf.protocol import DeviceCard, Popularity, SumContribution, Task, decode, encode
from hdpmf.protocol.catalogue import catalogue_table, known_items
from hdpmf.protocol.servers import Server
from hdpmf.protocol.task import prio_of, task_id
from hdpmf.ratings import Ratings, synthetic_world
from hdpmf.recommender import OneRoundRecommender
from hdpmf.recommender.runs import Answered
from hdpmf.secure_sum import DeviceIdentity
from hdpmf.service.collector import open_collection
from hdpmf.service.collector_keys import CollectorKeys, pin_servers
from hdpmf.service.enrolment import Enrolled
from hdpmf.service.folder import Config, ServiceFolder
from hdpmf.service.outcome import RunOutcome
from hdpmf.service.periods import PeriodRun
from hdpmf.service.publish import PublicFiles
from hdpmf.service.run_files import Checkpoint, RunFiles
from hdpmf.service.service import Service, conduct_periods
from hdpmf.service.settings import Pace, RunSettings
from hdpmf.shard.contribution import OneRoundShard
from hdpmf.transport.parties import PartyKey
from hdpmf.transport.summing import ServersHere

START, PERIOD = 1_000_000_050, 100
SETTINGS = RunSettings(method="hdp-sum", view="two-servers", minimum=3, rounds=1, period=PERIOD)
LABELLED = msgspec.structs.replace(SETTINGS, labels={"popularity": 1.0}, rounds=2)
PACE = Pace(pause=1.0, attempts=3)


class Killed(BaseException):
    """As kill -9: nothing catches it."""


class Kept(RunFiles):
    """Files in memory."""

    def __init__(self, step: Callable[[], None] = lambda: None) -> None:
        self.data = b""
        self.step = step

    def save(self, checkpoint: Checkpoint) -> None:
        self.step()
        self.data = msgspec.msgpack.encode(checkpoint)
        self.step()

    def load(self) -> Checkpoint:
        return msgspec.msgpack.decode(self.data, type=Checkpoint) if self.data else Checkpoint()


class World:
    """Two servers, some devices with one user each, a collector, and a clock that only sleeping moves."""

    def __init__(self, settings: RunSettings = SETTINGS, users: int = 4, seed: int = 3) -> None:
        self.settings, self.now = settings, float(START)
        self.ratings = synthetic_world(users, 12, 6 * users, rng=seed)
        self.table = catalogue_table(self.ratings.items, self.ratings.scale, self.ratings.item_table)
        self.known = known_items(self.table)
        self.devices = [DeviceIdentity.generate() for _ in range(users)]
        self.enrolled = Enrolled(
            DeviceCard(name=f"d{n}", identity=device.public.hex(), node=f"n{n}", users=1)
            for n, device in enumerate(self.devices)
        )
        keys = server_keys()
        rules = Rules(minimum=2, simulation=True)
        self.helper = Helper(keys[1], ServerDatabase(), clock=self.clock, noise=SeededNoise(2), rules=rules)
        self.leader = Leader(
            keys[0], ServerDatabase(), self.helper, clock=self.clock, noise=SeededNoise(1), rules=rules
        )
        self.servers = keys[0].servers
        self.collector = CollectorKeys.generate("shop")
        self.shards = [self._shard(user) for user in range(users)]
        self.absent: set[int] = set()
        self.published: bytes | None = None
        self.reported: set[bytes] = set()
        self.lines: list[str] = []

    def _shard(self, user: int) -> OneRoundShard:
        own = self.ratings.take(self.ratings.user_codes == user)
        part = Ratings.from_arrays(
            self.ratings.users.ids[own.user_codes], self.ratings.items.ids[own.item_codes], own.values,
            scale=self.ratings.scale, item_table=self.ratings.item_table, items_index=self.ratings.items,
        )  # fmt: skip
        return OneRoundShard(
            part, PrivacyWeights.uniform(part), SeededNoise(9, stream=user), epsilon=self.settings.epsilon,
            catalogue=self.known.fingerprint, simulation=True,
        )  # fmt: skip

    def run(self, door: Any = None, files: RunFiles | None = None, **more: Any) -> PeriodRun:
        given: dict[str, Any] = {
            "settings": self.settings,
            "table": self.table,
            "enrolled": self.enrolled,
            "servers": self.servers,
            "keys": self.collector,
            "door": ServersHere(self.leader, self.helper) if door is None else door,
            "publish": self.publish,
            "files": RunFiles() if files is None else files,
            "pace": PACE,
            "log": self.lines.append,
            "sleep": self.sleep,
            "clock": self.clock,
        }
        return PeriodRun(**given | more)

    def clock(self) -> float:
        return self.now

    def publish(self, document: bytes | None) -> None:
        self.published = document

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        document = self.published
        if document is None or document in self.reported:
            return
        task = decode(document)
        assert isinstance(task, Task)
        if task.begin <= self.now < task.end:
            self.report(document, task)

    def report(self, document: bytes, task: Task) -> None:
        """Every device that is there reports, once in each task."""
        self.reported.add(document)
        for user, (device, shard) in enumerate(zip(self.devices, self.shards, strict=True)):
            if task.part == "labels":
                assert task.grouping is not None
                shard.group(task.grouping)
            else:
                assert task.survey is not None
                shard.accept(task.survey)
            ((weights, levels),) = shard.entries(1)
            if user not in self.absent:
                report = make_report(document, task, weights, levels)
                signed = device.sign(b"hdpmf report " + task_id(document) + sha256(report).digest())
                self.leader.upload(task_id(document), report, device.public.hex(), signed)


def server_keys() -> tuple[ServerKeys, ServerKeys]:
    """The keys of a leader and a helper."""
    party, hpke = [PartyKey.generate() for _ in range(2)], [KeyPair.generate() for _ in range(2)]
    cards = [
        Server(organisation=name, url=f"https://{name}:1", hpke=pair.config.encode().hex(), identity=key.public)
        for name, key, pair in zip(("library", "university"), party, hpke, strict=True)
    ]
    leader = ServerKeys("leader", party[0], hpke[0], cards[0], cards[1])
    return leader, ServerKeys("helper", party[1], hpke[1], cards[1], cards[0])


def make_report(document: bytes, task: Task, weights: np.ndarray, levels: np.ndarray) -> bytes:
    """One user's report, as the draft has it."""
    name, nonce = task_id(document), secrets.token_bytes(16)
    prio = prio_of(task, name)
    sharded = prio.shard(prio.circuit.encode(weights, levels), nonce)  # type: ignore[attr-defined]
    metadata = ReportMetadata(nonce, task.begin)
    aad = InputShareAad(name, metadata, sharded.public_share).encode()
    sealed = [
        seal(
            HpkeConfig.decode(bytes.fromhex(server.hpke)),
            input_share_info(role),
            aad,
            PlaintextInputShare((), share).encode(),
        )
        for server, role, share in zip(
            (task.servers.leader, task.servers.helper), (Role.LEADER, Role.HELPER), sharded.input_shares, strict=True
        )
    ]
    return Report(metadata, sharded.public_share, *sealed).encode()


def exact(world: World, tasks: Sequence[Task]) -> list[SumContribution | Popularity]:
    """What the sums of these tasks must be: everybody's numbers and both servers' noise, drawn once more."""
    shards = [world._shard(user) for user in range(len(world.devices)) if user not in world.absent]
    noises = SeededNoise(1), SeededNoise(2)
    found: list[SumContribution | Popularity] = []
    for task in tasks:
        assert task.survey is not None
        n = task.circuit.entries // 2
        scores, weights, total = np.zeros(n, np.int64), np.zeros(n, np.int64), 0
        for shard in shards:
            if task.grouping is None:
                shard.accept(task.survey)
            else:
                shard.group(task.grouping)
            ((units, levels),) = shard.entries(1)
            codes, rulers = (np.array(row) for row in (task.circuit.codes, task.circuit.rulers))  # type: ignore[union-attr]
            scores += units * codes[levels]
            weights += units
            total += int((units * rulers[levels]).sum())
        for noise in noises:
            drawn = [
                noise.discrete_laplace(part.fraction, part.entries) if part.fraction else np.zeros(part.entries)
                for part in task.noise
            ]
            scores, weights = scores + drawn[0].astype(np.int64), weights + drawn[1].astype(np.int64)
            total += int(drawn[2][0])
        found.append(
            Popularity(weights=weights)
            if task.part == "counts"
            else SumContribution(scores=scores, weights=weights, total=total)
        )
    return found


def tasks_of(world: World, checkpoint: Checkpoint) -> list[Task]:
    """The tasks of a run; the servers have these and no others."""
    documents = [period.document for period in checkpoint.periods]
    assert sorted(world.leader.task_ids()) == sorted(world.helper.task_ids()) == sorted(map(task_id, documents))
    return [task for task in map(decode, documents) if isinstance(task, Task)]


def assert_same(found: Any, expected: Any) -> None:
    assert type(found) is type(expected)
    for name in found.__struct_fields__:
        np.testing.assert_array_equal(getattr(found, name), getattr(expected, name))


def check(world: World, outcome: RunOutcome, checkpoint: Checkpoint) -> None:
    """The outcome is exactly what came in, with both noises, and the library's facts of it."""
    tasks = tasks_of(world, checkpoint)
    sums = exact(world, tasks)
    assert_same(outcome.answer, sums[-1])
    recommender = OneRoundRecommender(
        world.settings.survey(world.known, 1), world.known.features, score=world.settings.labels
    )
    if world.settings.labels:
        assert isinstance(sums[0], Popularity)
        assert_same(decode(checkpoint.counted), sums[0])
        assert_same(recommender.group([sums[0]], 2), tasks[1].grouping)
    facts = recommender.facts([outcome.answer], n_sums=2)  # type: ignore[list-item]
    assert_same(outcome.model.numbers, facts)


@pytest.mark.parametrize("settings", [SETTINGS, LABELLED], ids=["plain", "labels"])
def test_the_sums_are_exact_and_the_facts_the_librarys(settings: RunSettings) -> None:
    world = World(settings)
    run = world.run()
    outcome = conduct_periods(run)
    check(world, outcome, run.checkpoint)
    assert (outcome.statement.view, outcome.statement.status) == ("two-servers", "proved")
    assert (outcome.summary["users"], outcome.summary["devices"]) == (4, None)
    assert outcome.summary["rounds"] == settings.rounds
    assert world.published is None


def test_a_task_begins_at_a_multiple_of_its_precision_and_report_times_tell_nothing() -> None:
    world = World()
    run = world.run()
    conduct_periods(run)
    (task,) = tasks_of(world, run.checkpoint)
    assert (task.begin, task.end, task.precision) == (1_000_000_100, 1_000_000_200, PERIOD)
    assert task.survey is not None
    assert task.survey.contributors == 1
    finer = World(msgspec.structs.replace(SETTINGS, precision=10))
    run = finer.run()
    conduct_periods(run)
    (task,) = tasks_of(finer, run.checkpoint)
    assert (task.begin, task.end) == (START, START + PERIOD)


def test_who_is_away_is_not_in_the_sum() -> None:
    world = World()
    world.absent = {2}
    run = world.run()
    outcome = conduct_periods(run)
    check(world, outcome, run.checkpoint)
    assert outcome.summary["users"] == 3


def test_below_the_minimum_nothing_is_released_and_the_error_says_so() -> None:
    world = World()
    world.absent = {0, 3}
    with pytest.raises(FederationError, match=r"fewer than 3 reports .* Nothing was released\. Give the run up"):
        conduct_periods(world.run())
    assert world.published is None


class Door(ServersHere):
    """Both servers, with a step before and after every call, and what was asked."""

    def __init__(self, world: World, step: Callable[[], None] = lambda: None) -> None:
        super().__init__(world.leader, world.helper)
        self.step = step
        self.requests: set[tuple[bytes, bytes, bytes]] = set()

    def add_task(self, document: bytes, devices: Sequence[tuple[str, int]]) -> None:
        self.step()
        super().add_task(document, devices)
        self.step()

    def begin_collection(self, task_id: bytes, job_id: bytes, request: bytes) -> None:
        self.step()
        self.requests.add((task_id, job_id, request))
        super().begin_collection(task_id, job_id, request)
        self.step()

    def collection(self, task_id: bytes, job_id: bytes) -> bytes | None:
        self.step()
        found = super().collection(task_id, job_id)
        self.step()
        return found


class Fuse:
    """Kills at the so manieth step."""

    def __init__(self, steps: int) -> None:
        self.left = steps

    def __call__(self) -> None:
        self.left -= 1
        if self.left == -1:
            raise Killed


# Five times the checkpoint is written, and three times a server is asked; with labels, from the first sum's end on to
# where the second task is as far as a task without them.
@pytest.mark.slow
@pytest.mark.parametrize(
    ("settings", "steps"), [(SETTINGS, range(17)), (LABELLED, range(12, 18))], ids=["plain", "labels"]
)
def test_a_run_that_is_killed_at_any_step_goes_on_with_the_same_task_and_the_same_request(
    settings: RunSettings, steps: range
) -> None:
    for kill in steps:
        world, fuse = World(settings, users=3), Fuse(kill)
        door, files = Door(world, fuse), Kept(fuse)
        killed = False
        try:
            conduct_periods(world.run(door, files))
        except Killed:
            killed = True
            world.sleep(7.0)
            run = world.run(door, files)
            outcome = conduct_periods(run)
            assert_same(outcome.answer, exact(world, tasks_of(world, run.checkpoint))[-1])
            assert run.checkpoint.users == [3] * settings.rounds
        assert len({request[0] for request in door.requests}) == len(door.requests) == settings.rounds
        assert killed == (kill < 16 or settings.labels is not None)


def test_a_helper_that_is_away_is_waited_for() -> None:
    world = World()
    away, real = [5], world.helper.aggregation_job

    def job(*given: Any) -> bytes:
        away[0] -= 1
        if away[0] >= 0:
            raise TransportError("the helper cannot be reached")
        return real(*given)

    world.helper.aggregation_job = job  # type: ignore[method-assign]
    run = world.run()
    outcome = conduct_periods(run)
    check(world, outcome, run.checkpoint)
    assert world.lines.count("the helper cannot be reached; asking again until it is there") == 1


def test_a_task_that_the_servers_cannot_be_given_stops_the_run_which_goes_on_later() -> None:
    world, files = World(), Kept()
    door = Door(world)

    def unreachable(document: bytes, devices: object) -> None:
        raise TransportError("the server of 'university' cannot be reached")

    door.add_task, real = unreachable, door.add_task  # type: ignore[method-assign]
    with pytest.raises(FederationError, match=r"cannot be reached; tried 3 times\. The run is kept"):
        conduct_periods(world.run(door, files))
    assert world.published is None
    door.add_task = real  # type: ignore[method-assign]
    run = world.run(door, files)
    check(world, conduct_periods(run), run.checkpoint)
    # And too late: nobody has the task, so that nobody reported.
    world, files = World(), Kept()
    door.add_task = unreachable  # type: ignore[method-assign]
    with pytest.raises(FederationError):
        conduct_periods(world.run(door, files))
    world.now += 1000
    with pytest.raises(FederationError, match="was over before both servers had it; nobody has reported"):
        conduct_periods(world.run(door, files))


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (Problem.UNAUTHORIZED_REQUEST, "do not know this recommender.*aggregator admit"),
        (Problem.BATCH_MISMATCH, r"\(batchMismatch\).*Nothing was released"),
    ],
)
def test_a_refusal_says_why_and_what_to_do(kind: Problem, words: str) -> None:
    world = World()
    door = Door(world)

    def refuse(*given: Any) -> None:
        raise DapError("no", kind)

    door.begin_collection = refuse  # type: ignore[method-assign]
    with pytest.raises(FederationError, match=words):
        conduct_periods(world.run(door))
    door.add_task = refuse  # type: ignore[method-assign,assignment]
    with pytest.raises(FederationError, match=r"a server refuses the task.*aggregator admit"):
        conduct_periods(world.run(door))


def test_a_sum_opens_with_the_collectors_key_alone_and_as_each_servers_share() -> None:
    world, files = World(), Kept()
    run = world.run(files=files)
    conduct_periods(run)
    (period,) = run.checkpoint.periods
    with pytest.raises(ProtocolError, match="the leader's share: could not be decrypted"):
        open_collection(period.document, period.collection, CollectorKeys.generate("other"))
    good = Collection.decode(period.collection)
    swapped = Collection(
        good.part_batch_selector, good.report_count, good.interval,
        good.helper_encrypted_agg_share, good.leader_encrypted_agg_share,
    )  # fmt: skip
    few = Collection(
        good.part_batch_selector, 2, good.interval, good.leader_encrypted_agg_share, good.helper_encrypted_agg_share
    )
    for data, words in ((swapped.encode(), "decrypted"), (few.encode(), "over 2 reports"), (b"", "cannot be used")):
        with pytest.raises(ProtocolError, match=words):
            open_collection(period.document, data, world.collector)
    other = world.run(files=files)
    other.checkpoint.stage = "work"
    many = Collection(
        good.part_batch_selector, 5, good.interval, good.leader_encrypted_agg_share, good.helper_encrypted_agg_share
    )
    other.checkpoint.periods[0].collection = many.encode()
    with pytest.raises(FederationError, match="counted 5 reports, more than users are enrolled"):
        conduct_periods(other)


def make_service(world: World, folder: Any) -> Service:
    """A recommender with a folder that uses the world's servers."""
    place = ServiceFolder.create(folder, Config(name="shop", pace=PACE), world.table)
    place.enroll(world.enrolled.cards)
    world.collector = pin_servers(folder, "shop", world.servers)
    service = Service(
        place, servers=ServersHere(world.leader, world.helper), log=world.lines.append, sleep=world.sleep,
        clock=world.clock,
    )  # fmt: skip

    def publish(task: bytes | None = None) -> None:
        world.publish(task)
        PublicFiles(place).write(task)

    service.publish = publish  # type: ignore[method-assign]
    return service


def test_every_device_may_report_in_every_run_and_the_sums_are_put_together(tmp_path: Any) -> None:
    world = World()
    service = make_service(world, tmp_path / "shop")
    first = service.conduct(service.begin(SETTINGS))
    world.shards = [world._shard(user) for user in range(len(world.devices))]  # with ratings that are new
    second = service.conduct(service.begin(SETTINGS))
    assert (first.summary["cohorts"], second.summary["cohorts"]) == (1, 2)
    recommender = OneRoundRecommender(SETTINGS.survey(world.known, 1), world.known.features)
    before = Answered(recommender.survey, first.answer, 2)  # type: ignore[arg-type]
    expected = recommender.facts([second.answer], n_sums=2, earlier=[before])  # type: ignore[list-item]
    assert_same(second.model.numbers, expected)
    index = msgspec.json.decode((tmp_path / "shop" / "public" / "index.json").read_bytes())
    facts = (tmp_path / "shop" / "public" / index["model"]["file"]).read_bytes()
    assert sha256(facts).hexdigest() == index["model"]["sha256"]
    assert_same(decode(facts), expected)
    assert (index["task"], index["servers"], index["model"]["run"]) == (None, world.servers.digest, second.run.hex())


def test_without_servers_no_run_begins(tmp_path: Any) -> None:
    world = World()
    place = ServiceFolder.create(tmp_path / "shop", Config(name="shop"), world.table)
    place.enroll(world.enrolled.cards)
    with pytest.raises(ConfigError, match="no pair of servers is pinned yet"):
        Service(place).begin(SETTINGS)


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"credit": 2}, "each adds the whole noise"),
        ({"max_colluding": 0.1}, "each adds the whole noise"),
        ({"minimum": 1}, "over 2 reports at least"),
        ({"period": 0}, "must have 1 to"),
        ({"precision": 7}, "no multiple"),
        ({"view": "sums"}, "only sums by two servers have a period"),
    ],
)
def test_settings_that_say_nothing_with_two_servers_are_refused(more: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        msgspec.structs.replace(SETTINGS, **more)


def test_earlier_runs_are_reckoned_with_their_own_noise_by_masks_too(tmp_path: Any) -> None:
    world = World()
    service = make_service(world, tmp_path / "shop")
    assert service.answered(service.conduct(service.begin(SETTINGS)).run).noises == 2
    masked = RunSettings(method="hdp-sum", view="sums", minimum=3, rounds=1, max_colluding=0.5)
    run = service.begin(masked)
    files = service.folder.run_files(run)
    n = len(world.known.items)
    answer = SumContribution(scores=np.zeros(n, np.int64), weights=np.zeros(n, np.int64), total=0)
    members = tuple(card.identity for card in world.enrolled.cards)
    files.save(Checkpoint(members=members, answer=encode(answer)))
    # Four shares, of which one makes the whole noise: the minimum less two that may collude.
    assert service.answered(run).noises == 4
    # Whoever answered by masks may report to two servers what is new since.
    service.give_up(run)
    after = service.folder.record(service.begin(SETTINGS))
    assert (len(after.cohort), len(after.earlier)) == (4, 2)
