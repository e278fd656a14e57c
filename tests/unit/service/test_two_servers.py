"""Runs with two servers, both in this process: exact sums, kills at every step, servers that are
away or refuse.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

pytest.importorskip("pyhpke")
pytest.importorskip("sqlalchemy")


from hdpmf.common.aggregation.two_servers.dap.messages import CollectionJobResp, Problem
from hdpmf.common.model.published_model import read_model
from hdpmf.common.protocol.documents import read_document
from hdpmf.common.protocol.published import Index, Model, file_name
from hdpmf.common.protocol.task import read_task, task_id
from hdpmf.errors import (
    ConfigError,
    DapError,
    FederationError,
    ProtocolError,
    RunOverError,
    TransportError,
)
from hdpmf.lab.simulate.simulate import ServersHere
from hdpmf.untrusted.service.folder import Config, ServiceFolder
from hdpmf.untrusted.service.health import inspect_folder
from hdpmf.untrusted.service.keys import CollectorKeys, pin_servers
from hdpmf.untrusted.service.run import open_collection
from hdpmf.untrusted.service.service import Service
from hdpmf.untrusted.service.settings import Trouble
from hdpmf.untrusted.service.token_issuer import TokenIssuer

from .two_servers_world import (
    PACE,
    PERIOD,
    SETTINGS,
    START,
    Kept,
    Killed,
    World,
    assert_same,
    check,
    tasks_of,
)


def test_the_sum_is_exact_and_the_facts_the_librarys() -> None:
    world = World()
    run = world.run()
    outcome = run.conduct()
    check(world, outcome, run.checkpoint)
    assert (outcome.statement.view, outcome.statement.status) == ("two-servers", "proved")
    assert outcome.summary["users"] == 4
    assert world.published is None


def test_public_popularity_stands_beside_what_was_released() -> None:
    alone, beside = World(), World()
    items = len(alone.known.items)
    public = np.linspace(1.0, 1000.0, items)
    released = alone.run().conduct().model.numbers.popularity
    found = beside.run(popularity=public).conduct().model.numbers.popularity
    assert found[-1] - released[-1] > found[0] - released[0]  # noise hides all of four people


def test_a_task_begins_at_a_multiple_of_its_precision_and_report_times_tell_nothing() -> None:
    world = World()
    run = world.run()
    run.conduct()
    linear, pairs = tasks_of(world, run.checkpoint)
    assert (linear.begin, linear.end, linear.precision) == (1_000_000_100, 1_000_000_200, PERIOD)
    assert pairs.begin >= linear.end
    assert (linear.run, linear.catalogue) == (pairs.run, pairs.catalogue)
    finer = World(msgspec.structs.replace(SETTINGS, precision=10))
    run = finer.run()
    run.conduct()
    task, _ = tasks_of(finer, run.checkpoint)
    assert (task.begin, task.end) == (START, START + PERIOD)


def test_who_is_away_is_not_in_the_sum() -> None:
    world = World()
    world.absent = {2}
    run = world.run()
    outcome = run.conduct()
    check(world, outcome, run.checkpoint)
    assert outcome.summary["users"] == 3


def test_below_the_minimum_nothing_is_released_and_the_error_says_so() -> None:
    world = World()
    world.absent = {0, 3}
    with pytest.raises(
        FederationError, match=r"fewer than 3 reports .* Nothing was released\. Give the run up"
    ):
        world.run().conduct()
    assert world.published is None


class Door(ServersHere):
    """Both servers, with a step before and after every call, and what was asked."""

    def __init__(self, world: World, step: Callable[[], None] = lambda: None) -> None:
        super().__init__(world.leader, world.helper)
        self.step = step
        self.requests: set[tuple[bytes, bytes]] = set()

    def add_task(self, document: bytes) -> None:
        self.step()
        super().add_task(document)
        self.step()

    def collect(self, task_id: bytes, request: bytes) -> bytes | None:
        self.step()
        self.requests.add((task_id, request))
        found = super().collect(task_id, request)
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


# Of each task four times the checkpoint is written, and three times a server is asked.
@pytest.mark.slow
def test_a_run_that_is_killed_at_any_step_goes_on_with_the_same_task_and_request() -> None:
    survived = 0
    for kill in range(80):
        world, fuse = World(users=3), Fuse(kill)
        client, files = Door(world, fuse), Kept(fuse)
        try:
            world.run(client, files).conduct()
            survived += 1
        except Killed:
            world.sleep(7.0)
            run = world.run(client, files)
            check(world, run.conduct(), run.checkpoint)
            assert run.checkpoint.pairs.reports == 3
        assert len({request[0] for request in client.requests}) == len(client.requests) == 2
        if survived:
            break
    assert survived
    assert kill >= 20


def test_a_helper_that_is_away_is_waited_for() -> None:
    world = World()
    away, real = [5], world.helper.aggregation_job

    def job(*given: Any) -> bytes:
        away[0] -= 1
        if away[0] >= 0:
            raise TransportError("the helper cannot be reached")
        return real(*given)

    world.helper.aggregation_job = job  # type: ignore[method-assign]
    told: list[Trouble | None] = []
    files = Kept()
    files.keep_trouble = told.append  # type: ignore[method-assign]
    run = world.run(files=files)
    outcome = run.conduct()
    check(world, outcome, run.checkpoint)
    assert world.lines.count("the helper cannot be reached; asking again until it is there") == 1
    assert told[0] is not None
    assert told[0].cause == "the helper cannot be reached"
    assert "both servers run" in told[0].remedy


def test_a_task_that_the_servers_cannot_be_given_stops_the_run_which_goes_on_later() -> None:
    world, files = World(), Kept()
    client = Door(world)

    def unreachable(document: bytes) -> None:
        raise TransportError("the server of 'university' cannot be reached")

    client.add_task, real = unreachable, client.add_task  # type: ignore[method-assign]
    with pytest.raises(
        FederationError, match=r"cannot be reached; tried 5 times\. The run is kept"
    ):
        world.run(client, files).conduct()
    assert world.published is None
    client.add_task = real  # type: ignore[method-assign]
    run = world.run(client, files)
    check(world, run.conduct(), run.checkpoint)
    # And too late: nobody has the task, so that nobody reported.
    world, files = World(), Kept()
    client.add_task = unreachable  # type: ignore[method-assign]
    with pytest.raises(FederationError):
        world.run(client, files).conduct()
    world.now += 1000
    with pytest.raises(
        FederationError, match="was over before both servers had it; nobody has reported"
    ):
        world.run(client, files).conduct()


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (Problem.UNAUTHORIZED_REQUEST, "do not know this recommender.*aggregator admit"),
        (Problem.BATCH_MISMATCH, r"\(batchMismatch\).*Nothing was released"),
    ],
)
def test_a_refusal_says_why_and_what_to_do(kind: Problem, words: str) -> None:
    world = World()
    client = Door(world)

    def refuse(*given: Any) -> None:
        raise DapError("no", kind)

    client.collect = refuse  # type: ignore[method-assign]
    with pytest.raises(FederationError, match=words):
        world.run(client).conduct()
    client.add_task = refuse  # type: ignore[method-assign,assignment]
    with pytest.raises(FederationError, match=r"a server refuses the task.*aggregator admit"):
        world.run(client).conduct()


DAY = 86_400.0


def test_a_sum_that_does_not_come_is_an_alert_and_in_the_end_the_end() -> None:
    world = World()
    client = Door(world)
    client.collect = lambda task_id, request: None  # type: ignore[method-assign]
    told: list[tuple[float, Trouble | None]] = []
    files = Kept()
    files.keep_trouble = lambda trouble: told.append((world.now, trouble))  # type: ignore[method-assign]
    with pytest.raises(RunOverError, match="did not come before the servers deleted") as over:
        world.run(client, files).conduct()
    assert "stays paid" in over.value.remedy
    task = read_task(files.load().linear.document)
    assert world.now >= task.end + 31 * DAY
    kept = [(at, trouble) for at, trouble in told if trouble is not None]
    assert len(kept) == 1  # once, not at every question
    assert task.end + 3600.0 <= kept[0][0] < task.end + 3700.0
    assert "is not there long after its period" in kept[0][1].cause
    assert "helper" in kept[0][1].remedy


@pytest.mark.parametrize(
    ("kind", "days"),
    [
        (Problem.INVALID_BATCH_SIZE, 1),
        (Problem.BATCH_INVALID, 1),
        (Problem.UNAUTHORIZED_REQUEST, 31),
        (Problem.BATCH_OVERLAP, 31),
    ],
)
def test_a_run_whose_sum_is_refused_for_good_is_over(kind: Problem, days: int) -> None:
    world, files = World(), Kept()
    client = Door(world)

    def refuse(*given: Any) -> None:
        raise DapError("no", kind)

    client.collect = refuse  # type: ignore[method-assign]
    (early,) = _refusals(world, client, files)
    assert not isinstance(early, RunOverError)
    task = read_task(files.load().linear.document)
    for now, over in ((task.end + days * DAY - 1.0, False), (task.end + days * DAY, True)):
        world.now = now
        (found,) = _refusals(world, client, files)
        assert isinstance(found, RunOverError) == over
        assert early.cause == found.cause


def _refusals(world: World, client: Door, files: Kept) -> list[FederationError]:
    with pytest.raises(FederationError) as refused:
        world.run(client, files).conduct()
    return [refused.value]


def test_a_run_that_is_given_up_ends_and_its_task_is_not_shown(tmp_path: Path) -> None:
    world, folder = World(), tmp_path / "shop"
    service = make_service(world, folder)
    world.absent = {0, 3}
    run = service.begin(SETTINGS)
    with pytest.raises(FederationError):
        service.conduct(run)
    world.now += DAY
    with pytest.raises(RunOverError):
        service.conduct(run)
    del service.publish  # type: ignore[method-assign]
    service.give_up(run, "too few reports")
    assert service.folder.unfinished() is None
    assert "given up: too few reports" in inspect_folder(service.folder).alerts[0].words
    assert index_in(folder).task == ""


def index_in(folder: Path) -> Index:
    return read_document(Index, (folder / "public" / "index.json").read_bytes(), "an index")


def test_a_sum_opens_with_the_collectors_key_alone_and_as_each_servers_share() -> None:
    world, files = World(), Kept()
    run = world.run(files=files)
    run.conduct()
    period = run.checkpoint.pairs
    with pytest.raises(ProtocolError, match="the leader's share: could not be decrypted"):
        open_collection(period.document, period.collection, CollectorKeys.generate("other"))
    good = CollectionJobResp.decode(period.collection)
    swapped = CollectionJobResp(
        good.report_count, good.interval,
        good.helper_encrypted_agg_share, good.leader_encrypted_agg_share,
    )  # fmt: skip
    few = CollectionJobResp(
        2,
        good.interval,
        good.leader_encrypted_agg_share,
        good.helper_encrypted_agg_share,
    )
    for data, words in (
        (swapped.encode(), "decrypted"),
        (few.encode(), "over 2 reports"),
        (b"", "cannot be used"),
    ):
        with pytest.raises(ProtocolError, match=words):
            open_collection(period.document, data, world.collector)
    other = world.run(files=files)
    other.checkpoint.pairs.numbers = b""
    many = CollectionJobResp(
        5,
        good.interval,
        good.leader_encrypted_agg_share,
        good.helper_encrypted_agg_share,
    )
    other.checkpoint.pairs.collection = many.encode()
    with pytest.raises(FederationError, match="counted 5 reports, more than people are enrolled"):
        other.conduct()


def make_service(world: World, folder: Any) -> Service:
    """A recommender with a folder that uses the world's servers."""
    place = ServiceFolder.create(folder, Config(name="shop", pace=PACE), world.table.table)
    world.enrol(place)
    world.collector = pin_servers(folder, "shop", world.servers)
    return service_at(world, place)


