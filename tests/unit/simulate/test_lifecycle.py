"""A service that lives: what a start does, what a request does, what the schedule does, and what
none of them do.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from pathlib import Path
from typing import get_args

import msgspec
import pytest

from hdpmf.cli.recommender.service import status
from hdpmf.common.base.files import atomic_write
from hdpmf.common.protocol.federation import Reason
from hdpmf.errors import ConfigError, FederationError, RunOverError, StorageError
from hdpmf.untrusted.service.aggregation.direct import Direct
from hdpmf.untrusted.service.daemon import (
    Daemon,
    Peers,
    ask_for_run,
    ask_to_give_up,
    drop_request,
    request_in,
)
from hdpmf.untrusted.service.folder import Config, ServiceFolder
from hdpmf.untrusted.service.health import inspect_folder
from hdpmf.untrusted.service.outcome import refusals_in_words
from hdpmf.untrusted.service.scheduler import Schedule
from hdpmf.untrusted.service.service import Service
from hdpmf.untrusted.service.settings import RunSettings
from tests.world import BITS, PACE, PLENTY, SUMS, Federation

pytestmark = pytest.mark.slow

DAY = 86_400.0


class StoppedError(Exception):
    """The test has seen enough."""


class Life:
    """The service of a federation with a clock of its own; ``after`` is called at every look,
    until it stops it.
    """

    def __init__(self, town: Federation, schedule: Schedule | None = None) -> None:
        self.town, self.said = town, list[str]()
        self.ended: list[dict[str, object]] = []
        self.now, self.looks = 0.0, 0
        if schedule is not None:
            town.folder.config = msgspec.structs.replace(town.folder.config, schedule=schedule)

    def live(self, after: Callable[[int], object], step: float = 61.0) -> None:
        self.looks = 0
        # The clock begins where files are dated.
        self.now = max(path.stat().st_mtime for path in self.town.folder.path.rglob("*"))

        def sleep(_: float) -> None:
            self.looks += 1
            self.now += step
            after(self.looks)

        life = Daemon(
            self.town.folder,
            Peers(devices=self.town.network),
            log=self.said.append,
            sleep=sleep,
            clock=lambda: self.now,
            report=lambda outcome: self.ended.append(outcome.summary),
        )
        with pytest.raises(StoppedError):
            life.live()

    @property
    def runs(self) -> int:
        return len(self.town.folder.runs())


def stop_at(most: int) -> Callable[[int], None]:
    def after(looks: int) -> None:
        if looks >= most:
            raise StoppedError

    return after


def test_a_start_begins_nothing_and_publishes_the_model_at_once(town: Federation) -> None:
    life = Life(town)
    life.live(stop_at(3))
    assert life.runs == 0
    town.disconnect(7)
    town.run(SUMS)
    pace = msgspec.structs.replace(PACE, gather=5.0)
    town.folder.config = msgspec.structs.replace(town.folder.config, pace=pace)
    paid = town.spent()
    town.connect(7)
    for _ in range(3):  # restarts
        life.live(stop_at(1))
    assert life.runs == 1
    town.look()
    assert town.devices[7].model is not None
    assert town.spent() == paid


def test_a_request_is_met_once_whatever_is_killed(
    town: Federation, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = ask_for_run(town.folder, SUMS)
    with pytest.raises(ConfigError, match="waits in"):
        ask_for_run(town.folder, SUMS)
    life = Life(town)
    with (
        monkeypatch.context() as patch
    ):  # killed after the run is written down and before the request is dropped
        patch.setattr("hdpmf.untrusted.service.daemon.drop_request", lambda folder: stop_at(0)(1))
        life.live(stop_at(9))
    assert request_in(town.folder) is not None
    for _ in range(2):
        life.live(stop_at(2))
    assert [run.hex() for run in town.folder.runs()] == [name]
    assert [summary["run"] for summary in life.ended] == [name]
    assert request_in(town.folder) is None


def test_a_run_that_was_killed_goes_on(town: Federation, monkeypatch: pytest.MonkeyPatch) -> None:
    run = town.service.begin(SUMS)
    life = Life(town)
    life.live(stop_at(1))
    assert town.folder.unfinished() is None
    assert life.ended[0]["run"] == run.hex()


def test_a_run_that_can_never_end_is_given_up_with_its_cause(
    town: Federation, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = town.service.begin(SUMS)
    life = Life(town)

    def over(service: Service, run: bytes) -> None:
        raise RunOverError("no sum came", "Nothing to do")

    monkeypatch.setattr(Service, "conduct", over)
    life.live(stop_at(1))
    assert town.folder.unfinished() is None
    assert town.folder.summary(run) == {"run": run.hex(), "given_up": True, "cause": "no sum came"}
    (alert,) = [found for found in inspect_folder(town.folder).alerts if found.name == "run"]
    assert alert.words.endswith("was given up: no sum came")


def test_a_run_that_cannot_go_on_waits_while_the_model_is_handed_out_until_it_is_given_up(
    town: Federation,
) -> None:
    town.disconnect(7)
    town.run(SUMS)
    town.disconnect(*range(4))
    run = town.service.begin(SUMS)
    life = Life(town)

    def after(looks: int) -> None:
        if looks == 2:
            town.connect(7)
        if looks == 30:
            assert town.devices[7].model is not None
            assert town.folder.unfinished() == run
            trouble = town.folder.run_files(run).trouble()
            assert trouble is not None
            assert trouble.cause.startswith("4 users agreed to take part")
            assert "have more devices take part" in trouble.remedy
            assert trouble.retry is not None
            assert trouble.retry > trouble.at
            with town.folder.serving():
                (alert,) = inspect_folder(town.folder).alerts
            assert alert.words == f"run {run.hex()[:12]} cannot go on: {trouble.cause}"
            assert alert.todo == trouble.remedy
            ask_to_give_up(town.folder, run)
        if looks > 30 and town.folder.unfinished() is None:
            raise StoppedError

    life.live(after, step=0.5)
    assert any("waits" in line and "users agreed" in line for line in life.said)
    assert "waiting before the run is tried again" in life.said
    assert any("given up" in line for line in life.said)
    assert request_in(town.folder) is None
    assert life.runs == 2


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """The disk of the service: full while this holds something."""
    full: list[bool] = []

    def write(path: Path, data: bytes, *, mode: int = 0o666) -> None:
        if full:
            raise StorageError(f"could not write {path.name}: No space left on device")
        atomic_write(path, data, mode=mode)

    for module in ("folder", "run_files"):
        monkeypatch.setattr(f"hdpmf.untrusted.service.{module}.atomic_write", write)
    return full


def test_on_a_full_disk_the_model_stays_published_and_requests_wait_for_room(
    town: Federation, disk: list[bool]
) -> None:
    town.disconnect(7)
    town.run(SUMS)
    town.connect(7)
    life = Life(town)
    disk.append(True)
    life.live(stop_at(9))
    town.look()
    assert town.devices[7].model is not None
    assert sum("state.json" in line for line in life.said) == 1
    disk.clear()
    asked = ask_for_run(town.folder, SUMS)
    disk.append(True)

    def after(looks: int) -> None:
        if looks == 6:
            assert request_in(town.folder) is not None
            disk.clear()
        if life.ended or looks > 50:
            raise StoppedError

    life.live(after)
    assert [ended["run"] for ended in life.ended] == [asked]


def test_a_run_whose_disk_fills_goes_on_when_there_is_room(
    town: Federation, disk: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, life, gather = ask_for_run(town.folder, SUMS), Life(town), Direct.gather

    def fill(aggregation: Direct) -> None:
        if not life.said[-1].startswith("waiting before"):
            disk.append(True)
        gather(aggregation)

    def after(looks: int) -> None:
        if any("waits" in line and "could not write checkpoint" in line for line in life.said):
            disk.clear()
        if life.ended or looks > 200:
            raise StoppedError

    monkeypatch.setattr(Direct, "gather", fill)
    life.live(after, step=1.0)
    assert [ended["run"] for ended in life.ended] == [asked]
    assert any("could not write checkpoint" in line for line in life.said)


def test_what_cannot_begin_is_said_and_forgotten(town: Federation) -> None:
    ask_for_run(town.folder, msgspec.structs.replace(SUMS, minimum=99))
    life = Life(town)
    life.live(stop_at(2))
    assert any("needs 99 users" in line for line in life.said)
    with town.folder.serving():
        words = [alert.words for alert in inspect_folder(town.folder).alerts]
    assert any("cannot begin" in each and "needs 99 users" in each for each in words)
    assert not any("cannot begin" in alert.words for alert in inspect_folder(town.folder).alerts)
    assert (life.runs, request_in(town.folder)) == (0, None)
    (town.folder.path / "requested.json").write_text("{")
    with pytest.raises(StorageError, match="delete it"):
        request_in(town.folder)
    drop_request(town.folder)


def test_runs_of_different_kinds_follow_each_other(town: Federation) -> None:
    life = Life(town)
    town.run(SUMS)
    ask_for_run(town.folder, BITS)
    life.live(stop_at(2))
    assert [summary["method"] for summary in life.ended] == ["hdp-bit"]


def test_the_schedule_repeats_the_last_run_and_no_sooner(town: Federation) -> None:
    life = Life(town, Schedule(every="7d"))
    life.live(stop_at(9))
    assert life.runs == 0
    assert any("there is none yet" in line for line in life.said)
    town.run(SUMS)
    town.add_later_ones()
    life.live(stop_at(6), step=DAY)
    assert life.runs == 1
    # By the files' dates its end is now, so that it is enough to see one.
    life.live(lambda looks: stop_at(9 if not life.ended else 0)(looks), step=DAY)
    assert life.looks >= 7
    assert life.runs == 2
    assert town.folder.record(town.folder.runs()[-1]).settings == SUMS
    life.live(stop_at(3), step=DAY)  # a restart
    assert life.runs == 2


def test_the_rule_waits_for_enough(town: Federation) -> None:
    life = Life(town, Schedule(rule=True))
    town.run(SUMS)
    life.live(stop_at(5), step=DAY)
    assert life.runs == 1
    life.live(lambda looks: stop_at(9 if not life.ended else 0)(looks), step=DAY)
    assert life.runs == 2
    assert any("new weight is expected" in line for line in life.said)


def test_no_schedule_repeats_what_spends_epsilon_again_or_what_the_rule_cannot_weigh(
    town: Federation,
) -> None:
    life = Life(town, Schedule(rule=True))
    town.run(BITS)
    life.live(stop_at(9), step=30 * DAY)
    assert any("bits have none" in line for line in life.said)
    training = RunSettings(method="hdpmf", view="messages", minimum=6, rounds=1, factors=2)
    for store in town.stores:
        policy = msgspec.structs.replace(
            store.policy, methods=("hdpmf",), allow_nominal=True, max_rounds=5
        )
        store.set_policy(policy)
    town.run(training)
    life = Life(town, Schedule(every="1d"))
    life.live(stop_at(9), step=30 * DAY)
    assert any("spend epsilon again" in line for line in life.said)
    assert life.runs == 2


def test_the_schedule_is_in_the_configuration(tmp_path: Path, town: Federation) -> None:
    for schedule in (Schedule(), Schedule(every="7d"), Schedule(rule=True)):
        path = tmp_path / str(schedule.every) / str(schedule.rule)
        ServiceFolder.create(
            path, Config(name="a", pace=PACE, schedule=schedule), town.folder.catalogue
        )
        assert ServiceFolder(path).config.schedule == schedule
    config = path / "config.toml"
    for wrong in ('every = "1w"', 'every = "0d"', 'every = "1d"\nrule = true', "often = 1"):
        config.write_text(f'name = "a"\n[schedule]\n{wrong}\n')
        with pytest.raises(ConfigError):
            ServiceFolder(path)
    config.write_text('name = "a"\n')  # of version 0.1.0
    assert ServiceFolder(path).config.schedule.never


def test_whether_it_is_served(town: Federation) -> None:
    assert not town.folder.is_serving()
    with town.folder.serving():
        assert town.folder.is_serving()
    assert not town.folder.is_serving()


def test_why_devices_refuse_is_seen_while_others_are_waited_for(town: Federation) -> None:
    town.stores[0].set_policy(msgspec.structs.replace(town.stores[0].policy, methods=("hdp-bit",)))
    town.disconnect(7)
    town.folder.config = msgspec.structs.replace(
        town.folder.config, pace=msgspec.structs.replace(PACE, gather=5.0)
    )

    def sleep(_: float) -> None:
        raise StoppedError

    service = Service(town.folder, town.network, sleep=sleep)
    with pytest.raises(StoppedError):
        service.conduct(service.begin(SUMS))
    state = town.folder.state()
    assert state is not None
    assert (state["stage"], state["refusals_of_run"]) == ("waiting for devices", {"policy": 1})


def test_who_comes_in_a_run_is_let_in_and_sees_the_newest_model(town: Federation) -> None:
    town.disconnect(7)
    first = town.run(SUMS).summary["run"]
    town.add_later_ones()
    seen: list[str | None] = []

    def before(exchange: int, asked: Collection[str]) -> None:
        town.devices[7].look_now()
        model = town.devices[7].model
        seen.append(None if model is None else model.run)

    let_in: list[str] = []
    town.network.before = before
    service = town.restart_service(admit=let_in.extend)
    outcome = service.conduct(service.begin(SUMS))
    assert set(seen) == {first}
    assert outcome.summary["users"] == 7
    assert town.stores[7].ledger.spent_total() == 0
    assert sorted(set(let_in)) == sorted(card.identity for card in town.cards)


def test_refusals_before_a_kill_are_counted(
    town: Federation, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = town.stores[0]
    store.set_policy(msgspec.structs.replace(store.policy, methods=("hdp-bit",)))
    run = town.service.begin(SUMS)

    def killed(*_: object, **__: object) -> None:
        raise StoppedError

    with monkeypatch.context() as patch:
        patch.setattr("hdpmf.untrusted.service.run.outcome_of", killed)
        with pytest.raises(StoppedError):
            town.service.conduct(run)
    outcome = town.restart_service().conduct(run)
    assert outcome.summary["refusals"] == {"policy": 1}


def test_why_devices_refused_is_said_in_words_and_of_the_last_run_only(
    town: Federation, capsys: pytest.CaptureFixture[str]
) -> None:
    for store in town.stores[:4]:
        store.set_policy(msgspec.structs.replace(store.policy, methods=("hdp-bit",)))
    run = town.service.begin(SUMS)
    with pytest.raises(
        FederationError, match="4 refused, 0 were silent or busy; refusals: policy 4"
    ):
        town.service.conduct(run)
    status(folder=town.folder.path, watch=False, every=None, json=False)
    said = capsys.readouterr().out
    assert "4 refusals (policy): their owners' policies forbid it; to do: " in said
    assert not any(town.spent())  # nobody is charged for it
    town.service.give_up(run)
    for store in town.stores:
        store.set_policy(PLENTY)
    town.run(SUMS)
    status(folder=town.folder.path, watch=False, every=None, json=False)
    assert "refusals: none" in capsys.readouterr().out


def test_every_word_of_a_device_has_words_for_the_operator() -> None:
    for reason in get_args(Reason):
        (line,) = refusals_in_words({reason: 2})
        assert line.startswith(f"2 refusals ({reason}): ")
        assert "could not be taken" not in line
    assert [line.split()[0] for line in refusals_in_words({"busy": 1, "malformed": 5})] == [
        "5",
        "1",
    ]
