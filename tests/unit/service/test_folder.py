"""The recommender's folder: enrolment, runs that survive, cohorts that add up."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from hdpmf.common.data import IdIndex, ItemTable, RatingScale
from hdpmf.common.model.public_model import PublicModel
from hdpmf.common.protocol import CatalogueVersion, DeviceCard, ItemFacts
from hdpmf.common.protocol.catalogue import catalogue_table, check_chain
from hdpmf.common.protocol.enrolment import Enrolled, devices_needed, read_card
from hdpmf.common.protocol.federation import cohort_of
from hdpmf.errors import ConfigError, ModelFileError, StorageError
from hdpmf.untrusted.service.folder import Config, ServiceFolder
from hdpmf.untrusted.service.keys import change_items
from hdpmf.untrusted.service.run_files import CLOSED, SumLogFile
from hdpmf.untrusted.service.settings import RunSettings
from tests.world import PLENTY, small_federation, table


def card(number: int, **change: Any) -> DeviceCard:
    fields = {"name": f"d{number}", "identity": f"{number:064x}", "users": 1} | change
    return DeviceCard(**fields)


@pytest.mark.parametrize(
    "wrong",
    [
        {"identity": f"{1:064x}"},
        {"name": "d1"},
        {"identity": "xyz"},
        {"identity": f"{2:064x}".replace("2", "G")},
        {"users": 0},
        {"name": ""},
        {"name": "a\x1b[2J"},
    ],
)
def test_a_device_is_counted_once_and_its_card_must_make_sense(
    tmp_path: Path, wrong: dict[str, Any]
) -> None:
    folder = ServiceFolder.create(tmp_path / "r", Config(name="test"), table())
    before = folder.enroll([card(1)]).digest
    with pytest.raises(ConfigError):
        folder.enroll([card(3), card(2, **wrong)])
    assert folder.enrolled.digest == before
    assert len(folder.enrolled) == 1


def test_the_digest_is_of_keys_and_users_in_order() -> None:
    enrolled, other = Enrolled([card(1), card(2)]), Enrolled([card(2), card(1)])
    assert len({enrolled.digest, other.digest, Enrolled([card(1), card(2, users=2)]).digest}) == 3
    assert Enrolled.from_json(enrolled.to_json()).digest == enrolled.digest
    with pytest.raises(ConfigError, match="changed by hand"):
        Enrolled.from_json(enrolled.to_json().replace(b'"users": 1', b'"users": 9', 1))
    assert enrolled.without("d1").cards == (card(2),)
    with pytest.raises(ConfigError, match="no device"):
        enrolled.without("d9")


@pytest.mark.parametrize("data", [b"", b"{}", b"[1]", b'{"name": "a"}', b"\xff\xfe"])
def test_what_is_no_card_is_refused(data: bytes) -> None:
    with pytest.raises(ConfigError):
        read_card(data)


def test_devices_needed_counts_on_the_smallest() -> None:
    assert devices_needed([5, 1, 1, 1], 3) == 3
    assert devices_needed([5, 1, 1, 1], 4) == 4
    assert devices_needed([1, 1], 3) is None


def test_a_run_in_a_folder_leaves_a_public_model_and_a_summary(tmp_path: Path) -> None:
    settings = RunSettings(method="hdpmf", view="messages", minimum=3, rounds=2, factors=3)
    service = small_federation([1] * 4, tmp_path).service
    run = service.begin(settings)
    assert service.folder.unfinished() == run
    with pytest.raises(ConfigError, match="under way"):
        service.begin(settings)
    outcome = service.conduct(run)
    assert service.folder.unfinished() is None
    model = ServiceFolder(tmp_path / "r").model()
    assert model is not None
    np.testing.assert_array_equal(model.numbers.item_factors, outcome.model.numbers.item_factors)  # type: ignore[union-attr]
    assert model.about["privacy"]["status"] == "nominal"
    summary = msgspec.json.decode(service.folder.summary_path(run).read_bytes())
    assert summary["devices"] == 4
    assert "every device's gradients" in summary["privacy"]["sees"]
    assert (tmp_path / "r" / "model").resolve().parent.name == run.hex()


def test_a_run_asks_the_cohort_that_its_beacon_chooses(tmp_path: Path) -> None:
    settings = RunSettings(
        method="mf",
        view="messages",
        minimum=3,
        rounds=2,
        factors=3,
        cohort=4,
        beacon="drand 7 0a1b",
    )
    world = small_federation([1] * 6, tmp_path)
    service = world.service
    run = service.begin(settings)
    assert set(service.folder.record(run).cohort) == cohort_of(
        "drand 7 0a1b", world.enrolled.users, 4
    )
    assert service.conduct(run).summary["devices"] == 4


def test_more_devices_than_were_measured_are_warned_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hdpmf.untrusted.service.service.CARRIES", 3)
    settings = RunSettings(method="mf", view="messages", minimum=3, rounds=2, factors=3)
    world, said = small_federation([1] * 4, tmp_path), list[str]()
    world.restart_service(log=said.append).begin(settings)
    assert "4 devices are asked" in said[0]
    assert "--cohort" in said[0]


def test_a_run_that_was_given_up_makes_room(tmp_path: Path) -> None:
    settings = RunSettings(method="mf", view="messages", minimum=3, rounds=2, factors=3)
    service = small_federation([1] * 3, tmp_path).service
    service.give_up(service.begin(settings))
    assert service.folder.model() is None
    service.conduct(service.begin(settings))
    assert service.folder.model() is not None


@pytest.mark.parametrize(("method", "view"), [("hdp-sum", "sums"), ("hdp-bit", "messages")])
def test_later_devices_answers_are_added(tmp_path: Path, method: Any, view: Any) -> None:
    settings = RunSettings(method=method, view=view, minimum=5, rounds=1, epsilon=50.0)
    policy = msgspec.structs.replace(PLENTY, epsilon=50.0)
    world = small_federation([1] * 12, tmp_path, policy=policy, joined=6)
    first = world.run(settings)
    paid = world.spent()
    world.enroll(*range(6, 12))
    world.connect(*range(6, 12))
    second = world.run(settings)
    assert second.summary["cohorts"] == 2
    assert "pays once" in second.statement.guarantee
    facts, alone = second.model.numbers, first.model.numbers
    assert isinstance(facts, ItemFacts)
    assert isinstance(alone, ItemFacts)
    # Twice the people stand behind each item, in both designs.
    assert 1.6 < facts.popularity.sum() / alone.popularity.sum() < 2.5
    assert world.spent()[:6] == paid[:6]  # who has answered has nothing left to answer with
    assert all(world.spent())


def test_a_minimum_that_cannot_be_reached_is_refused_before_anyone_is_asked(tmp_path: Path) -> None:
    settings = RunSettings(method="mf", view="messages", minimum=30)
    service = small_federation([1] * 3, tmp_path).service
    with pytest.raises(ConfigError, match="needs 30 users"):
        service.begin(settings)


def test_a_folder_in_use_or_not_set_up_is_refused(tmp_path: Path) -> None:
    ServiceFolder.create(tmp_path / "r", Config(name='ünï "quoted"'), table())
    assert ServiceFolder(tmp_path / "r").config.name == 'ünï "quoted"'
    with pytest.raises(ConfigError, match="not empty"):
        ServiceFolder.create(tmp_path / "r", Config(name="test"), table())
    with pytest.raises(ConfigError, match="recommender init"):
        ServiceFolder(tmp_path / "nothing")
    (tmp_path / "r" / "config.toml").write_text("name = 'x'\n[pace]\nattempts = 0\n")
    with pytest.raises(ConfigError, match="attempts"):
        ServiceFolder(tmp_path / "r")


def test_a_damaged_model_or_checkpoint_is_named(tmp_path: Path) -> None:
    settings = RunSettings(method="mf", view="messages", minimum=3, rounds=1, factors=3)
    service = small_federation([1] * 3, tmp_path).service
    run = service.begin(settings)
    service.conduct(run)
    numbers = tmp_path / "r" / "model" / "numbers.safetensors"
    numbers.write_bytes(numbers.read_bytes()[:-1])
    with pytest.raises(ModelFileError, match="damaged"):
        PublicModel.load(tmp_path / "r" / "model")
    (tmp_path / "r" / "runs" / run.hex() / "checkpoint.msgpack").write_bytes(b"?")
    with pytest.raises(StorageError, match="cannot be read"):
        service.folder.run_files(run).load()


def test_a_log_that_was_cut_short_loses_only_its_last_record(tmp_path: Path) -> None:
    path = tmp_path / "sum-1.log"
    with closing(SumLogFile(path)) as log:
        log.begin(b"plan")
        log.take(3, b"three")
        log.close_step()
        log.take(4, b"four")
    whole = path.read_bytes()
    for cut in range(1, len(b"four") + 12):
        path.write_bytes(whole[:-cut])
        with closing(SumLogFile(path)) as again:
            assert again.read() == (b"plan", [(3, b"three"), (CLOSED, b"")])
            again.take(5, b"five")
        with closing(SumLogFile(path)) as once_more:
            assert once_more.read()[1][-1] == (5, b"five")
    path.write_bytes(whole[:-2] + b"xx")
    with closing(SumLogFile(path)) as damaged:
        assert len(damaged.read()[1]) == 2


def test_numbers_are_texts_in_a_catalogue_of_texts(tmp_path: Path) -> None:
    table = catalogue_table(IdIndex(["a", "b"]), RatingScale(1.0, 5.0, 1.0))
    folder = ServiceFolder.create(tmp_path / "r", Config(name="test"), table)
    change_items(folder, ItemTable.build([12, 7], ["", ""], [[], []], [None, None]))
    assert folder.catalogue.ids == ("a", "b", "7", "12")
    assert folder.known.items.ids.tolist() == ["a", "b", "7", "12"]


def test_two_changes_at_once_come_one_after_another(tmp_path: Path) -> None:
    """Of two versions with one number devices would take only one."""
    from concurrent.futures import ThreadPoolExecutor

    table = catalogue_table(IdIndex([1]), RatingScale(1.0, 5.0, 1.0))
    ServiceFolder.create(tmp_path / "r", Config(name="test"), table)

    def add(item: int) -> int:
        return len(
            change_items(
                ServiceFolder(tmp_path / "r"), ItemTable.build([item], [""], [[]], [None])
            ).links
        )

    with ThreadPoolExecutor(8) as pool:
        numbers = list(pool.map(add, range(2, 18)))
    assert sorted(numbers) == list(range(2, 18))
    items = ServiceFolder(tmp_path / "r").items
    assert isinstance(items, CatalogueVersion)
    check_chain(items)
    assert sorted(map(int, items.table.ids)) == list(range(1, 18))