def service_at(world: World, place: ServiceFolder) -> Service:
    """The service of a folder that uses the world's servers."""
    service = Service(
        place,
        issuer=world.issuer,
        connect=lambda servers, party: ServersHere(world.leader, world.helper),
        log=world.lines.append,
        sleep=world.sleep,
        clock=world.clock,
    )

    show = service.publish

    def publish(task: bytes | None = None) -> None:
        world.publish(task)
        show(task)

    service.publish = publish  # type: ignore[method-assign]
    return service


def test_every_device_may_report_in_every_run_and_what_came_of_the_last_is_shown(
    tmp_path: Path,
) -> None:
    world = World()
    service = make_service(world, tmp_path / "shop")
    first = service.conduct(service.begin(SETTINGS))
    second = service.conduct(service.begin(SETTINGS))
    assert first.summary["users"] == second.summary["users"] == 4
    index, public = index_in(tmp_path / "shop"), tmp_path / "shop" / "public"
    assert (index.task, index.servers) == ("", world.servers.digest)
    document = (public / file_name("model", index.model)).read_bytes()
    model = read_document(Model, document, "a model")
    assert model.reports == (4, 4)
    facts, lists = read_model(model, {name: (public / name).read_bytes() for name in model.files})
    assert_same(facts, second.model.numbers)
    assert second.model.lists is not None
    np.testing.assert_array_equal(lists.decode.whole, second.model.lists.decode.whole)


def test_tokens_are_given_out_after_a_restart_while_a_server_is_away(tmp_path: Any) -> None:
    world = World()
    service = make_service(world, tmp_path / "shop")
    publish = service.publish

    def killed(task: bytes | None = None) -> None:
        publish(task)
        if task is not None:
            raise Killed

    service.publish = killed  # type: ignore[method-assign]
    run = service.begin(SETTINGS)
    with pytest.raises(Killed):
        service.conduct(run)
    world.issuer.close()
    world.issuer = TokenIssuer(world.issuer.participants)
    again = Service(service.folder, issuer=world.issuer, clock=world.clock)
    period = service.folder.run_files(run).load().linear
    task = read_task(period.document)

    def waits(task: bytes | None = None) -> None:
        raise Killed  # as while it waits for the helper's answer

    again.publish = waits  # type: ignore[method-assign]
    with pytest.raises(Killed):
        again.conduct(run)
    assert world.token(task, task_id(period.document), world.devices[0])


def test_without_servers_no_run_begins(tmp_path: Any) -> None:
    world = World()
    place = ServiceFolder.create(tmp_path / "shop", Config(name="shop"), world.table.table)
    world.enrol(place)
    with pytest.raises(ConfigError, match="no pair of servers is pinned yet"):
        Service(place).begin(SETTINGS)


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"minimum": 1}, "over 2 reports at least"),
        ({"period": 0}, "must have 1 to"),
        ({"precision": 7}, "no multiple"),
        ({"heads": 301}, "2 to 300 heads"),
        ({"epsilon": 0.0}, "positive"),
        ({"asked": 0}, "to all people"),
    ],
)
def test_settings_that_cannot_be_are_refused(more: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        msgspec.structs.replace(SETTINGS, **more)
